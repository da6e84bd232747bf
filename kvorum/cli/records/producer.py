"""Sends records to the partitions of one topic, in order, with retries.

One round is in flight at a time: a request to each leader. The next round is read and packed
meanwhile. So the records of a partition keep their order through every retry, and an idempotent
producer needs no window of sequences.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from random import Random
from typing import Any

from kvorum.cli.common import EXIT_FAILED, CommandFailed, check, exit_code_of
from kvorum.cli.kafka_client import BrokerGone
from kvorum.cli.records.brokers import MOVED, RETRY_PAUSE_S, Brokers
from kvorum.cli.records.outgoing import NewRecord, OutgoingBatch, ProducerIdentity
from kvorum.cli.records.partitioning import Partitioner
from kvorum.cli.records.text_input import BadRecord
from kvorum.cli.rights import is_missing_right, on_topic, way_out
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import SEQUENCE_MODULUS
from kvorum.storage.format.compression import Codec

ROUND_BYTES_MAX = 2 << 20
ROUND_RECORDS_MAX = 10_000
BATCH_BYTES_MAX = 512 << 10
"""Below the default max.message.bytes of 1 MiB; a batch that a topic's own limit refuses is
halved."""

_RETRIED = MOVED | {
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
ACKS_ALL, ACKS_NONE = -1, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How records are sent. acks: -1 (all in-sync replicas), 1 or 0.

    delivery_timeout_s: from the reading of a record to the end of its retries.
    """

    acks: int = ACKS_ALL
    codec: Codec = Codec.NONE
    is_idempotent: bool = True
    delivery_timeout_s: float = 120.0


@dataclass(slots=True)
class Delivered:
    """The records that a partition has received. Offsets are None with acks 0, which has no
    answers."""

    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None


@dataclass(slots=True)
class _Request:
    broker_id: int
    batches: list[OutgoingBatch]


class StoppedEarly(Exception):
    """The time that `Producer.stop_at` gave is over, and records are not acknowledged."""


class Producer:
    """Sends records to one topic. Every method raises CommandFailed for a record that cannot be
    delivered."""

    def __init__(self, brokers: Brokers, topic: str, settings: ProducerSettings) -> None:
        self.delivered: dict[int, Delivered] = {}
        self._brokers = brokers
        self._topic = topic
        self._settings = settings
        self._leaders = dict(brokers.existing([topic], operation="WRITE")[topic].leaders)
        self._partitioner = Partitioner(self._leaders, Random())
        self._pending: dict[int, list[NewRecord]] = {}
        self._pending_bytes: dict[int, int] = {}
        self._room_bytes = ROUND_BYTES_MAX
        self._room_records = ROUND_RECORDS_MAX
        self._waiting: list[OutgoingBatch] = []
        self._in_flight: list[_Request] = []
        self._stop_s = math.inf
        self._has_trouble = False
        self._reasons: dict[int, str] = {}
        self._sequences: dict[int, int] = {}
        self._identity = ProducerIdentity()
        if settings.is_idempotent:
            self._identity = self._identify()

    @property
    def records(self) -> int:
        """Records that are acknowledged; with acks 0, sent."""
        return sum(row.records for row in self.delivered.values())

    @property
    def unacknowledged(self) -> int:
        """Records that were added and are not acknowledged; some may be stored all the same."""
        batches = [*self._waiting, *(b for request in self._in_flight for b in request.batches)]
        of_batches = sum(len(batch.records) for batch in batches)
        return of_batches + sum(len(records) for records in self._pending.values())

    def stop_at(self, stop_s: float) -> None:
        """After this monotonic time, methods that wait raise StoppedEarly in place of a retry."""
        self._stop_s = stop_s

    def add(self, record: NewRecord) -> None:
        """Add a record to the next round. If that round is full, `send` it first. Raises BadRecord,
        before anything is changed, for a partition that is not there."""
        size_bytes = record.size_bytes
        partition = record.partition
        if partition is None:
            partition = self._partitioner.partition(record.key, size_bytes)
        elif partition not in self._leaders:
            raise BadRecord(
                f"{self._topic}-{partition}: there is no such partition; {self._topic} has "
                f"{len(self._leaders)}"
            )
        of_partition = self._pending_bytes.get(partition, 0) + size_bytes
        # A second batch of a partition would wait for the answer to the first.
        is_full = of_partition > BATCH_BYTES_MAX or self._room_bytes < size_bytes
        if self._pending and (is_full or not self._room_records):
            self.send()
            of_partition = size_bytes
        self._pending.setdefault(partition, []).append(record)
        self._pending_bytes[partition] = of_partition
        self._room_bytes -= size_bytes
        self._room_records -= 1

    def send(self) -> None:
        """Wait for the round in flight, then send the next one."""
        self.settle()
        self._waiting = self._next_round()
        self._post()

    def finish(self) -> None:
        """Send what is left, and wait for the last answer."""
        self.send()
        self.settle()

    def settle(self) -> None:
        """Wait until every record that was sent is acknowledged."""
        while self._in_flight or self._waiting:
            failed: list[OutgoingBatch] = []
            while self._in_flight:
                failed += self._collect(self._in_flight[0])
                del self._in_flight[0]
            # The failed batches go first, before later batches of their partitions.
            self._waiting = failed + self._waiting
            if self._waiting and time.monotonic() > self._stop_s:
                raise StoppedEarly
            if self._has_trouble:
                self._check_deadlines()
                time.sleep(RETRY_PAUSE_S)
                self._look_up_leaders()
                self._has_trouble = False
            self._post()

    def _check_deadlines(self) -> None:
        late = min(self._waiting, key=lambda batch: batch.deadline_s)
        if time.monotonic() > late.deadline_s:
            raise self._failure(
                late.partition,
                f"not acknowledged within {self._settings.delivery_timeout_s:g} s: "
                f"{self._reasons.get(late.partition, 'the partition has no leader')}",
            )

    # --- one round ---------------------------------------------------------------------------

    def _next_round(self) -> list[OutgoingBatch]:
        now_ms = time.time_ns() // 1_000_000
        deadline_s = time.monotonic() + self._settings.delivery_timeout_s
        batches = [
            OutgoingBatch(
                partition=partition,
                records=records,
                timestamp_ms=now_ms,
                base_sequence=self._take_sequences(partition, len(records)),
                deadline_s=deadline_s,
            )
            for partition, records in self._pending.items()
        ]
        self._pending, self._pending_bytes = {}, {}
        self._room_bytes, self._room_records = ROUND_BYTES_MAX, ROUND_RECORDS_MAX
        return batches

    def _take_sequences(self, partition: int, count: int) -> int:
        if not self._settings.is_idempotent:
            return -1
        first = self._sequences.get(partition, 0)
        self._sequences[partition] = (first + count) % SEQUENCE_MODULUS
        return first

    def _post(self) -> None:
        """Send the waiting batches, one of each partition in a request (KIP-98); the others, and
        those that cannot be sent now, stay."""
        by_leader: dict[int, dict[int, OutgoingBatch]] = {}
        left = []
        for batch in self._waiting:
            leader = self._leaders.get(batch.partition, -1)
            of_leader = by_leader.setdefault(leader, {})
            if leader < 0:
                # An earlier reason came from a leader that is gone.
                self._reasons.pop(batch.partition, None)
                self._has_trouble = True
                left.append(batch)
            elif batch.partition in of_leader:
                left.append(batch)
            else:
                of_leader[batch.partition] = batch
        for leader, wanted in by_leader.items():
            if not wanted:
                continue
            batches = list(wanted.values())
            try:
                self._send(leader, batches)
            except BrokerGone as error:
                self._brokers.forget(leader, is_posting=True)
                self._note(batches, str(error))
                left = batches + left
            else:
                if self._settings.acks == ACKS_NONE:
                    for batch in batches:
                        self._count(batch, -1)
                else:
                    self._in_flight.append(_Request(leader, batches))
        self._waiting = left

    def _note(self, batches: list[OutgoingBatch], reason: str) -> None:
        self._has_trouble = True
        self._reasons.update({batch.partition: reason for batch in batches})

    def _send(self, leader: int, batches: list[OutgoingBatch]) -> None:
        rows = [
            {
                "index": batch.partition,
                "records": batch.encode(self._identity, self._settings.codec),
            }
            for batch in batches
        ]
        values = {
            "transactional_id": None,
            "acks": self._settings.acks,
            "timeout": int(self._brokers.timeout_s * 1000),
            "topic_data": [{"name": self._topic, "partition_data": rows}],
        }
        self._brokers.to(leader, is_posting=True).post("produce", 0, 9, values, flexible=True)

    def _collect(self, request: _Request) -> list[OutgoingBatch]:
        """The batches of a request that must be sent again."""
        try:
            reply = self._brokers.to(request.broker_id, is_posting=True).collect("produce", 9)
        except BrokerGone as error:
            self._brokers.forget(request.broker_id, is_posting=True)
            self._note(request.batches, str(error))
            return request.batches
        rows = {row.index: row for topic in reply.responses for row in topic.partition_responses}
        again: list[OutgoingBatch] = []
        for batch in request.batches:
            row = rows[batch.partition]
            code = ErrorCode(row.error_code)
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._count(batch, row.base_offset)
            elif code in _TOO_LARGE and len(batch.records) > 1:
                again += batch.halves()
            elif code in _RETRIED:
                self._note([batch], row.error_message or code.name)
                again.append(batch)
            else:
                reason = row.error_message or self._advice(code, batch)
                text = f"{code.name}: {reason}"
                raise self._failure(batch.partition, text, exit_code_of(code.name))
        return again

    def _count(self, batch: OutgoingBatch, base_offset: int) -> None:
        row = self.delivered.setdefault(batch.partition, Delivered())
        row.records += len(batch.records)
        # A batch that the leader had already has no offset in a leader's answer.
        if base_offset >= 0:
            if row.first_offset is None:
                row.first_offset = base_offset
            row.last_offset = base_offset + len(batch.records) - 1

    def _look_up_leaders(self) -> None:
        try:
            found = self._brokers.topics([self._topic]).get(self._topic)
        except BrokerGone:
            return  # the retries' deadline is the limit
        if found is not None:
            self._leaders = dict(found.leaders)
            self._partitioner.update(self._leaders)

    def _failure(self, partition: int, reason: str, exit_code: int = EXIT_FAILED) -> CommandFailed:
        return CommandFailed(
            f"{self._topic}-{partition}: {reason}; {self.records} records were acknowledged",
            exit_code,
        )

    def _identify(self) -> ProducerIdentity:
        values = {
            "transactional_id": None,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        deadline_s = time.monotonic() + self._brokers.timeout_s
        while True:
            reply: Any = self._brokers.call("init_producer_id", 22, 4, values)
            if reply.error_code not in _RETRIED or time.monotonic() > deadline_s:
                break
            time.sleep(RETRY_PAUSE_S)
        if reply.error_code in _RETRIED:
            # A broker gets producer ids from the controllers. Its description of the quorum says
            # better why it got none.
            metadata = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
            told = self._brokers.call("describe_quorum", 55, 2, {"topics": [metadata]})
            check(told.error_code, told.error_message, "no quorum")
        # KIP-679: without transactions, any right to write is enough for a producer id.
        subject = f"producer of {self._topic}"
        check(reply.error_code, None, subject, on_topic("WRITE", self._topic))
        return ProducerIdentity(producer_id=reply.producer_id, producer_epoch=reply.producer_epoch)

    def _advice(self, error: ErrorCode, batch: OutgoingBatch) -> str:
        if error in _TOO_LARGE:
            size_bytes = batch.records[0].size_bytes
            return f"a record of about {size_bytes} bytes is above the topic's max.message.bytes"
        if is_missing_right(error.name):
            return way_out(error.name, on_topic("WRITE", self._topic))
        return "the broker gives no reason"
