"""Simulated consumers: they read committed records from the leader, with or without a fetch
session."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from kvorum.chaos.sim.kernel.checks import check
from kvorum.chaos.sim.partitions.brokers import replica_of
from kvorum.chaos.sim.partitions.data_world import DataWorld
from kvorum.chaos.sim.partitions.history import HeldBatch, Told
from kvorum.chaos.sim.partitions.leader_search import LeaderSearch
from kvorum.chaos.sim.partitions.lookup import KnownLeader, look_up
from kvorum.chaos.sim.partitions.recorder import Place, Recorder
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import check_crc, iter_headers
from kvorum.wire.fetch_codec import FetchPartition
from kvorum.wire.replica_fetch_codec import ReplicaAnswer, pack_replica_fetch, parse_replica_answer

if TYPE_CHECKING:
    from kvorum.chaos.sim.partitions.history import PartitionHistory

REQUEST_TIMEOUT_MS = 1_500
FETCH_WAIT_MS = 500

LOOK_AGAIN = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
SESSION_ERRORS = frozenset(
    {ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH}
)


class SimConsumer:
    """A consumer of one partition. position: the next offset to read, of the topic topic_id."""

    def __init__(
        self,
        world: DataWorld,
        recorder: Recorder,
        rng: random.Random,
        *,
        number: int,
        topic: str,
        partition_id: int,
        has_session: bool,
    ) -> None:
        self.topic = topic
        self.partition_id = partition_id
        self.topic_id = b""
        self.position = 0
        self._world = world
        self._recorder = recorder
        self._rng = rng
        self._name = f"consumer {number}"
        self._has_session = has_session
        self._epoch_read = self._leader_epoch = -1
        self._told = Told(0, -1)
        self._session_id = self._session_epoch = 0
        self._listed: tuple[int, int] | None = None
        self._high_watermark = -1
        self._search = LeaderSearch(
            world,
            look=self.run,
            on_open=self._begin,
            on_frame=self._on_frame,
            timeout_ms=REQUEST_TIMEOUT_MS,
        )

    def run(self) -> None:
        """Find the leader and read from it, until the end of the run."""
        leader = look_up(self._world, self._rng, self.topic, self.partition_id)
        if leader is None:
            self._search.look_again()
            return
        if leader.topic_id != self.topic_id:
            if not self._is_newer(leader):
                self._search.look_again()
                return
            self.topic_id, self.position, self._epoch_read = leader.topic_id, 0, -1
            self._leader_epoch = -1
        if leader.leader_epoch < self._leader_epoch:
            # As in Kafka's clients: an answer with an older leader epoch is stale.
            self._search.look_again()
            return
        self._leader_epoch = leader.leader_epoch
        self._search.connect(leader)

    def _is_newer(self, leader: KnownLeader) -> bool:
        """False if the leader is stale: a broker with old metadata may even name an earlier topic
        of the same name."""
        self._world.watch.catch_up()
        return leader.topic_id in self._world.reference.newest.topics

    # --- requests ----------------------------------------------------------------------------

    def _begin(self) -> None:
        self._session_id = self._session_epoch = 0
        self._listed = None
        self._high_watermark = -1
        self._ask()

    def _ask(self) -> None:
        leader = self._search.leader
        if leader is None:
            return
        wanted = (self.position, self._epoch_read)
        topics = []
        if self._listed != wanted or not self._has_session:
            asked = FetchPartition(
                self.partition_id,
                leader.leader_epoch,
                self.position,
                self._epoch_read,
                -1,
                self._world.scenario.fetch_bytes,
            )
            topics.append((self.topic_id, [asked]))
            self._listed = wanted
        self._search.ask(
            lambda correlation_id: pack_replica_fetch(
                correlation_id=correlation_id,
                client_id=b"sim",
                replica_id=-1,
                replica_epoch=-1,
                max_wait_ms=FETCH_WAIT_MS,
                min_bytes=1,
                bytes_max=self._world.scenario.fetch_bytes,
                session_id=self._session_id,
                session_epoch=self._session_epoch if self._has_session else -1,
                topics=topics,
            )
        )
        if self._session_id:
            self._session_epoch += 1

    # --- answers -----------------------------------------------------------------------------

    def _on_frame(self, frame: bytes, sent_at: int) -> None:
        answer = parse_replica_answer(frame, 0, len(frame))
        if not self._search.is_awaited(answer.correlation_id):
            return
        if answer.error:
            check(
                ErrorCode(answer.error) in SESSION_ERRORS,
                "FetchRefusedForAReason",
                f"{self._name} was told {ErrorCode(answer.error).name}",
            )
            self._begin()
            return
        if self._has_session and self._session_id == 0:
            self._session_id = answer.session_id
            self._session_epoch = 1 if answer.session_id else 0
            if not answer.session_id:
                self._listed = None
        if all(self._handle_answer(part, frame, sent_at) for part in answer.partitions):
            self._told = Told(sent_at, self._leader_epoch)
            self._ask()

    @property
    def _history(self) -> PartitionHistory:
        return self._world.watch.histories[self.topic_id, self.partition_id]

    def _handle_answer(self, part: ReplicaAnswer, frame: bytes, sent_at: int) -> bool:
        """Handle an answer. Returns True to continue with the same broker."""
        history = self._history
        where = f"{history.name}: {self._name} at {self.position}"
        if part.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._begin_at_log_start(where)
        if part.error:
            check(
                ErrorCode(part.error) in LOOK_AGAIN,
                "FetchRefusedForAReason",
                f"{where} was told {ErrorCode(part.error).name}",
            )
            self._search.look_again()
            return False
        if part.diverging is not None:
            check(
                history.was_cut(part.diverging[1], self._told),
                "ReaderNeverTruncated",
                f"{where} was told that its history ends at {part.diverging}",
            )
            self.position, self._epoch_read = min(self.position, part.diverging[1]), -1
            return True
        if part.high_watermark >= 0:
            check(
                part.high_watermark >= self._high_watermark,
                "ReaderHighWatermarkMonotonic",
                f"{where} was told {part.high_watermark} after {self._high_watermark} by one "
                f"leader",
            )
            self._high_watermark = part.high_watermark
        self._read(part, frame[part.position : part.position + part.length], sent_at)
        return True

    def _begin_at_log_start(self, where: str) -> bool:
        """As `_handle_answer`. A real client would ask the leader for its earliest offset."""
        leader = self._search.leader
        replica = None
        if leader is not None:
            broker = self._world.brokers[leader.broker_id]
            replica = replica_of(broker, self.topic_id, self.partition_id)
        if replica is None or not replica.core.is_leader:
            self._search.look_again()
            return False
        start_offset = replica.log.start_offset
        check(
            self.position < start_offset or self._history.was_cut(self.position - 1, self._told),
            "ReaderStaysInRange",
            f"{where} is out of range of a log from {start_offset}",
        )
        self.position, self._epoch_read = start_offset, -1
        return True

    def _read(self, part: ReplicaAnswer, records: bytes, sent_at: int) -> None:
        history = self._history
        self._recorder.on_read(
            self._name, Place(self.topic_id, self.partition_id), records, self.position
        )
        is_first = True
        for position, header in iter_headers(records):
            where = f"{history.name}: {self._name} at {self.position}"
            check(check_crc(records, position, header), "ReadIsWhole", f"{where} got a bad CRC")
            check(
                header.last_offset < part.high_watermark,
                "NothingReadAboveHighWatermark",
                f"{where} got {header.last_offset} below a high watermark {part.high_watermark}",
            )
            dense = header.base_offset <= self.position <= header.last_offset
            check(
                dense or self._world.is_compacted(self.topic),
                "OffsetsDense",
                f"{where} got [{header.base_offset}, {header.last_offset}], first {is_first}",
            )
            producer = None
            if header.producer_id >= 0:
                producer = (header.producer_id, header.producer_epoch, header.base_sequence)
            batch = HeldBatch(
                header.base_offset,
                header.last_offset,
                header.leader_epoch,
                header.crc,
                producer,
            )
            history.check_read(self._name, batch, Told(sent_at, self._leader_epoch))
            self.position = header.last_offset + 1
            self._epoch_read = header.leader_epoch
            is_first = False
            self._world.watch.tally["batches read"] += 1
