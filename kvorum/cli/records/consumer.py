"""Fetches partitions from their leaders, one request at each leader at a time.

The next fetch is sent before the records of an answer are handed out, so that the broker reads
while they are printed.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvorum.cli.common import CommandFailed, refusal, warn
from kvorum.cli.kafka_client import ANSWER_SLACK_S, BrokerGone, KafkaConnection
from kvorum.cli.records.brokers import MOVED, RETRY_PAUSE_S, Brokers, Partition, by_topic
from kvorum.cli.records.offsets import EARLIEST, READ_COMMITTED, list_offsets
from kvorum.cli.records.visible import DamagedBatch, Range, end_position, visible_records
from kvorum.cli.rights import on_topic
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import BatchError, Record

FETCH_BYTES_MAX = 8 << 20
PARTITION_BYTES_MAX = 1 << 20
MAX_WAIT_MS = 500
OUTAGE_S = 60.0
"""A partition without an answer for so long ends the command; a topic that is gone has no other
sign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Records of one answer for a partition. next_offset: where the next fetch begins."""

    partition: Partition
    records: Iterator[Record]
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """Why a partition has no answer, and since when."""

    reason: str
    since_s: float


@dataclass(slots=True)
class _Fetch:
    connection: KafkaConnection
    asked: dict[Partition, int]
    until_s: float


class Consumer:
    """Reads the partitions that it is given, each from a position to its end or for ever."""

    def __init__(self, brokers: Brokers, *, isolation: int) -> None:
        self._brokers = brokers
        self._isolation = isolation
        self._positions: dict[Partition, int] = {}
        self._ends: dict[Partition, int | None] = {}
        self._leaders: dict[Partition, int] = {}
        self._fetches: dict[int, _Fetch] = {}
        self._problems: dict[Partition, _Problem] = {}
        self._is_stale = True

    @property
    def partitions(self) -> set[Partition]:
        """The partitions that are not yet read up to their ends."""
        return set(self._positions)

    def assign(self, ranges: Mapping[Partition, Range]) -> None:
        """Read these partitions too. One that is at its end already is left out."""
        for partition, wanted in ranges.items():
            if wanted.end is not None and wanted.first >= wanted.end:
                continue
            self._positions[partition] = wanted.first
            self._ends[partition] = wanted.end
        self._is_stale = True

    def revoke(self, partitions: set[Partition]) -> None:
        """Read these no longer; answers under way are dropped."""
        for partition in partitions:
            self._positions.pop(partition, None)
            # Otherwise the outage of a later assignment would also count the time in which another
            # member had the partition.
            self._problems.pop(partition, None)

    def poll(self, wait_s: float) -> Iterator[Fetched]:
        """Answers that are there, or that come within the time. Raises CommandFailed."""
        self._check_outages()
        if self._is_stale:
            self._look_up_leaders()
        self._post()
        ready = self._ready(wait_s)
        if not ready and self._is_stale:
            # Without a leader there is nothing to wait for.
            time.sleep(min(RETRY_PAUSE_S, wait_s))
        for broker_id in ready:
            yield from self._collect(broker_id)

    # --- requests ----------------------------------------------------------------------------

    def _look_up_leaders(self) -> None:
        names = sorted({topic for topic, _ in self._positions})
        try:
            topics = self._brokers.topics(names) if names else {}
        except BrokerGone as error:
            self._note(self._positions, str(error))
            time.sleep(RETRY_PAUSE_S)
            return
        self._is_stale = False
        for topic, number in self._positions:
            found = topics.get(topic)
            leader = -1 if found is None else found.leaders.get(number, -1)
            self._leaders[topic, number] = leader
            if leader < 0:
                self._is_stale = True
                self._note(
                    [(topic, number)],
                    f"topic {topic} is gone" if found is None else "the partition has no leader",
                )

    def _post(self) -> None:
        asked: dict[int, dict[Partition, int]] = {}
        for partition, position in self._positions.items():
            leader = self._leaders.get(partition, -1)
            if leader >= 0 and leader not in self._fetches:
                asked.setdefault(leader, {})[partition] = position
        for leader, positions in asked.items():
            try:
                connection = self._brokers.to(leader, is_posting=True)
                values = _request(positions, self._isolation)
                connection.post("fetch", 1, 12, values, flexible=True)
            except BrokerGone as error:
                self._lose(leader, positions, error)
            else:
                until_s = time.monotonic() + self._brokers.timeout_s + ANSWER_SLACK_S
                self._fetches[leader] = _Fetch(connection, positions, until_s)

    def _ready(self, wait_s: float) -> list[int]:
        """Brokers whose answers have come."""
        sockets = {fetch.connection.fileno(): at for at, fetch in self._fetches.items()}
        if not sockets:
            return []
        ready = [sockets[number] for number in select.select(list(sockets), [], [], wait_s)[0]]
        for broker_id, fetch in list(self._fetches.items()):
            if broker_id not in ready and time.monotonic() > fetch.until_s:
                del self._fetches[broker_id]
                gone = BrokerGone(f"broker {broker_id} does not answer")
                self._lose(broker_id, fetch.asked, gone)
        return ready

    def _lose(self, broker_id: int, asked: Mapping[Partition, int], error: BrokerGone) -> None:
        self._brokers.forget(broker_id, is_posting=True)
        self._is_stale = True
        self._note(asked, str(error))

    def _note(self, partitions: Iterable[Partition], reason: str) -> None:
        now_s = time.monotonic()
        for partition in partitions:
            before = self._problems.get(partition)
            since_s = now_s if before is None else before.since_s
            self._problems[partition] = _Problem(reason=reason, since_s=since_s)

    # --- answers -----------------------------------------------------------------------------

    def _collect(self, broker_id: int) -> Iterator[Fetched]:
        fetch = self._fetches.pop(broker_id)
        try:
            reply = fetch.connection.collect("fetch", 12)
        except BrokerGone as error:
            self._lose(broker_id, fetch.asked, error)
            return
        answers: list[tuple[Partition, Any, Range, int]] = []
        for topic in reply.responses:
            for row in topic.partitions:
                partition = (topic.topic, row.partition_index)
                asked = fetch.asked.get(partition)
                if asked is None or self._positions.get(partition) != asked:
                    continue  # the partition was revoked meanwhile
                if self._is_good(partition, row) and row.records:
                    wanted = Range(first=asked, end=self._ends[partition])
                    answers.append((partition, row, wanted, self._advance(partition, row)))
        self._post()
        for partition, row, wanted, next_offset in answers:
            yield Fetched(
                partition=partition,
                records=self._records(partition, row, wanted),
                next_offset=next_offset,
            )

    def _advance(self, partition: Partition, row: Any) -> int:
        """The partition's next position; at its end the partition is done."""
        position = end_position(row.records, self._positions[partition])
        end = self._ends[partition]
        if end is not None and position >= end:
            del self._positions[partition]
            return end
        self._positions[partition] = position
        return position

    def _is_good(self, partition: Partition, row: Any) -> bool:
        """True if the row has records to read. An error of the row is handled here."""
        error = ErrorCode(row.error_code)
        if error in MOVED:
            self._is_stale = True
            self._note([partition], error.name)
            return False
        self._problems.pop(partition, None)
        if error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._restart(partition)
            return False
        if error != ErrorCode.NONE:
            topic, number = partition
            raise refusal(error, None, f"{topic}-{number}", on_topic("READ", topic))
        return True

    def _restart(self, partition: Partition) -> None:
        """Go on at the log start, which has passed the position (retention, or DeleteRecords)."""
        topic, number = partition
        position = self._positions[partition]
        start = list_offsets(self._brokers, {partition: EARLIEST})[partition]
        if start <= position:
            raise CommandFailed(
                f"{topic}-{number}: offset {position} is beyond the end of the partition"
            )
        warn(f"{topic}-{number}: the records up to offset {start} were deleted; going on there")
        end = self._ends[partition]
        if end is not None and start >= end:
            del self._positions[partition]
        else:
            self._positions[partition] = start

    def _records(self, partition: Partition, row: Any, wanted: Range) -> Iterator[Record]:
        aborted = None
        if self._isolation == READ_COMMITTED:
            aborted = [(a.producer_id, a.first_offset) for a in row.aborted_transactions or ()]
        try:
            yield from visible_records(row.records, wanted, aborted)
        except (DamagedBatch, BatchError) as error:
            raise CommandFailed(f"{partition[0]}-{partition[1]}: {error}") from error

    def _check_outages(self) -> None:
        now_s = time.monotonic()
        for topic, number in self._positions:
            problem = self._problems.get((topic, number))
            if problem is not None and now_s - problem.since_s > OUTAGE_S:
                raise CommandFailed(
                    f"{topic}-{number}: no answer for {OUTAGE_S:g} s: {problem.reason}"
                )


def _request(positions: Mapping[Partition, int], isolation: int) -> dict[str, Any]:
    return {
        "max_wait": MAX_WAIT_MS,
        "min_bytes": 1,
        "max_bytes": FETCH_BYTES_MAX,
        "isolation_level": isolation,
        "topics": [
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": number,
                        "fetch_offset": positions[topic, number],
                        "partition_max_bytes": PARTITION_BYTES_MAX,
                    }
                    for number in numbers
                ],
            }
            for topic, numbers in by_topic(list(positions)).items()
        ],
        "forgotten_topics_data": [],
    }
