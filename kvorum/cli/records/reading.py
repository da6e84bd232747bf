"""The records that `kvorum consume` prints, fetched by librdkafka from chosen partitions.

Where to begin and to end is asked by Kvorum's own requests: librdkafka has no such ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer as LibraryConsumer
from confluent_kafka import KafkaError, TopicPartition

from kvorum.cli.records.outages import Outages
from kvorum.cli.records.text_output import Record
from kvorum.client.cluster.brokers import MOVED, Brokers, Partition
from kvorum.client.cluster.offsets import EARLIEST, Position, bounds_of, list_offsets, resolve
from kvorum.client.failures import CommandFailed, refusal, warn
from kvorum.client.groups.coordinator import MOVING
from kvorum.client.rights import on_topic
from kvorum.runtime.errors import ErrorCode

POLL_S = 0.2
"""One wait in librdkafka, which no signal interrupts."""
RECORDS_MAX = 10_000
"""Records that are taken from librdkafka at once."""
ISOLATIONS = ("read_uncommitted", "read_committed")
_TRANSIENT = MOVED | MOVING | {
    KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD, KafkaError._RESOLVE,
}  # fmt: skip
"""Errors after which librdkafka goes on by itself; `Outages` sets the limit."""
_OF_GROUPS = frozenset(
    (
        ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNSUPPORTED_VERSION, KafkaError._FATAL,
    )
)  # fmt: skip
_DONE = 0
"""The end of a partition that is read no more: no offset is below it."""


def is_transient(error: KafkaError) -> bool:
    """True for an error of brokers or leaders that are away for now."""
    return error.retriable() or error.code() in _TRANSIENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The records to read.

    partitions: empty for all.
    end: None for the end that the partitions have now.
    is_endless: wait for new records.
    isolation: an index of ISOLATIONS.
    """

    topics: tuple[str, ...]
    partitions: frozenset[int]
    first: Position
    end: Position | None
    is_endless: bool
    isolation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Offsets of one partition that are wanted: from `first` on, below `end` (None: no limit)."""

    first: int
    end: int | None = None


def ranges_of(
    brokers: Brokers, wanted: Wanted, partitions: list[Partition]
) -> dict[Partition, Range]:
    """The offsets to read. Raises CommandFailed for an offset beyond a partition's end."""
    bounds = bounds_of(brokers, partitions, isolation=wanted.isolation)
    firsts = resolve(brokers, wanted.first, bounds)
    ends: dict[Partition, int | None] = dict.fromkeys(partitions)
    if not wanted.is_endless:
        ends = {p: of_log.end for p, of_log in bounds.items()}
        if wanted.end is not None:
            limits = resolve(brokers, wanted.end, bounds)
            ends = {p: min(limits[p], of_log.end) for p, of_log in bounds.items()}
    found = {}
    for partition, first in firsts.items():
        name = f"{partition[0]}-{partition[1]}"
        of_log = bounds[partition]
        if first > of_log.end:
            raise CommandFailed(f"{name}: offset {first} is beyond its end, {of_log.end}")
        if first < of_log.start:
            warn(f"{name}: begins at offset {of_log.start}; older records were deleted")
            first = of_log.start
        found[partition] = Range(first=first, end=ends[partition])
    return found


class Reading:
    """The base of plain readings and of those of a group's members. Its methods raise
    CommandFailed."""

    def __init__(
        self, brokers: Brokers, wanted: Wanted, client: Mapping[str, Any], group: str
    ) -> None:
        """client: librdkafka's settings of the connection."""
        self._brokers = brokers
        self._wanted = wanted
        self._group = group
        self._outages = Outages(brokers)
        self._ends: dict[Partition, int | None] = {}
        self._is_in_library = False
        self._is_stopped = False
        self._consumer = LibraryConsumer(
            {
                **client,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": ISOLATIONS[wanted.isolation],
                "check.crcs": True,
                "fetch.error.backoff.ms": 100,
                "queued.min.messages": 1_000_000,
                **self._more_settings(),
            }
        )

    def _more_settings(self) -> dict[str, Any]:
        return {}

    def batches(self) -> Iterator[list[Record]]:
        """Yield records until all that are wanted are read. Those of a yield count as printed when
        the next one is asked for."""
        while not self._is_over():
            yield from self._take(self._poll())

    def printed(self, records: Sequence[Record]) -> None:
        """These records of the last yield were printed, and the others were not."""

    def on_signal(self, *_: object) -> None:
        """End the reading. Raises KeyboardInterrupt at once, unless librdkafka is at work, which
        would lose it if it came in a callback."""
        if not self._is_in_library or self._is_stopped:
            raise KeyboardInterrupt
        self._is_stopped = True

    def close(self) -> None:
        """End the connections, and what a member owes its group."""
        self._consumer.close()

    def _is_over(self) -> bool:
        return not any(end != _DONE for end in self._ends.values())

    def _poll(self) -> list[Record]:
        """Records and events of librdkafka, at least one if any comes within a short time."""
        self._on_turn()
        self._is_in_library = True
        try:
            first = self._consumer.poll(POLL_S)
            found = [] if first is None else [first, *self._consumer.consume(RECORDS_MAX, 0)]
        finally:
            self._is_in_library = False
        if self._is_stopped:
            raise KeyboardInterrupt
        return found

    def _on_turn(self) -> None:
        self._outages.check(p for p, end in self._ends.items() if end != _DONE)

    def _take(self, messages: list[Record]) -> Iterator[list[Record]]:
        wanted: list[Record] = []
        passed: set[Partition] = set()
        events: list[Record] = []
        ends = self._ends
        for message in messages:
            if message.error() is not None:
                events.append(message)
                continue
            partition = (message.topic(), message.partition())
            end = ends.get(partition, _DONE)
            if end is None or message.offset() < end:
                wanted.append(message)
            else:
                passed.add(partition)
        if wanted:
            yield wanted
            self.printed(wanted)
        for partition in passed:
            self._reach(partition, ends.get(partition, _DONE) or 0)
        for event in events:
            self._on_event(event)

    def _reach(self, partition: Partition, position: int) -> None:
        """The partition is read up to this offset."""
        end = self._ends.get(partition, _DONE)
        if end is not None and position >= end and end != _DONE:
            self._ends[partition] = _DONE
            self._consumer.pause([TopicPartition(*partition)])

    # --- events ------------------------------------------------------------------------------

    def _on_event(self, event: Record) -> None:
        error = event.error()
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            self._reach((event.topic(), event.partition()), event.offset())
        elif code == KafkaError._AUTO_OFFSET_RESET:
            self._restart((event.topic(), event.partition()), event.offset())
        elif code in _OF_GROUPS:
            self._on_group_error(error)
        elif not is_transient(error):
            self._refuse(event, error)

    def _on_group_error(self, error: KafkaError) -> None:
        """Do nothing: librdkafka looks for a coordinator even without a member."""

    def _refuse(self, event: Record, error: KafkaError) -> None:
        name, *rights = "the brokers", *()
        topic = event.topic()
        if topic is not None:
            name = topic if event.partition() < 0 else f"{topic}-{event.partition()}"
            rights = [on_topic("READ", topic)]
        if error.code() < 0:
            raise CommandFailed(f"{name}: {error.str()}")
        raise refusal(error.code(), None, name, *rights)

    def _restart(self, partition: Partition, position: int) -> None:
        """Go on at the log start, which has passed the position (retention, or DeleteRecords)."""
        topic, number = partition
        start = list_offsets(self._brokers, {partition: EARLIEST})[partition]
        if start <= position:
            raise CommandFailed(
                f"{topic}-{number}: offset {position} is beyond the end of the partition"
            )
        warn(f"{topic}-{number}: the records up to offset {start} were deleted; going on there")
        # A partition that waits for an offset takes no seek.
        self._consumer.incremental_unassign([TopicPartition(topic, number)])
        self._consumer.incremental_assign([TopicPartition(topic, number, start)])
        self._reach(partition, start)


class PlainReading(Reading):
    """Partitions of the topics, without a group."""

    def __init__(self, brokers: Brokers, wanted: Wanted, client: Mapping[str, Any]) -> None:
        topics = brokers.existing(list(wanted.topics), operation="READ")
        chosen = []
        for name in wanted.topics:
            leaders = topics[name].leaders
            for number in sorted(wanted.partitions or leaders):
                if number not in leaders:
                    raise CommandFailed(
                        f"{name}-{number}: there is no such partition; {name} has {len(leaders)}"
                    )
                chosen.append((name, number))
        found = ranges_of(brokers, wanted, chosen)
        # librdkafka wants the name of a group; nothing is committed.
        super().__init__(brokers, wanted, client, "kvorum-consume")
        for partition, own in found.items():
            if own.end is None or own.first < own.end:
                self._ends[partition] = own.end
        self._consumer.incremental_assign([TopicPartition(*p, found[p].first) for p in self._ends])
