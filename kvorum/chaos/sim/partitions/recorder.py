"""The clients' history of a run, as a live run has it (`chaos.history`, version 2), and
the checks of live runs over it.

These checks judge only the partitions that exist at the end and that lost nothing: an allowed loss
breaks the promises of these checks, while the simulator's own checks allow for it. A consumer of
the simulator reads one partition, so each partition is a topic of its own here, named with its
topic's id. Acknowledgements count with acks=all only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kvorum.broker.metadata_answers.topic_names import SHARE_STATE_TOPIC
from kvorum.chaos.checks import CheckRules, run_checks_of
from kvorum.chaos.history import (
    ACKNOWLEDGE,
    DELIVER,
    FINAL_READ,
    INVOKE,
    JOIN,
    LEAVE,
    OBSERVE,
    OBSERVER,
    OK,
    POLL,
    SEND,
    Acknowledgement,
    Delivery,
    Event,
    Function,
    Operation,
    Poll,
    Send,
    Type,
)
from kvorum.chaos.report.wording import broken
from kvorum.chaos.sim.kernel.checks import check
from kvorum.chaos.sim.partitions.brokers import replica_of
from kvorum.chaos.sim.partitions.data_world import DataWorld
from kvorum.storage.format.batch import iter_headers, iter_records

if TYPE_CHECKING:
    from kvorum.metadata.image.image import PartitionImage

_READ_BYTES = 1 << 20
DELIVERY_COUNT_LIMIT = 5
"""Kafka's default, which the simulated brokers have."""
#: Bits of a record's number within its batch, and of a batch's number within its producer.
_RECORD_BITS, _BATCH_BITS = 16, 32


class Place(NamedTuple):
    """A partition of one topic id."""

    topic_id: bytes
    partition_id: int

    @property
    def name(self) -> str:
        """Its name as a topic of the history."""
        return f"{self.topic_id.hex()}-{self.partition_id}"


class Written(NamedTuple):
    """The records of one batch, as the history tells of them."""

    values: tuple[int, ...]
    keys: tuple[str, ...]

    def sends(self, place: Place, base_offset: int = -1) -> tuple[Send, ...]:
        return tuple(
            Send(place.name, 0, value, base_offset + at if base_offset >= 0 else -1, key)
            for at, (value, key) in enumerate(zip(self.values, self.keys, strict=True))
        )


class Recorder:
    """Takes what clients send and read, by partition, and judges it at the end."""

    def __init__(self, world: DataWorld) -> None:
        self._world = world
        self._events: dict[Place, list[Event]] = {}
        self._retried: set[Place] = set()
        self._count = 0

    def on_send(self, process: str, place: Place, written: Written, *, is_idempotent: bool) -> None:
        """A producer sends a batch to this partition for the first time."""
        if not is_idempotent:
            self._retried.add(place)
        self._add(place, process, INVOKE, SEND, written.sends(place))

    def on_acknowledged(
        self, process: str, place: Place, written: Written, base_offset: int, sent_ms: int
    ) -> None:
        """A batch is acknowledged with acks=all. sent_ms: when it was first sent."""
        latency_ms = float(self._world.timeline.now_ms - sent_ms)
        sends = written.sends(place, base_offset)
        self._add(place, process, OK, SEND, sends, latency_ms=latency_ms)

    def on_read(self, process: str, place: Place, data: bytes, from_offset: int) -> None:
        """A consumer gets batches, and uses their records from this offset on."""
        poll = _poll_of(place, data, from_offset)
        if poll.offsets:
            self._add(place, process, OK, POLL, (poll,))

    # --- share groups ------------------------------------------------------------------------

    def on_join(self, process: str, place: Place, group: str) -> None:
        """A member of a share group begins a session."""
        limits = {"lock_duration_ms": -1, "delivery_count_limit": DELIVERY_COUNT_LIMIT}
        self._add(place, process, OK, JOIN, (), details=dict(limits), group=group)

    def on_leave(self, process: str, place: Place, group: str) -> None:
        """The session has ended."""
        self._add(place, process, OK, LEAVE, (), group=group)

    def on_delivered(self, process: str, group: str, place: Place, delivery: Delivery) -> None:
        """A member was given records."""
        self._add(place, process, OK, DELIVER, (delivery,), group=group)

    def on_acknowledge(
        self, process: str, group: str, place: Place, asked: Acknowledgement
    ) -> None:
        """A member is about to acknowledge records."""
        self._add(place, process, INVOKE, ACKNOWLEDGE, (asked,), group=group)

    def on_acknowledged_share(
        self, process: str, group: str, place: Place, asked: Acknowledgement, asked_ms: int
    ) -> None:
        """Its acknowledgement of all these records was confirmed."""
        latency_ms = float(self._world.timeline.now_ms - asked_ms)
        self._add(place, process, OK, ACKNOWLEDGE, (asked,), latency_ms=latency_ms, group=group)

    def _add(
        self,
        place: Place,
        process: str,
        type: Type,
        f: Function,
        ops: tuple[Operation, ...],
        *,
        latency_ms: float | None = None,
        details: dict[str, object] | None = None,
        group: str | None = None,
    ) -> None:
        event = Event(
            index=self._count,
            time_ms=float(self._world.timeline.now_ms),
            process=process,
            type=type,
            f=f,
            ops=ops,
            latency_ms=latency_ms,
            details=details,
            group=group,
            topic=None if details is None else place.name,
            partition=None if details is None else 0,
        )
        self._count += 1
        self._events.setdefault(place, []).append(event)

    def judge(self) -> None:
        """Run the checks over all partitions that can be judged. Raises CheckFailed."""
        compacted: set[str] = set()
        judged: list[Place] = []
        for name, place, partition in self._partitions():
            if place not in self._events or self._world.watch.histories[place].cuts:
                continue
            self._read_finally(place, partition.leader)
            judged.append(place)
            if self._world.is_compacted(name):
                compacted.add(place.name)
        rules = CheckRules(
            compacted_topics=frozenset(compacted),
            trimmed_topics=frozenset(place.name for place in judged) - compacted,
            retried_topics=frozenset(place.name for place in self._retried),
        )
        # A state that was lost may bring records again.
        has_states = not self.has_lost_states
        events = (
            event
            for place in judged
            for event in self._events[place]
            if event.group is None or has_states
        )
        for result in run_checks_of(events, rules):
            check(
                result.is_passed,
                result.check,
                f"{broken(result.count, result.promise)}: "
                + "; ".join(f"{found.topic}: {found.message}" for found in result.findings),
            )

    @property
    def has_lost_states(self) -> bool:
        """True if states of share groups were lost in an allowed way."""
        return self._world.watch.has_cut(SHARE_STATE_TOPIC)

    def _partitions(self) -> Iterator[tuple[str, Place, PartitionImage]]:
        for topic in self._world.reference.newest.topics.values():
            for partition_id, partition in sorted(topic.partitions.items()):
                yield topic.name, Place(topic.topic_id, partition_id), partition

    def _read_finally(self, place: Place, leader: int) -> None:
        replica = replica_of(self._world.brokers[leader], place.topic_id, place.partition_id)
        check(replica is not None, "ReadFinally", f"{place.name} has no leader to read from")
        if replica is None:
            return
        log, end_offset = replica.log, replica.core.high_watermark
        offset = start_offset = log.start_offset
        while offset < end_offset:
            data = log.read(offset, bytes_max=_READ_BYTES, end_offset=end_offset).read()
            if not data:
                break
            self._add(place, FINAL_READ, OK, POLL, (_poll_of(place, data, offset),))
            offset = max(header.end_offset for _, header in iter_headers(data))
        details: Mapping[str, object] = {
            "what": FINAL_READ,
            "start_offset": start_offset,
            "next_offset": offset,
            "end_offset": end_offset,
        }
        self._add(place, OBSERVER, OK, OBSERVE, (), details=dict(details))


def text_of(producer: int, batch: int, record: int) -> bytes:
    """The content of a producer's n-th record of a batch, without padding."""
    return f"producer {producer} {batch} {record}".encode()


def value_of(text: bytes) -> int:
    """The number that stands for a record in the history: a producer's numbers rise, and no two are
    equal. -1 for bytes that no producer wrote."""
    words = text.rstrip(b".").split(b" ")
    if len(words) != 4 or words[0] != b"producer":
        return -1
    producer, batch, record = map(int, words[1:])
    return (producer << _BATCH_BITS | batch) << _RECORD_BITS | record


def _poll_of(place: Place, data: bytes, from_offset: int) -> Poll:
    offsets: list[int] = []
    values: list[int] = []
    for position, header in iter_headers(data):
        for record in iter_records(data, position, header):
            if record.offset >= from_offset:
                offsets.append(record.offset)
                values.append(value_of(record.value or b""))
    return Poll(place.name, 0, tuple(offsets), tuple(values))
