"""`kvorum brokers log-dirs`: the data directories of brokers, as they themselves tell."""

from __future__ import annotations

from typing import Any

import click

from kvorum.cli.common import INT32_MAX, CommandFailed, cluster_options, show

_COLUMNS = [
    "broker_id", "log_dir", "state", "replicas", "size_bytes", "total_bytes",
    "usable_bytes", "reason",
]  # fmt: skip


@click.command("log-dirs")
@click.argument("broker_ids", nargs=-1, type=click.IntRange(0, INT32_MAX), metavar="[BROKER_ID]...")
@cluster_options
def log_dirs(broker_ids: tuple[int, ...], **options: Any) -> None:
    """Data directories of all brokers or of these, and which are offline.

    Exit code 1 if one is, or if a broker cannot be asked.
    """
    from kvorum.cli.backends import open_backend

    backend = open_backend(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
    known = {row["broker_id"]: row for row in backend.brokers()}
    if missing := [i for i in broker_ids if i not in known]:
        raise CommandFailed(f"broker {missing[0]} is not registered")
    rows: list[dict[str, Any]] = []
    for broker_id in broker_ids or sorted(known):
        broker = known[broker_id]
        if broker["is_fenced"]:
            rows.append(_row(broker_id, state="unknown", reason="the broker is fenced"))
            continue
        try:
            rows += _asked(broker_id, (broker["host"], broker["port"]), options["timeout"])
        except CommandFailed as error:
            rows.append(_row(broker_id, state="unknown", reason=str(error)))
    show(options["output"], rows, _COLUMNS)
    ailing = sum(row["state"] != "online" for row in rows)
    if ailing:
        raise CommandFailed(f"{ailing} of {len(rows)} data directories not online; see above")


def _asked(broker_id: int, address: tuple[str, int], timeout_s: float) -> list[dict[str, Any]]:
    from kvorum.cli.backends import check
    from kvorum.cli.kafka_client import KafkaConnection
    from runtime.errors import ErrorCode

    connection = KafkaConnection([address], timeout_s)
    try:
        reply = connection.call("describe_log_dirs", 35, 4, {"topics": None}, flexible=True)
    finally:
        connection.close()
    check(reply.error_code, None, f"broker {broker_id}")
    rows = []
    for result in reply.results:
        is_online = result.error_code == ErrorCode.NONE
        partitions = [p for topic in result.topics for p in topic.partitions]
        rows.append(
            _row(
                broker_id,
                log_dir=result.log_dir,
                state="online" if is_online else "offline",
                replicas=len(partitions) if is_online else None,
                size_bytes=sum(p.partition_size for p in partitions) if is_online else None,
                total_bytes=result.total_bytes if is_online else None,
                usable_bytes=result.usable_bytes if is_online else None,
                reason="" if is_online else ErrorCode(result.error_code).name,
            )
        )
    return rows


def _row(broker_id: int, **known: Any) -> dict[str, Any]:
    return {**dict.fromkeys(_COLUMNS), "broker_id": broker_id, **known}
