"""One share-partition on the broker that leads its partition. The driver of `core.share_partition`.

  begins -> reads its state from the share coordinator -> serves fetches and acknowledgements
         -> ends: the broker stops leading, or the share coordinator refuses a write

Changes are written one write after the other; those that come meanwhile go into the next one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from kvorum.broker.metrics.share_counters import ShareMetrics
from kvorum.broker.partition.replica import Replica
from kvorum.broker.partition.watchers import Watcher, WatchingFetch
from kvorum.broker.purgatory.deadlines import Deadlines
from kvorum.broker.purgatory.loop_turn import LoopTurn
from kvorum.broker.share.core.batches import fetched_batches
from kvorum.broker.share.core.share_partition import Acquire, ShareLimits, SharePartition
from kvorum.broker.share.core.states import AcquiredRecords, DeadLetters
from kvorum.broker.share.dead_letter_loop import DeadLetterLoop
from kvorum.broker.share.dead_letters import DeadLetterWriter
from kvorum.broker.share.group_configs import ShareGroupConfigs
from kvorum.broker.share_state.batches import DeliveryState, batches_problem
from kvorum.broker.share_state.client import ShareStateClient
from kvorum.broker.share_state.records import ShareKey, ShareState
from kvorum.broker.share_state.requests import NO_OFFSET, ReadState, WriteState
from kvorum.runtime.clock import Clock
from kvorum.runtime.errors import CorruptData, ErrorCode, Rejected
from kvorum.runtime.tasks import TaskGroup
from kvorum.storage.format.batch import LENGTH_OVERHEAD, BatchError, iter_headers
from kvorum.storage.log.log import OffsetOutOfRange
from kvorum.storage.log.timestamp_lookup import find_by_timestamp

_log = logging.getLogger(__name__)

READ_BYTES_MIN = 64 * 1024
"""Bytes that a fetch reads at least; how many more depends on the size of the records so far."""
_ALL = 1 << 31
"""More bytes than a segment has."""
READS_MAX = 8
"""Reads of one fetch: what is for nobody is passed over, and other requests must not wait long."""

Settled = Callable[[ErrorCode], None]


class Waiting(Protocol):
    """A fetch that waits for records. LoopTurn writes `is_awake`."""

    is_awake: bool

    def wake(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareParts:
    """The parts of a broker that its share-partitions use.

    on_ended: called with each share-partition that ends.
    """

    configs: ShareGroupConfigs
    states: ShareStateClient
    dead_letters: DeadLetterWriter
    deadlines: Deadlines
    turn: LoopTurn
    clock: Clock
    tasks: TaskGroup
    metrics: ShareMetrics
    on_ended: Callable[[LedSharePartition], None]


class _LockTimer:
    """The first lock's end, in the form that `Deadlines` takes."""

    __slots__ = ("deadline_bucket", "deadline_ms", "expire")

    def __init__(self, expire: Callable[[], None]) -> None:
        self.deadline_bucket = -1
        self.deadline_ms = 0
        self.expire = expire


class LedSharePartition(Watcher):
    """core: None until the state is read. failure: why it has ended; the next fetch begins anew.
    lock_timeouts: records that were taken back at the end of their lock.

    It watches the replica as a fetch does: `wake` is called when the high watermark rises or the
    role changes.
    """

    __slots__ = (
        "_acknowledged", "_average_bytes", "_has_dead_letters", "_is_writing", "_lock_timer",
        "_parts", "core", "failure", "is_awake", "is_retiring", "key", "leader_epoch",
        "lock_timeouts", "state_epoch", "waiting",
    )  # fmt: skip

    def __init__(self, parts: ShareParts, key: ShareKey, replica: Replica) -> None:
        super().__init__(WatchingFetch(replica_id=-1))
        self.state.parked = self
        self._parts = parts
        self.key = key
        self.replica: Replica | None = replica
        self.leader_epoch = replica.core.leader_epoch
        self.state_epoch = 0
        self.core: SharePartition | None = None
        self.failure: ErrorCode | Rejected | None = None
        self.waiting: dict[Waiting, None] = {}
        self.is_awake = False
        self.is_retiring = False
        self.lock_timeouts = 0
        self._acknowledged: deque[tuple[int, Settled]] = deque()
        self._has_dead_letters = self._is_writing = False
        self._lock_timer = _LockTimer(self._on_lock_timer)
        self._average_bytes = 1024
        replica.watchers[self] = None
        parts.tasks.spawn(self._load(), f"load {key}")

    @property
    def is_led(self) -> bool:
        """True while this broker leads the partition in the epoch of this object."""
        replica = self.replica
        return (
            replica is not None
            and replica.core.is_leader
            and replica.core.leader_epoch == self.leader_epoch
            # Bad sequence: 1. Broker A is stopped with records in flight. 2. Broker B leads, and
            # members accept them there. 3. A goes on, and gives them to a member once more.
            and not replica.core.is_abandoned
            and not replica.is_closed
            and not replica.is_offline
        )

    @property
    def acquired_records(self) -> int:
        """Records that members hold now."""
        runs = () if self.core is None else self.core.runs
        return sum(run.count for run in runs if run.state is DeliveryState.ACQUIRED)

    def _limits(self) -> ShareLimits:
        return self._parts.configs.limits(self.key.group_id)

    # --- begin and end -----------------------------------------------------------------------

    async def _load(self) -> None:
        body = ReadState(key=self.key, leader_epoch=self.leader_epoch)
        found = await self._parts.states.read(body)
        if self.failure is not None:
            return
        if not isinstance(found, ShareState):
            self.end(_error_of_state(found))
            return
        problem = batches_problem(found.batches)
        if problem is not None:
            _log.warning("the state of share-partition %s is unsound: %s", self.key, problem)
            self.end(Rejected(ErrorCode.UNKNOWN_SERVER_ERROR, problem))
            return
        self.state_epoch = found.state_epoch
        start_offset = found.start_offset
        try:
            if start_offset == NO_OFFSET:
                start_offset = self._first_offset()
            self.core = SharePartition(start_offset, found.batches)
        except (OSError, CorruptData, BatchError) as failure:
            _log.warning("the start of share-partition %s cannot be found: %s", self.key, failure)
            self.end(ErrorCode.KAFKA_STORAGE_ERROR)
            return
        if found.start_offset == NO_OFFSET:
            # Kept at once: another leader would choose another start, and records would be lost.
            self.core.keep_start()
        self._begin_dead_letters(self.core)
        self.wake()

    def _first_offset(self) -> int:
        replica = self.replica
        if replica is None:
            return 0
        reset = self._parts.configs.reset(self.key.group_id)
        if reset == "earliest":
            return replica.log.start_offset
        if not isinstance(reset, int):
            return replica.core.high_watermark
        since_ms = self._parts.clock.wall_ms() - reset
        found = find_by_timestamp(replica.log, since_ms, end_offset=replica.core.high_watermark)
        return replica.core.high_watermark if found is None else found[1]

    def end(self, failure: ErrorCode | Rejected) -> None:
        """Serve no more: waiting acknowledgements get the error, fetches look for a new one."""
        if self.failure is not None:
            return
        self.failure = failure
        self._parts.on_ended(self)
        self._parts.deadlines.remove(self._lock_timer)
        if self.replica is not None:
            self.replica.watchers.pop(self, None)
        code = failure.code if isinstance(failure, Rejected) else failure
        while self._acknowledged:
            self._acknowledged.popleft()[1](code)
        waiting, self.waiting = self.waiting, {}
        for fetch in waiting:
            self._parts.turn.wake(fetch)

    def retire(self) -> None:
        """No member fetches it any more: end once everything is written, unless one comes back."""
        self.is_retiring = True
        self._retire_if_written()

    def _retire_if_written(self) -> None:
        is_busy = self._is_writing or self._has_dead_letters
        is_busy = is_busy or (self.core is not None and self.core.has_unwritten)
        if self.is_retiring and not is_busy:
            self.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # --- waking ------------------------------------------------------------------------------

    def wake(self) -> None:
        """The log, the role or a record's state has changed: wake the fetches that wait."""
        self.state.dirty.clear()
        if self.failure is not None:
            return
        if not self.is_led:
            self.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if self.core is None:
            return
        self.follow_log_start()
        self.flush()
        if self.waiting and self.may_have_records():
            for fetch in self.waiting:
                self._parts.turn.wake(fetch)

    def may_have_records(self) -> bool:
        """True if a fetch may find something now."""
        if self.core is None or self.replica is None:
            return False
        offset = self.core.next_fetch_offset(self._limits())
        return offset is not None and offset < self._readable_end()

    def available_bytes(self) -> int:
        """Bytes of the log from the first record on that a member could get, in one segment."""
        if self.core is None or self.replica is None:
            return 0
        offset = self.core.next_fetch_offset(self._limits())
        end_offset = self._readable_end()
        if offset is None or offset >= end_offset:
            return 0
        try:
            found = self.replica.log.read(offset, bytes_max=_ALL, end_offset=end_offset)
        except READ_FAILURES:
            return _ALL  # the fetch itself tells the error
        return found.length

    def follow_log_start(self) -> None:
        if self.core is not None and self.replica is not None:
            self.core.on_log_start(self.replica.log.start_offset)

    def _readable_end(self) -> int:
        replica = self.replica
        if replica is None:
            return 0
        high_watermark = replica.core.high_watermark
        if self._parts.configs.reads_committed(self.key.group_id):
            return replica.log.last_stable_offset(high_watermark)
        return high_watermark

    # --- members -----------------------------------------------------------------------------

    def acquire(self, wish: Acquire, bytes_max: int) -> tuple[list[AcquiredRecords], bytes]:
        """The records that the member gets, with the batches that hold them.

        Raises OSError and CorruptData of the log, OffsetOutOfRange, BatchError.
        """
        core, replica = self.core, self.replica
        if core is None or replica is None:
            return [], b""
        limits = self._limits()
        is_committed = self._parts.configs.reads_committed(self.key.group_id)
        now_ms = self._parts.clock.monotonic_ms()
        self.follow_log_start()
        for _ in range(READS_MAX):
            offset = core.next_fetch_offset(limits)
            end_offset = self._readable_end()
            if offset is None or offset >= end_offset:
                break
            wanted = max(READ_BYTES_MIN, 2 * wish.records_max * self._average_bytes)
            found = replica.log.read(
                offset, bytes_max=min(bytes_max, wanted), end_offset=end_offset
            )
            if not found.length:
                break
            data = found.read()
            headers = list(iter_headers(data))
            aborted = None
            if is_committed:
                aborted = replica.log.segments.aborted_in(found, end_offset=end_offset)
            rows = core.acquire(wish, offset, fetched_batches(headers, aborted), limits, now_ms)
            if rows:
                self._watch_locks(now_ms + limits.lock_duration_ms)
                self._parts.metrics.note_acquired(rows)
                return rows, self._cut(data, headers, rows)
        self.flush()
        return [], b""

    def _cut(self, data: Any, headers: list[Any], rows: list[AcquiredRecords]) -> bytes:
        """The batches that hold the acquired records."""
        first, last = rows[0].first_offset, rows[-1].last_offset
        start, end = 0, len(data)
        for position, header in headers:
            if header.last_offset < first:
                start = position + header.batch_length + LENGTH_OVERHEAD
            if header.base_offset > last:
                end = position
                break
        count = max(last - first + 1, 1)
        self._average_bytes = max((end - start) // count, 1)
        return bytes(memoryview(data)[start:end])

    def on_read_failed(self, failure: Exception) -> None:
        """The log could not be read."""
        if self.replica is not None and isinstance(failure, (OSError, CorruptData)):
            self.replica.fail(failure, "read")

    def acknowledge(self, member_id: str, batches: Any, settled: Settled) -> Rejected | None:
        """Apply acknowledgements; `settled` is called once the share coordinator has them. A
        refusal is returned, and `settled` is not called."""
        core = self.core
        if core is None:
            text = "no record of this share-partition is acquired"
            return Rejected(ErrorCode.INVALID_RECORD_STATE, text)
        before = core.revision
        limits = self._limits()
        refused = core.acknowledge(member_id, batches, limits, self._parts.clock.monotonic_ms())
        if refused is not None:
            return refused
        self._parts.metrics.note_acknowledged(batches)
        if core.revision == before:
            settled(ErrorCode.NONE)  # nothing but renewals, which nobody keeps
            return None
        self._acknowledged.append((core.revision, settled))
        self._on_changed()
        return None

    def release(self, member_id: str) -> None:
        """The member's session has ended: it holds nothing any more."""
        core = self.core
        if core is not None and core.release_member(member_id, self._limits()):
            self._on_changed()

    def _on_changed(self) -> None:
        self.flush()
        if self.waiting:
            self._parts.turn.wake(self)

    # --- locks -------------------------------------------------------------------------------

    def _watch_locks(self, deadline_ms: int) -> None:
        timer = self._lock_timer
        if timer.deadline_bucket == -1 or deadline_ms < timer.deadline_ms:
            self._parts.deadlines.remove(timer)
            timer.deadline_ms = deadline_ms
            self._parts.deadlines.add(timer, deadline_ms)

    def _on_lock_timer(self) -> None:
        core = self.core
        if core is None or self.failure is not None:
            return
        ended = core.expire(self._limits(), self._parts.clock.monotonic_ms())
        if ended:
            self.lock_timeouts += ended
            self._parts.metrics.lock_timeouts += ended
            self._on_changed()
        deadline_ms = core.next_deadline_ms()
        if deadline_ms is not None:
            self._watch_locks(deadline_ms)

    # --- the share coordinator ---------------------------------------------------------------

    def flush(self) -> None:
        """Write what the share coordinator has not been told."""
        if self.core is not None and self.core.has_unwritten and not self._is_writing:
            self._is_writing = True
            self._parts.tasks.spawn(self._write(self.core), f"write {self.key}")

    async def _write(self, core: SharePartition) -> None:
        while core.has_unwritten and self.failure is None:
            write, began_ms = core.take_write(), self._parts.clock.monotonic_ms()
            answer = await self._parts.states.write(
                WriteState(
                    key=self.key,
                    state_epoch=self.state_epoch,
                    leader_epoch=self.leader_epoch,
                    start_offset=write.start_offset,
                    delivery_complete_count=write.delivery_complete_count,
                    batches=write.batches,
                )
            )
            took_ms = self._parts.clock.monotonic_ms() - began_ms
            self._parts.metrics.note_state_write(took_ms, is_kept=answer == ErrorCode.NONE)
            if self.failure is not None:
                return
            if answer != ErrorCode.NONE:
                _log.info("share-partition %s is read anew: its write got %s", self.key, answer)
                self.end(_error_of_state(answer))
                return
            while self._acknowledged and self._acknowledged[0][0] <= write.revision:
                self._acknowledged.popleft()[1](ErrorCode.NONE)
        self._is_writing = False
        self._begin_dead_letters(core)
        self._retire_if_written()

    # --- dead letters ------------------------------------------------------------------------

    def _begin_dead_letters(self, core: SharePartition) -> None:
        replica = self.replica
        if self._has_dead_letters or replica is None or not core.dead_letters(self._limits(), 1):
            return
        self._has_dead_letters = True
        writing = self._write_dead_letters(core, replica)
        self._parts.tasks.spawn(writing, f"dead letters of {self.key}")

    async def _write_dead_letters(self, core: SharePartition, replica: Replica) -> None:
        def due(records_max: int) -> list[DeadLetters]:
            has_ended = self.failure is not None or self.replica is None
            return [] if has_ended else core.dead_letters(self._limits(), records_max)

        def archive(first: int, last: int) -> None:
            if self.failure is None:
                core.archive(first, last)
                self._on_changed()

        loop = DeadLetterLoop(self._parts.dead_letters, self._parts.metrics, self.key)
        await loop.run(replica, due, archive)
        self._has_dead_letters = False
        self._retire_if_written()


def _error_of_state(answer: ErrorCode | Rejected) -> ErrorCode | Rejected:
    """The error that members get if the share coordinator refuses a read or a write: if it knows a
    newer leader, they look for that one."""
    code = answer.code if isinstance(answer, Rejected) else answer
    if code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return answer


READ_FAILURES = (OSError, CorruptData, OffsetOutOfRange, BatchError)
