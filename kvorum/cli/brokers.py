"""`kvorum brokers`: list, describe, unregister."""

from __future__ import annotations

from typing import Any

import click

from kvorum.cli.common import INT32_MAX, CommandFailed, cluster_options, show
from kvorum.cli.completion import broker_ids
from kvorum.cli.log_dirs import log_dirs
from kvorum.cli.watch import watchable

_COLUMNS = ["broker_id", "host", "port", "rack", "is_fenced"]


@click.group()
def brokers() -> None:
    """List, describe and unregister brokers; their data directories."""


brokers.add_command(log_dirs)


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
@cluster_options
def unregister(broker_id: int, **options: Any) -> None:
    """Remove the registration of a broker that is gone for good. Refused while the broker is alive
    or is a partition's only in-sync replica."""
    from kvorum.cli.backends import open_backend

    backend = open_backend(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
    backend.unregister_broker(broker_id)
    show(options["output"], {"broker_id": broker_id, "unregistered": True})
