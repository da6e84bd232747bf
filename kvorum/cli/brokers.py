"""`kvorum brokers`: list, describe, unregister."""

from __future__ import annotations

from typing import Any

import click

from kvorum.cli.common import INT32_MAX, cluster_options, confirm, show
from kvorum.cli.completion import broker_ids
from kvorum.cli.log_dirs import log_dirs
from kvorum.cli.replica_moves import move_replicas
from kvorum.cli.watch import watchable
from kvorum.client.failures import CommandFailed, Row, warn

_COLUMNS = ["broker_id", "host", "port", "rack", "is_fenced"]


@click.group()
def brokers() -> None:
    """List, describe and unregister brokers; their data directories."""


brokers.add_command(log_dirs)
brokers.add_command(move_replicas)


@brokers.command("list")
@watchable
@cluster_options
def list_brokers(**options: Any) -> None:
    """All registered brokers, fenced ones included."""
    from kvorum.cli.backends import open_backend

    backend = open_backend(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
    show(options["output"], backend.brokers(), _COLUMNS)


@brokers.command()
@watchable
@click.argument("broker_id", type=click.IntRange(0, INT32_MAX), shell_complete=broker_ids)
@cluster_options
def describe(broker_id: int, **options: Any) -> None:
    """One broker, with the partitions that it leads and its replicas."""
    from kvorum.cli.backends import open_backend

    backend = open_backend(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
    for broker in backend.brokers():
        if broker["broker_id"] == broker_id:
            break
    else:
        raise CommandFailed(f"broker {broker_id} is not registered")
    partitions = [p for topic in backend.topics(None) for p in topic["partitions"]]
    row = {
        **broker,
        "leaders": sum(1 for p in partitions if p["leader"] == broker_id),
        "replicas": sum(1 for p in partitions if broker_id in p["replicas"]),
        "out_of_sync": sum(
            1 for p in partitions if broker_id in p["replicas"] and broker_id not in p["isr"]
        ),
    }
    show(options["output"], row, [*_COLUMNS, "leaders", "replicas", "out_of_sync"])


@brokers.command()
@click.argument("broker_id", type=click.IntRange(0, INT32_MAX), shell_complete=broker_ids)
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@cluster_options
def unregister(broker_id: int, is_sure: bool, **options: Any) -> None:
    """Remove the registration of a broker that is gone for good. Refused while the broker is alive.
    Asks if the broker is the only in-sync replica of partitions, which then have no leader. Warns
    of partitions that have a replica on it: they stay under-replicated until it is moved (kvorum
    partitions reassign)."""
    from kvorum.cli.backends import open_backend

    backend = open_backend(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
    is_fenced = any(b["broker_id"] == broker_id and b["is_fenced"] for b in backend.brokers())
    topics = backend.topics(None) if is_fenced else []
    if left := sum(broker_id in p["replicas"] for topic in topics for p in topic["partitions"]):
        who = f"{left:,} partitions have" if left > 1 else "1 partition has"
        warn(
            f"{who} a replica on broker {broker_id}: under-replicated until it is moved (kvorum "
            "partitions reassign) or a broker with this id comes back"
        )
    alone = alone_in_sync(topics, broker_id)
    if alone:
        warn(
            f"broker {broker_id} alone is in sync for {', '.join(alone)}; what only this broker "
            "holds is lost, and these partitions have no leader until it is back, an unclean "
            "election takes another replica (kvorum partitions elect --unclean), or the topic is "
            "deleted"
        )
        if not is_sure:
            confirm(f"Unregister broker {broker_id} all the same?")
    backend.unregister_broker(broker_id)
    show(options["output"], {"broker_id": broker_id, "unregistered": True})


def alone_in_sync(topics: list[Row], broker_id: int) -> list[str]:
    """The partitions whose ISR is this broker alone, as `topic-partition`."""
    return [
        f"{topic['topic']}-{partition['partition']}"
        for topic in topics
        for partition in topic["partitions"]
        if list(partition["isr"]) == [broker_id]
    ]
