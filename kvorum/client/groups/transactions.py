"""Requests about transactions: to their coordinators, and to the leaders of their partitions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kvorum.client.cluster.brokers import (
    RETRY_PAUSE_S,
    Brokers,
    LeaderRequest,
    Partition,
    ask_leaders,
    by_topic,
)
from kvorum.client.failures import CommandFailed, Row, check, refusal
from kvorum.client.groups.coordinator import TRANSACTION, Coordinator, ask_loaded
from kvorum.client.rights import Right, on_cluster, on_topic
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.primitives import Reader

ONGOING = "Ongoing"
_PREPARED = ("PrepareCommit", "PrepareAbort")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A producer's open transaction in one partition, as its leader knows it.

    coordinator_epoch: -1 if the producer has never ended one here. last_ms: the timestamp of its
    last record.
    """

    partition: Partition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_ms: int


def list_transactions(
    brokers: Brokers, *, states: list[str], producer_ids: list[int], running_ms_min: int = -1
) -> list[Row]:
    """transactional_id, state, producer_id, coordinator of every transactional id. Raises
    CommandFailed if a broker does not answer."""
    values = {
        "state_filters": states,
        "producer_id_filters": producer_ids,
        "duration_filter": running_ms_min,
    }
    brokers.topics([])
    rows: list[Row] = []
    for broker_id in brokers.ids():
        reply = ask_loaded(brokers, broker_id, ("list_transactions", 66, 1), values)
        check(reply.error_code, None, f"transactions of broker {broker_id}")
        rows += [
            {
                "transactional_id": row.transactional_id,
                "state": row.transaction_state,
                "producer_id": row.producer_id,
                "coordinator": broker_id,
            }
            for row in reply.transaction_states
        ]
    return sorted(rows, key=lambda row: str(row["transactional_id"]))


def describe_transaction(brokers: Brokers, transactional_id: str) -> Row:
    """transactional_id, coordinator, state, timeout_ms, start_ms (-1 for none), producer_id,
    producer_epoch, partitions. Raises CommandFailed."""
    coordinator = Coordinator(brokers, TRANSACTION, transactional_id)
    values = {"transactional_ids": [transactional_id]}
    error, row = coordinator.call(
        "describe_transactions", 65, 0, values, error_of=lambda answer: answer[0], read=_described
    )
    reason = None
    if error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        reason = "there is no such id; kvorum transactions list shows those that exist"
    subject = f"transactional id {transactional_id}"
    check(error, reason, subject, Right("DESCRIBE", "transactional-id", transactional_id))
    return {"transactional_id": transactional_id, "coordinator": coordinator.broker_id, **row}


def _described(answer: bytes) -> tuple[int, Row]:
    """(error, values) of a DescribeTransactions answer about one id. Not decoded by kio, which
    refuses the start time -1 of a transactional id without an open transaction."""
    reader = Reader(answer, 0, len(answer))
    reader.skip_tags()
    reader.int32()  # throttle time
    if reader.array_count(True) != 1:
        raise CommandFailed("the coordinator's answer is not about one transactional id")
    error = reader.int16()
    reader.string(True)  # the id
    row: Row = {
        "state": reader.string(True),
        "timeout_ms": reader.int32(),
        "start_ms": max(reader.int64(), -1),
        "producer_id": reader.int64(),
        "producer_epoch": reader.int16(),
    }
    partitions = []
    for _ in range(reader.array_count(True)):
        topic = reader.string(True)
        partitions += [f"{topic}-{reader.int32()}" for _ in range(reader.array_count(True))]
        reader.skip_tags()
    return error, {**row, "partitions": partitions}


def fence(brokers: Brokers, transactional_id: str, timeout_ms: int) -> tuple[int, int]:
    """Take over a transactional id: its open transaction is aborted, and its producer can write no
    more. Returns the new producer id and epoch.

    timeout_ms: of the id's transactions. Raises CommandFailed.
    """
    coordinator = Coordinator(brokers, TRANSACTION, transactional_id)
    values = {
        "transactional_id": transactional_id,
        "transaction_timeout": timeout_ms,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    deadline_s = time.monotonic() + brokers.timeout_s
    while True:
        reply = coordinator.call(
            "init_producer_id", 22, 4, values, error_of=lambda reply: int(reply.error_code)
        )
        # The markers of the abort are still being written.
        is_busy = reply.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        if not is_busy or time.monotonic() > deadline_s:
            break
        time.sleep(RETRY_PAUSE_S)
    subject = f"transactional id {transactional_id}"
    check(reply.error_code, None, subject, Right("WRITE", "transactional-id", transactional_id))
    return reply.producer_id, reply.producer_epoch


def describe_producers(brokers: Brokers, partitions: list[Partition]) -> dict[Partition, list[Any]]:
    """The active producers of each partition, as kio's rows. Raises CommandFailed."""

    def values(wanted: list[Partition]) -> dict[str, Any]:
        topics = by_topic(wanted).items()
        return {"topics": [{"name": topic, "partition_indexes": ids} for topic, ids in topics]}

    request = LeaderRequest(
        name="describe_producers",
        key=61,
        version=0,
        values=values,
        rows=lambda reply: [
            ((topic.name, row.partition_index), row.error_code, row)
            for topic in reply.topics
            for row in topic.partitions
        ],
    )
    found = ask_leaders(brokers, partitions, request)
    for (topic, number), row in found.items():
        if row.error_code != ErrorCode.NONE:
            right = on_topic("READ", topic)
            raise refusal(row.error_code, row.error_message, f"{topic}-{number}", right)
    return {partition: list(row.active_producers) for partition, row in found.items()}


def open_transactions(brokers: Brokers, partitions: list[Partition]) -> list[OpenTransaction]:
    """Every open transaction of the partitions. Raises CommandFailed."""
    return [
        OpenTransaction(
            partition=partition,
            producer_id=row.producer_id,
            producer_epoch=row.producer_epoch,
            coordinator_epoch=row.coordinator_epoch,
            start_offset=row.current_txn_start_offset,
            last_ms=row.last_timestamp,
        )
        for partition, rows in sorted(describe_producers(brokers, partitions).items())
        for row in rows
        if row.current_txn_start_offset >= 0
    ]


def hanging(candidates: Iterable[OpenTransaction], held: Iterable[Row]) -> list[OpenTransaction]:
    """The open transactions that no coordinator will end: either none has the producer id, or its
    transaction is not open, is of another epoch, or does not have the partition.

    held: what coordinators say of these producers (`describe_transaction`).
    """
    known = list(held)
    return [found for found in candidates if not any(_will_end(row, found) for row in known)]


def _will_end(row: Row, found: OpenTransaction) -> bool:
    """True if the coordinator that said this ends the transaction in its partition.

    A coordinator raises the epoch as it decides (KIP-890, and its own aborts), and the partition
    keeps the old one until the marker comes. Bad sequence with equal epochs alone: 1. The commit is
    decided. 2. The partition's leader is away, and its marker waits. 3. The leader returns, its
    transaction is reported as hanging, and an operator aborts committed records.
    """
    name = f"{found.partition[0]}-{found.partition[1]}"
    if row["producer_id"] != found.producer_id or name not in row["partitions"]:
        return False
    if row["state"] == ONGOING:
        return bool(row["producer_epoch"] == found.producer_epoch)
    return row["state"] in _PREPARED and row["producer_epoch"] >= found.producer_epoch


def write_abort(brokers: Brokers, found: OpenTransaction) -> None:
    """Write an abort marker for a transaction in its partition, without its coordinator. Raises
    CommandFailed."""
    topic, number = found.partition
    marker = {
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "transaction_result": False,
        "topics": [{"name": topic, "partition_indexes": [number]}],
        # Kafka's tool writes 0 for a producer that has never ended a transaction.
        "coordinator_epoch": max(found.coordinator_epoch, 0),
    }
    request = LeaderRequest(
        name="write_txn_markers",
        key=27,
        version=1,
        values=lambda _: {"markers": [marker]},
        rows=lambda reply: [
            ((row.name, p.partition_index), p.error_code, p)
            for answered in reply.markers
            for row in answered.topics
            for p in row.partitions
        ],
    )
    row = ask_leaders(brokers, [found.partition], request)[found.partition]
    subject = f"transaction at {topic}-{number} offset {found.start_offset}"
    check(row.error_code, None, subject, on_cluster("ALTER"))


def partitions_of(
    brokers: Brokers, topic: str | None, numbers: Iterable[int], broker_id: int | None = None
) -> list[Partition]:
    """The partitions of a topic (None: of all topics) with these numbers (empty: all), that the
    broker leads. Those without a leader are left out if no topic is named. Raises CommandFailed."""
    topics = brokers.topics(None) if topic is None else brokers.existing([topic])
    wanted = set(numbers)
    chosen = [
        (name, number)
        for name, found in sorted(topics.items())
        for number, leader in sorted(found.leaders.items())
        if (not wanted or number in wanted)
        and (broker_id is None or leader == broker_id)
        and (topic is not None or leader >= 0)
    ]
    missing = wanted - {number for _, number in chosen}
    if topic is not None and broker_id is None and missing:
        raise CommandFailed(
            f"{topic}-{min(missing)}: there is no such partition; {topic} has "
            f"{len(topics[topic].leaders)}"
        )
    return chosen
