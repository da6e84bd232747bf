"""`kvorum brokers log-dirs`: the data directories of brokers, as each broker reports them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kvorum.cli.common import INT32_MAX, cluster_options, show
from kvorum.cli.watch import watchable
from kvorum.client.failures import EXIT_FAILED, EXIT_NOT_AUTHORIZED, CommandFailed, check
from kvorum.client.rights import on_cluster, way_out

if TYPE_CHECKING:
    from kvorum.wire.log_dirs_codec import DescribedDirectory

_COLUMNS = [
    "broker_id", "log_dir", "state", "directory_id", "is_cordoned", "replicas", "moving_in",
    "offline_replicas", "size_bytes", "size_to_mean", "total_bytes", "usable_bytes", "reason",
]  # fmt: skip
_REFUSED = "CLUSTER_AUTHORIZATION_FAILED"


@click.command("log-dirs")
@watchable
@click.argument("broker_ids", nargs=-1, type=click.IntRange(0, INT32_MAX), metavar="[BROKER_ID]...")
@cluster_options
def log_dirs(broker_ids: tuple[int, ...], **options: Any) -> None:
    """Data directories of all brokers, or of the given ones, and which are offline. Damaged
    replicas, which are offline in a healthy directory, are counted and named. size_to_mean shows
    how uneven a broker's directories are: 1.00 is the mean of their bytes.

    Exit code 1 if a directory or replica is offline, or if a broker does not answer; 5 if every
    broker refuses the user.
    """
    from kvorum.cli.backends import open_backend

    backend = open_backend(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
    known = {row["broker_id"]: row for row in backend.brokers()}
    if missing := [i for i in broker_ids if i not in known]:
        raise CommandFailed(f"broker {missing[0]} is not registered")
    rows: list[dict[str, Any]] = []
    refusals = 0
    for broker_id in broker_ids or sorted(known):
        broker = known[broker_id]
        if broker["is_fenced"]:
            rows.append(_row(broker_id, state="unknown", reason="the broker is fenced"))
            continue
        try:
            found = _asked(broker_id, (broker["host"], broker["port"]), options["timeout"])
            refusals += sum(row["reason"] == _REFUSED for row in found)
            rows += found
        except CommandFailed as error:
            refusals += error.exit_code == EXIT_NOT_AUTHORIZED
            rows.append(_row(broker_id, state="unknown", reason=str(error)))
    show(options["output"], rows, _COLUMNS)
    ailing = sum(row["state"] != "online" for row in rows)
    if ailing:
        code = EXIT_NOT_AUTHORIZED if refusals == ailing else EXIT_FAILED
        text = f"{ailing} of {len(rows)} data directories not online; see above"
        if any(row["reason"] == _REFUSED for row in rows):
            text += f"; {way_out(_REFUSED, on_cluster('DESCRIBE'))}"
        raise CommandFailed(text, code)


def _asked(broker_id: int, address: tuple[str, int], timeout_s: float) -> list[dict[str, Any]]:
    from kvorum.client.connection import KafkaConnection
    from kvorum.runtime.errors import ErrorCode
    from kvorum.runtime.ids import uuid_text
    from kvorum.wire.log_dirs_codec import read_answer

    connection = KafkaConnection([address], timeout_s)
    try:
        answer = connection.ask("describe_log_dirs", 35, 4, {"topics": None}, flexible=True)
    finally:
        connection.close()
    error, found = read_answer(answer[1:])  # skip the header's empty tagged fields
    if error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return [_row(broker_id, state="unknown", reason=_REFUSED)]
    check(error, None, f"broker {broker_id}")
    rows = []
    for directory in found:
        row = _row(
            broker_id,
            log_dir=directory.path,
            directory_id=directory.directory_id and uuid_text(directory.directory_id),
            state="offline",
            reason=directory.reason or ErrorCode(directory.error).name,
        )
        if directory.error == ErrorCode.NONE:
            row |= {
                "state": "online",
                "reason": "",
                "is_cordoned": directory.is_cordoned,
                "replicas": directory.replicas,
                "moving_in": len(directory.contents) - directory.replicas,
                "offline_replicas": directory.offline,
                "size_bytes": directory.size_bytes,
                "total_bytes": directory.total_bytes,
                "usable_bytes": directory.usable_bytes,
            }
            if directory.offline:
                _hint(broker_id, directory)
        rows.append(row)
    sizes = [row["size_bytes"] for row in rows if row["size_bytes"] is not None]
    mean = sum(sizes) / len(sizes) if sizes else 0
    for row in rows:
        if mean and row["size_bytes"] is not None:
            row["size_to_mean"] = round(row["size_bytes"] / mean, 2)
    return rows


def _hint(broker_id: int, directory: DescribedDirectory) -> None:
    names = list(directory.offline_names)
    if len(names) < (directory.offline or 0):
        names.append("...")
    click.echo(
        f"broker {broker_id}: offline replicas in {directory.path}, which is online: "
        f"{directory.offline} ({', '.join(names)}); the broker's log says why; only of damaged "
        "ones see `kvorum partitions restore --help`",
        err=True,
    )


def _row(broker_id: int, **known: Any) -> dict[str, Any]:
    return {**dict.fromkeys(_COLUMNS), "broker_id": broker_id, **known}
