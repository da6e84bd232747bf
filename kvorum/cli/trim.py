"""`kvorum topics trim`: delete the records in front of an offset."""

from __future__ import annotations

import time
from typing import Any

import click

from kvorum.cli.common import INT32_MAX, broker_addresses, cluster_options, show_outcomes
from kvorum.cli.completion import topic_names
from kvorum.client.failures import CommandFailed, fail_on_errors
from kvorum.client.rights import on_topic

_COLUMNS = ["topic", "partition", "result", "log_start_offset"]


@click.command()
@click.argument("topic", shell_complete=topic_names)
@click.option(
    "--offset",
    required=True,
    metavar="WHERE",
    help="The new first offset: N, end, +N, -N (before the end), or @TIME.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(0, INT32_MAX),
    help="Only this partition. Repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Show the offsets; delete nothing.")
@cluster_options
def trim(
    topic: str, offset: str, partitions: tuple[int, ...], dry_run: bool, **options: Any
) -> None:
    """Delete the records of TOPIC in front of an offset, or of a time, in each partition.

    The records cannot be had back. A partition that begins behind the offset stays as it is.
    """
    addresses = broker_addresses(options, "controllers have no records")

    from kvorum.cli.records.positions import parse_position
    from kvorum.client.cluster.brokers import Brokers, Partition
    from kvorum.client.cluster.offsets import bounds_of, resolve
    from kvorum.client.cluster.trimming import delete_records
    from kvorum.runtime.errors import ErrorCode

    try:
        position = parse_position(offset, now_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.UsageError(f"--offset {error}") from error
    brokers = Brokers(addresses, options["timeout"])
    click.get_current_context().call_on_close(brokers.close)
    leaders = brokers.existing([topic], operation="DELETE")[topic].leaders
    chosen: list[Partition] = [(topic, number) for number in sorted(partitions or leaders)]
    bounds = bounds_of(brokers, chosen)
    # An offset below the log start deletes nothing; the answer then shows the log start.
    wanted = {p: max(at, bounds[p].start) for p, at in resolve(brokers, position, bounds).items()}
    late = [p for p, at in wanted.items() if at > bounds[p].end]
    if late:
        name, number = late[0]
        raise CommandFailed(
            f"{name}-{number}: offset {wanted[late[0]]} is beyond its end, {bounds[late[0]].end}"
        )
    found = {p: (ErrorCode.NONE, at) for p, at in wanted.items()}
    if not dry_run:
        found = delete_records(brokers, wanted)
    rows = [
        {
            "topic": name,
            "partition": number,
            "error": error.name,
            "log_start_offset": start if error is ErrorCode.NONE else None,
        }
        for (name, number), (error, start) in sorted(found.items())
    ]
    show_outcomes(options["output"], rows, _COLUMNS, done="dry run" if dry_run else "trimmed")
    fail_on_errors(
        rows,
        "not trimmed",
        lambda row: f"{row['topic']}-{row['partition']}",
        lambda row: on_topic("DELETE", row["topic"]),
    )
