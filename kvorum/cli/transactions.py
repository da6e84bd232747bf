"""`kvorum transactions`: list, describe, producers, abort, find-hanging."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from kvorum.cli.common import (
    INT32_MAX,
    INT64_MAX,
    broker_addresses,
    cluster_options,
    is_structured,
    show,
)
from kvorum.cli.completion import topic_names
from kvorum.cli.watch import watchable
from kvorum.client.failures import CommandFailed

if TYPE_CHECKING:
    from kvorum.client.cluster.brokers import Brokers

_STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
)  # fmt: skip
#: transaction.max.timeout.ms of a broker that does not set it.
_TIMEOUT_MAX = "15m"
_OPEN = [
    "topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch", "start_offset",
    "last_timestamp", "age_ms",
]  # fmt: skip


@click.group()
def transactions() -> None:
    """List, describe, abort transactions; find those that hang."""


@transactions.command("list")
@watchable
@click.option(
    "--state", "states", multiple=True, type=click.Choice(_STATES, case_sensitive=False),
    help="Only transactions in this state. Repeatable.",
)  # fmt: skip
@click.option(
    "--producer-id", "producer_ids", multiple=True, type=click.IntRange(0, INT64_MAX),
    help="Only of this producer. Repeatable.",
)  # fmt: skip
@click.option("--running-for", metavar="DURATION", help="Only open ones that are older: 10m, PT1H.")
@cluster_options
def list_transactions(
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    running_for: str | None,
    **options: Any,
) -> None:
    """All transactional ids, with the states of their transactions."""
    running_ms = -1 if running_for is None else _duration("--running-for", running_for)
    brokers = _open(options)

    from kvorum.client.groups import transactions as asked

    rows = asked.list_transactions(
        brokers, states=list(states), producer_ids=list(producer_ids), running_ms_min=running_ms
    )
    show(options["output"], rows, ["transactional_id", "coordinator", "producer_id", "state"])


@transactions.command()
@watchable
@click.argument("transactional_ids", nargs=-1, required=True)
@cluster_options
def describe(transactional_ids: tuple[str, ...], **options: Any) -> None:
    """State, producer, time-out, start and partitions of TRANSACTIONAL_IDS."""
    names = [_named(name) for name in transactional_ids]
    brokers = _open(options)

    from kvorum.cli.records.times import time_text
    from kvorum.client.groups.transactions import describe_transaction

    rows = [describe_transaction(brokers, name) for name in names]
    for row in rows:
        row["start"] = time_text(row["start_ms"])
    columns = [
        "transactional_id", "coordinator", "state", "producer_id", "producer_epoch", "timeout_ms",
        "start", "partitions",
    ]  # fmt: skip
    show(options["output"], rows, columns)


@transactions.command()
@watchable
@click.argument("topic", shell_complete=topic_names)
@click.option(
    "-p", "--partition", "partitions", multiple=True, type=click.IntRange(0, INT32_MAX),
    help="Only this partition. Repeatable.",
)  # fmt: skip
@cluster_options
def producers(topic: str, partitions: tuple[int, ...], **options: Any) -> None:
    """The producers that the leaders of TOPIC remember, and where their transactions begin."""
    brokers = _open(options)

    from kvorum.cli.records.times import time_text
    from kvorum.client.groups.transactions import describe_producers, partitions_of

    found = describe_producers(brokers, partitions_of(brokers, topic, partitions))
    rows = [
        {
            "topic": name,
            "partition": number,
            "producer_id": row.producer_id,
            "producer_epoch": row.producer_epoch,
            "last_sequence": row.last_sequence,
            "last_timestamp": time_text(row.last_timestamp),
            "coordinator_epoch": row.coordinator_epoch if row.coordinator_epoch >= 0 else None,
            "start_offset": (
                row.current_txn_start_offset if row.current_txn_start_offset >= 0 else None
            ),
        }
        for (name, number), producers in sorted(found.items())
        for row in sorted(producers, key=lambda row: int(row.producer_id))
    ]
    columns = [
        "topic", "partition", "producer_id", "producer_epoch", "last_sequence", "last_timestamp",
        "coordinator_epoch", "start_offset",
    ]  # fmt: skip
    show(options["output"], rows, columns)


@transactions.command()
@click.argument("transactional_id", required=False)
@click.option("--topic", help="Of a transaction that hangs.", shell_complete=topic_names)
@click.option("-p", "--partition", type=click.IntRange(0, INT32_MAX), help="Its partition.")
@click.option("--start-offset", type=click.IntRange(0, INT64_MAX), help="Its first offset there.")
@cluster_options
def abort(
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    **options: Any,
) -> None:
    """Abort the open transaction of TRANSACTIONAL_ID; its producer is fenced.

    A transaction that hangs has no coordinator that could abort it: --topic, --partition and
    --start-offset, as find-hanging shows them, have the marker written by the partition's leader.
    """
    place = (topic, partition, start_offset)
    if (transactional_id is None) == all(part is None for part in place):
        raise click.UsageError("give TRANSACTIONAL_ID, or --topic, --partition and --start-offset")
    if transactional_id is not None:
        name = _named(transactional_id)
        row = _abort_held(_open(options), name)
    elif topic is None or partition is None or start_offset is None:
        raise click.UsageError("--topic, --partition and --start-offset go together")
    else:
        row = _abort_hanging(_open(options), topic, partition, start_offset)
    show(options["output"], {**row, "aborted": True})


def _abort_held(brokers: Brokers, transactional_id: str) -> dict[str, Any]:
    from kvorum.client.groups.transactions import ONGOING, describe_transaction, fence

    found = describe_transaction(brokers, transactional_id)
    if found["state"] != ONGOING:
        raise CommandFailed(
            f"transactional id {transactional_id} has no open transaction: its state is "
            f"{found['state']}"
        )
    producer_id, epoch = fence(brokers, transactional_id, found["timeout_ms"])
    return {
        "transactional_id": transactional_id,
        "partitions": found["partitions"],
        "producer_id": producer_id,
        "producer_epoch": epoch,
    }


def _abort_hanging(brokers: Brokers, topic: str, number: int, start_offset: int) -> dict[str, Any]:
    from kvorum.client.groups.transactions import open_transactions, partitions_of, write_abort

    found = open_transactions(brokers, partitions_of(brokers, topic, [number]))
    for candidate in found:
        if candidate.start_offset == start_offset:
            write_abort(brokers, candidate)
            return {
                "topic": topic,
                "partition": number,
                "start_offset": start_offset,
                "producer_id": candidate.producer_id,
                "producer_epoch": candidate.producer_epoch,
            }
    known = ", ".join(str(candidate.start_offset) for candidate in found) or "none"
    raise CommandFailed(
        f"{topic}-{number}: no open transaction begins at offset {start_offset}; open ones begin "
        f"at: {known}"
    )


@transactions.command("find-hanging")
@watchable
@click.option("--topic", help="Only this topic.", shell_complete=topic_names)
@click.option("-p", "--partition", type=click.IntRange(0, INT32_MAX), help="Only this partition.")
@click.option("--broker-id", type=click.IntRange(0, INT32_MAX), help="Only what this broker leads.")
@click.option(
    "--max-transaction-timeout", "age", default=_TIMEOUT_MAX, show_default=True,
    metavar="DURATION", help="Younger transactions are not looked at.",
)  # fmt: skip
@cluster_options
def find_hanging(
    topic: str | None, partition: int | None, broker_id: int | None, age: str, **options: Any
) -> None:
    """Open transactions that no coordinator will end, so that read_committed consumers wait."""
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    timeout_ms = _duration("--max-transaction-timeout", age)
    brokers = _open(options)

    from kvorum.cli.records.times import time_text
    from kvorum.client.groups.transactions import (
        describe_transaction,
        hanging,
        list_transactions,
        open_transactions,
        partitions_of,
    )

    numbers = [] if partition is None else [partition]
    now_ms = time.time_ns() // 1_000_000
    old = [
        found
        for found in open_transactions(brokers, partitions_of(brokers, topic, numbers, broker_id))
        if now_ms - found.last_ms >= timeout_ms
    ]
    held = []
    if old:
        ids = sorted({found.producer_id for found in old})
        for row in list_transactions(brokers, states=[], producer_ids=ids):
            held.append(describe_transaction(brokers, row["transactional_id"]))
    rows = [
        {
            "topic": found.partition[0],
            "partition": found.partition[1],
            "producer_id": found.producer_id,
            "producer_epoch": found.producer_epoch,
            "coordinator_epoch": found.coordinator_epoch if found.coordinator_epoch >= 0 else None,
            "start_offset": found.start_offset,
            "last_timestamp": time_text(found.last_ms),
            "age_ms": now_ms - found.last_ms,
        }
        for found in hanging(old, held)
    ]
    show(options["output"], rows, _OPEN)
    if rows and not is_structured(options["output"]):
        click.echo(
            "abort each with kvorum transactions abort --topic TOPIC --partition N "
            "--start-offset OFFSET",
            err=True,
        )


def _named(transactional_id: str) -> str:
    if not transactional_id:
        raise click.UsageError("the transactional id is empty")
    return transactional_id


def _duration(option: str, text: str) -> int:
    from kvorum.cli.records.times import duration_ms

    try:
        return duration_ms(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from error


def _open(options: dict[str, Any]) -> Brokers:
    from kvorum.client.cluster.brokers import Brokers

    addresses = broker_addresses(options, "controllers know nothing of transactions")
    brokers = Brokers(addresses, options["timeout"])
    click.get_current_context().call_on_close(brokers.close)
    return brokers
