"""Simulated producers: batches in order, several in flight, retries with the same sequence until
there is an answer."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kvorum.chaos.sim.kernel.checks import check
from kvorum.chaos.sim.partitions.data_world import DataWorld
from kvorum.chaos.sim.partitions.history import Told
from kvorum.chaos.sim.partitions.lookup import LeaderConnection, look_up
from kvorum.chaos.sim.partitions.recorder import Place, Recorder, Written, text_of, value_of
from kvorum.chaos.sim.partitions.wire import pack_produce, parse_produced
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import build_batch, read_header

if TYPE_CHECKING:
    pass

RETRY_MS = 80
REQUEST_TIMEOUT_MS = 1_200
SERVER_TIMEOUT_MS = 900
ACKS_ALL = -1
KEYS = 6
"""Number of keys in a compacted topic."""

RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
LOST_TRACK = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
"""Errors of a broker that does not know this producer's earlier batches, after a loss or a start.
The producer starts again under another id; the outcome of its pending batches is unknown."""


@dataclass(slots=True, kw_only=True, eq=False)
class Sending:
    """A batch until its answer.

    correlation_id: of its last request.
    places: the partitions that it was sent to, by topic id.
    """

    batch: bytes
    crc: int
    number: int
    written: Written
    made_ms: int
    correlation_id: int = -1
    places: set[Place] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """An acknowledgement to a producer with acks=all."""

    topic_id: bytes
    partition_id: int
    base_offset: int
    crc: int
    told: Told


class SimProducer:
    """A producer to one partition.

    acknowledged: all its acknowledgements, with acks=all only.
    is_answered: a batch was acknowledged (with acks=0: sent) since `wait_for_one` was called.
    """

    def __init__(
        self,
        world: DataWorld,
        recorder: Recorder,
        rng: random.Random,
        *,
        number: int,
        topic: str,
        partition_id: int,
        acks: int,
        is_idempotent: bool,
    ) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.is_answered = True
        self.topic = topic
        self._world = world
        self._recorder = recorder
        self._rng = rng
        self._number = number
        self._name = f"producer {number}"
        self._partition_id = partition_id
        self._acks = acks
        self._is_idempotent = is_idempotent
        self._pending: list[Sending] = []
        self._producer_id = self._new_id()
        self._sequence = 0
        self._count = 0
        self._is_looking = False
        self._serial = 0
        self._caller = LeaderConnection(
            world, on_open=self._send_all, on_frame=self._on_frame, on_lost=self._find_leader_again
        )

    @property
    def is_idle(self) -> bool:
        return not self._pending

    def wait_for_one(self) -> None:
        """Reset is_answered, so that it shows if a write succeeds from now on."""
        self.is_answered = False

    def run(self) -> None:
        """Write a batch now, and again after a while as long as clients are busy."""
        world = self._world
        if not world.clients.is_busy:
            return
        interval_ms = world.scenario.produce_interval_ms
        world.timeline.after(self._rng.randint(1, 2 * interval_ms), self.run)
        if len(self._pending) >= world.scenario.in_flight:
            return
        sending = self._next_batch()
        self._pending.append(sending)
        if self._caller.is_open:
            self._send(sending)
        elif not self._is_looking:
            self._find_leader()

    # --- sending -----------------------------------------------------------------------------

    def _new_id(self) -> int:
        return self._world.next_producer_id() if self._is_idempotent else -1

    def _next_batch(self) -> Sending:
        world = self._world
        count = self._rng.randint(1, world.scenario.batch_records)
        records: list[tuple[bytes | None, bytes | None]] = []
        keys: list[str] = []
        values: list[int] = []
        for index in range(count):
            keys.append(f"k{self._rng.randrange(KEYS)}")
            key = keys[-1].encode()
            value = text_of(self._number, self._count, index)
            values.append(value_of(value))
            records.append((key, value + b"." * self._rng.choice((0, 0, 40))))
        batch = build_batch(
            records,
            timestamp_ms=world.wall_ms,
            producer_id=self._producer_id,
            producer_epoch=0 if self._is_idempotent else -1,
            base_sequence=self._sequence if self._is_idempotent else -1,
        )
        self._sequence += count
        self._count += 1
        return Sending(
            batch=bytes(batch),
            crc=read_header(batch, 0).crc,
            number=self._count,
            written=Written(tuple(values), tuple(keys)),
            made_ms=world.timeline.now_ms,
        )

    def _send_all(self) -> None:
        for sending in list(self._pending):
            self._send(sending)

    def _send(self, sending: Sending) -> None:
        caller = self._caller
        leader = caller.leader
        if leader is None or not caller.is_open:
            return
        sending.correlation_id = caller.next_id()
        place = Place(leader.topic_id, self._partition_id)
        if place not in sending.places:
            sending.places.add(place)
            self._recorder.on_send(
                self._name, place, sending.written, is_idempotent=self._is_idempotent
            )
        frame = pack_produce(
            sending.correlation_id,
            leader.topic_id,
            self._partition_id,
            sending.batch,
            acks=self._acks,
            timeout_ms=SERVER_TIMEOUT_MS,
        )
        caller.send(frame)
        if self._acks == 0:
            self._pending.remove(sending)
            self.is_answered = True
            return
        self._world.timeline.after(
            REQUEST_TIMEOUT_MS, partial(self._give_up, sending, sending.correlation_id)
        )

    def _give_up(self, sending: Sending, correlation_id: int) -> None:
        if sending in self._pending and sending.correlation_id == correlation_id:
            self._find_leader_again()

    def _find_leader_again(self) -> None:
        """Look up the leader, because it may have changed, and send all pending batches again."""
        self._caller.close()
        if self._pending and not self._is_looking:
            self._is_looking = True
            self._world.timeline.after(RETRY_MS, self._find_leader)

    def _find_leader(self) -> None:
        self._is_looking = False
        if not self._pending:
            return
        leader = look_up(self._world, self._rng, self.topic, self._partition_id)
        if leader is None:
            self._find_leader_again()
            return
        self._caller.connect(leader)
        self._serial += 1
        self._world.timeline.after(REQUEST_TIMEOUT_MS, partial(self._check_open, self._serial))

    def _check_open(self, serial: int) -> None:
        if serial == self._serial and not self._caller.is_open:
            self._find_leader_again()

    # --- answers -----------------------------------------------------------------------------

    def _on_frame(self, frame: bytes, sent_at: int) -> None:
        answer = parse_produced(frame)
        sending = next(
            (s for s in self._pending if s.correlation_id == answer.correlation_id), None
        )
        if sending is None:
            return
        code = ErrorCode(answer.error)
        tally = self._world.watch.tally
        if code is ErrorCode.NONE:
            tally["batches acknowledged"] += 1
            self._pending.remove(sending)
            self.is_answered = True
            self._note(sending, answer.base_offset, sent_at)
            return
        tally[f"produce {code.name.lower()}"] += 1
        if code in LOST_TRACK:
            if sending is self._pending[0]:
                # It is unknown which of these batches are in the log.
                self._pending.clear()
                self._producer_id, self._sequence = self._new_id(), 0
                self._caller.close()
                return
        else:
            check(
                code in RETRIABLE,
                "ProduceRefusedForAReason",
                f"{self._name} of {self.topic}-{self._partition_id} was told {code.name}",
            )
        self._find_leader_again()

    def _note(self, sending: Sending, base_offset: int, sent_at: int) -> None:
        leader = self._caller.leader
        if self._acks != ACKS_ALL or leader is None:
            return
        history = self._world.watch.histories[leader.topic_id, self._partition_id]
        found = Acknowledged(
            topic_id=leader.topic_id,
            partition_id=self._partition_id,
            base_offset=base_offset,
            crc=sending.crc,
            told=history.answer_of(leader.broker_id, sent_at, leader.leader_epoch),
        )
        self.acknowledged.append(found)
        self._recorder.on_acknowledged(
            self._name,
            Place(leader.topic_id, self._partition_id),
            sending.written,
            base_offset,
            sending.made_ms,
        )
        self._check(found, "AcknowledgedOnceCommitted")

    def check_acknowledged(self) -> None:
        """Check, at the end of a run, that no acknowledged batch is lost."""
        for found in self.acknowledged:
            self._check(found, "AcknowledgedNeverLost")

    def _check(self, found: Acknowledged, name: str) -> None:
        history = self._world.watch.histories[found.topic_id, found.partition_id]
        history.check_acknowledged(self._name, found.base_offset, found.crc, found.told, name)
