"""One share-partition at the partition's leader: who holds which records, and what becomes of them.
Pure.

  acquire      a member is given records that are available, or that nobody has had yet
  acknowledge  the member accepts, releases, rejects or renews records that it holds
  expire       a member kept records longer than its lock: they are available again
  archive      records are in the group's dead-letter topic

Changes count at once. The answer to a member waits until the share coordinator has them
(`take_write`). If the coordinator refuses a write, the whole share-partition is read back from it:
then records that were acquired are available, and no record that was acknowledged in an answer is.

A record that is released, or whose lock ends, is available again, unless it was delivered as often
as the limit allows. Then it is archived (as in KIP-932). In a group that has a dead-letter topic
(KIP-1191), such a record and a rejected one are ARCHIVING first, and block the start offset, until
they are there.

Records that were delivered half as often as the limit allows come in pieces, each of half the size
of the one before, and the last time one by one, as in Kafka: one bad record does not take the
others of its batch with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvorum.broker.share.core.runs import NOBODY, Run, Runs
from kvorum.broker.share.core.states import (
    AcknowledgementBatch,
    AcknowledgeType,
    AcquiredRecords,
    AcquireMode,
    DeadLetters,
    FetchedBatch,
    StateWrite,
)
from kvorum.broker.share_state.batches import DeliveryState, StateBatch
from kvorum.runtime.errors import ErrorCode, Rejected

_AVAILABLE, _ACQUIRED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED
_ACKNOWLEDGED, _ARCHIVED = DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED
_ARCHIVING = DeliveryState.ARCHIVING

_STATE_AFTER = {
    AcknowledgeType.GAP: _ARCHIVED,
    AcknowledgeType.ACCEPT: _ACKNOWLEDGED,
    AcknowledgeType.RELEASE: _AVAILABLE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLimits:
    """The configs of a group that its share-partitions obey.

    lock_duration_ms: how long a member holds a record.
    delivery_count_limit: deliveries after which a record is archived.
    record_locks_max: offsets that may be in flight.
    has_dead_letters: what is rejected or delivered too often goes to a dead-letter topic.
    """

    lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    record_locks_max: int = 2_000
    may_renew: bool = True
    has_dead_letters: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquire:
    """A member's wish for records.

    batch_size: records after which the answer begins another entry, at the end of a batch.
    """

    member_id: str
    records_max: int
    batch_size: int = 1
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


class SharePartition:
    """See the docstring of this module.

    revision: rises with every change that the share coordinator must keep.
    """

    __slots__ = ("_deleted_below", "_may_have_letters", "_runs", "_taken_revision", "revision")

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = ()) -> None:
        """batches: of the share coordinator, ascending. Offsets between them are available: they
        were acquired when the state was written."""
        self._runs = Runs(start_offset)
        self._deleted_below = 0
        self._may_have_letters = True
        self.revision = self._taken_revision = 0
        for first, last, state, count in batches:
            if last < self._runs.end_offset:
                continue
            first = max(first, self._runs.end_offset)
            if first > self._runs.end_offset:
                self._runs.append(Run(self._runs.end_offset, first - 1, _AVAILABLE, 0))
            self._runs.append(Run(first, last, DeliveryState(state), count))
        self._runs.trim()

    @property
    def start_offset(self) -> int:
        """The first offset that is not settled."""
        return self._runs.start_offset

    @property
    def end_offset(self) -> int:
        """The first offset that no member has had."""
        return self._runs.end_offset

    @property
    def in_flight(self) -> int:
        return self.end_offset - self.start_offset

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(self._runs)

    @property
    def unsettled_records(self) -> dict[int, int]:
        """Records in flight that are not settled, by how often they were delivered."""
        found: dict[int, int] = {}
        for run in self._runs:
            if not run.is_terminal:
                found[run.delivery_count] = found.get(run.delivery_count, 0) + run.count
        return found

    @property
    def delivery_complete_count(self) -> int:
        return sum(run.count for run in self._runs if run.is_terminal)

    # --- acquiring ---------------------------------------------------------------------------

    def next_fetch_offset(self, limits: ShareLimits) -> int | None:
        """The offset at which a fetch begins to read; None while as many records as allowed are in
        flight and none of them is available."""
        for run in self._runs:
            if run.state is _AVAILABLE:
                return run.first
        return self.end_offset if self.in_flight < limits.record_locks_max else None

    def acquire(
        self,
        wish: Acquire,
        fetch_offset: int,
        batches: Iterable[FetchedBatch],
        limits: ShareLimits,
        now_ms: int,
    ) -> list[AcquiredRecords]:
        """Give the member records of these batches, which were read from `fetch_offset` on.

        Available offsets that the log lacks, and those of dropped batches, are archived: nobody
        would ever acknowledge them.
        """
        acquired: list[AcquiredRecords] = []
        deadline_ms = now_ms + limits.lock_duration_ms
        position, left = fetch_offset, wish.records_max
        for batch in batches:
            if left <= 0:
                break
            if batch.last_offset < position:
                continue
            if batch.first_offset > position:
                self._archive_available(position, batch.first_offset - 1)
                position = batch.first_offset
            if batch.is_dropped:
                self._archive_available(position, batch.last_offset)
                position = batch.last_offset + 1
                continue
            # Only one entry may grow over a batch's end, and only up to the wished size.
            may_join = bool(acquired) and _size(acquired[-1]) < wish.batch_size
            taken, is_piece = self._take(
                wish, position, batch, left, limits, deadline_ms, is_first=not acquired
            )
            for first, last, count in taken:
                left -= last - first + 1
                before = acquired[-1] if may_join else None
                if before is not None and (before.last_offset + 1, before.delivery_count) == (
                    first, count,
                ):  # fmt: skip
                    acquired[-1] = before._replace(last_offset=last)
                else:
                    acquired.append(AcquiredRecords(first, last, count))
                    may_join = True
            position = batch.last_offset + 1
            if is_piece or self.end_offset < position:
                break  # the rest comes later, or as many records as allowed are in flight
        self._runs.trim()
        return acquired

    def _take(
        self,
        wish: Acquire,
        first: int,
        batch: FetchedBatch,
        left: int,
        limits: ShareLimits,
        deadline_ms: int,
        *,
        is_first: bool,
    ) -> tuple[list[AcquiredRecords], bool]:
        """Acquire what is free from `first` to the batch's end. True: the fetch ends here, because
        records come in pieces.

        is_first: the fetch has acquired nothing yet.
        """
        taken: list[AcquiredRecords] = []
        is_strict = wish.mode is AcquireMode.RECORD_LIMIT
        last, end_offset = batch.last_offset, self.end_offset
        for run in self._runs.cut(first, min(last, end_offset - 1)):
            if run.state is not _AVAILABLE:
                continue
            piece = _piece_of(run, batch, limits)
            if piece is not None and (taken or not is_first):
                return taken, True
            most = run.count if piece is None else piece
            most = min(most, left) if is_strict else most
            if most <= 0:
                break
            if most < run.count:
                run = self._runs.cut(run.first, run.first + most - 1)[0]
            run.state, run.member_id, run.lock_deadline_ms = _ACQUIRED, wish.member_id, deadline_ms
            run.delivery_count += 1
            left -= run.count
            taken.append(AcquiredRecords(run.first, run.last, run.delivery_count))
            if piece is not None:
                return taken, True
        first = max(first, end_offset)
        room = min(left, limits.record_locks_max - self.in_flight)
        if first <= last and room > 0:
            if is_strict:
                last = min(last, first + room - 1)
            self._runs.append(Run(first, last, _ACQUIRED, 1, wish.member_id, deadline_ms))
            taken.append(AcquiredRecords(first, last, 1))
        return taken, False

    def _archive_available(self, first: int, last: int) -> None:
        """Archive what is available, or new, from `first` to `last`."""
        end_offset = self.end_offset
        for run in self._runs.cut(first, min(last, end_offset - 1)):
            if run.state is _AVAILABLE:
                self._settle(run, _ARCHIVED)
        if last >= end_offset:
            run = Run(max(first, end_offset), last, _ARCHIVED, 0, is_unwritten=True)
            self._runs.append(run)
            self.revision += 1

    # --- acknowledging -----------------------------------------------------------------------

    def acknowledge(
        self,
        member_id: str,
        batches: Sequence[AcknowledgementBatch],
        limits: ShareLimits,
        now_ms: int,
    ) -> Rejected | None:
        """Apply a member's acknowledgements: all of them, or none.

        Refusals: INVALID_REQUEST for ranges that are no ranges, go backward or overlap, for unknown
        types and for another number of types than records; INVALID_RECORD_STATE for a record that
        this member does not hold. Records that retention has deleted meanwhile are passed over.
        """
        spans: list[tuple[int, int, AcknowledgeType]] = []
        position = -1
        for batch in batches:
            refused = _shape_problem(batch, position)
            if refused is not None:
                return Rejected(ErrorCode.INVALID_REQUEST, refused)
            position = batch.last_offset
            spans.extend(_spans(batch))
        if not limits.may_renew and any(kind is AcknowledgeType.RENEW for _, _, kind in spans):
            text = "share.renew.acknowledge.enable is false: this group's members cannot renew"
            return Rejected(ErrorCode.INVALID_REQUEST, text)
        for first, last, _ in batches:
            refused = self._hold_problem(member_id, max(first, self._deleted_below), last)
            if refused is not None:
                return Rejected(ErrorCode.INVALID_RECORD_STATE, refused)
        for first, last, kind in spans:
            for run in self._runs.cut(max(first, self._deleted_below), last):
                if kind is AcknowledgeType.RENEW:
                    run.lock_deadline_ms = now_ms + limits.lock_duration_ms
                elif kind is AcknowledgeType.RELEASE:
                    self._release(run, limits)
                elif kind is AcknowledgeType.REJECT:
                    self._give_up(run, limits, is_rejected=True)
                else:
                    self._settle(run, _STATE_AFTER[kind])
        self._runs.trim()
        return None

    def _hold_problem(self, member_id: str, first: int, last: int) -> str | None:
        """The reason why the member does not hold all of these records, or None."""
        if first > last:
            return None
        if first < self.start_offset or last >= self.end_offset:
            return f"the records {first} to {last} are not in flight"
        for run in self._runs.within(first, last):
            if run.state is not _ACQUIRED:
                return f"record {max(run.first, first)} is not acquired"
            if run.member_id != member_id:
                return f"record {max(run.first, first)} is acquired by another member"
        return None

    def release_member(self, member_id: str, limits: ShareLimits) -> int:
        """Give up all records that the member holds; it counts as a delivery. Returns their
        number."""
        return self._release_all((r for r in self._runs if r.member_id == member_id), limits)

    # --- time and the log --------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """The time at which the first lock ends; None if no record is locked."""
        return min((r.lock_deadline_ms for r in self._runs if r.state is _ACQUIRED), default=None)

    def expire(self, limits: ShareLimits, now_ms: int) -> int:
        """Release the records whose locks have ended. Returns their number."""
        return self._release_all((r for r in self._runs if r.lock_deadline_ms <= now_ms), limits)

    def _release_all(self, runs: Iterable[Run], limits: ShareLimits) -> int:
        held = [run for run in runs if run.state is _ACQUIRED]
        for run in held:
            self._release(run, limits)
        self._runs.trim()
        return sum(run.count for run in held)

    def on_log_start(self, log_start_offset: int) -> bool:
        """Retention or DeleteRecords has moved the log's start: what is below is gone. True if that
        was in flight. Dead letters of gone records stay due, and hold the start offset."""
        if log_start_offset <= max(self.start_offset, self._deleted_below):
            return False
        self._deleted_below = log_start_offset
        self._drop_deleted()
        self.revision += 1
        return True

    def _drop_deleted(self) -> None:
        below = self._deleted_below
        if all(
            run.state is not _ARCHIVING for run in self._runs.within(self.start_offset, below - 1)
        ):
            self._runs.drop_below(max(below, self.start_offset))
        else:
            for run in self._runs.cut(self.start_offset, below - 1):
                if not run.is_terminal and run.state is not _ARCHIVING:
                    self._settle(run, _ARCHIVED)
            if self.end_offset < below:
                gone = Run(self.end_offset, below - 1, _ARCHIVED, 0, is_unwritten=True)
                self._runs.append(gone)
        self._runs.trim()

    def _release(self, run: Run, limits: ShareLimits) -> None:
        is_over = run.delivery_count >= limits.delivery_count_limit
        if is_over:
            self._give_up(run, limits, is_rejected=False)
        else:
            self._settle(run, _AVAILABLE)

    def _give_up(self, run: Run, limits: ShareLimits, *, is_rejected: bool) -> None:
        run.is_rejected = is_rejected and limits.has_dead_letters
        self._settle(run, _ARCHIVING if limits.has_dead_letters else _ARCHIVED)

    def _settle(self, run: Run, state: DeliveryState) -> None:
        run.state, run.member_id, run.lock_deadline_ms = state, NOBODY, 0
        run.is_unwritten = True
        self.revision += 1
        if state is _ARCHIVING:
            self._may_have_letters = True

    # --- dead letters ------------------------------------------------------------------------

    def dead_letters(self, limits: ShareLimits, records_max: int) -> list[DeadLetters]:
        """The first records that wait for their place in the dead-letter topic, ascending. None of
        them is one that the share coordinator has not been told of: another leader would deliver
        it."""
        found: list[DeadLetters] = []
        if not self._may_have_letters:
            return found  # each write asks, and most groups never have any
        is_any_left = False
        for run in self._runs:
            if records_max <= 0:
                break
            is_any_left = is_any_left or run.state is _ARCHIVING
            if run.state is not _ARCHIVING or run.is_unwritten:
                continue
            last = min(run.last, run.first + records_max - 1)
            # An earlier leader knew the reason; what is left of it is the count, as in Kafka.
            is_rejected = run.is_rejected or run.delivery_count < limits.delivery_count_limit
            found.append(DeadLetters(run.first, last, run.delivery_count, is_rejected))
            records_max -= last - run.first + 1
        self._may_have_letters = is_any_left
        return found

    def archive(self, first: int, last: int) -> None:
        """The records of this range that were dead letters are so no more."""
        for run in self._runs.cut(first, last):
            if run.state is _ARCHIVING:
                run.is_rejected = False
                self._settle(run, _ARCHIVED)
        self._runs.trim()
        if self.start_offset < self._deleted_below:
            self._drop_deleted()

    # --- the share coordinator ---------------------------------------------------------------

    def keep_start(self) -> None:
        """Let the next write have the start offset, though nothing else has changed."""
        self.revision += 1

    @property
    def has_unwritten(self) -> bool:
        return self.revision > self._taken_revision

    def take_write(self) -> StateWrite:
        """All changes since the last call, for the share coordinator."""
        batches = []
        for run in self._runs:
            if not run.is_unwritten:
                continue
            run.is_unwritten = False
            state, count = run.state, run.delivery_count
            if state is _ACQUIRED:
                # It was released, and another member has it already: the release is what counts.
                state, count = _AVAILABLE, count - 1
            batches.append(StateBatch(run.first, run.last, state.value, count))
        self._runs.join()
        self._taken_revision = self.revision
        return StateWrite(
            self.revision, self.start_offset, self.delivery_complete_count, tuple(batches)
        )


def _piece_of(run: Run, batch: FetchedBatch, limits: ShareLimits) -> int | None:
    """Records of this run that one fetch gets, because they were delivered often; None for all."""
    limit = limits.delivery_count_limit
    threshold = max(2, -(-limit // 2))
    if run.delivery_count < threshold:
        return None
    if run.delivery_count >= limit - 1:
        return 1
    size = batch.last_offset - batch.first_offset + 1
    return min(max(size >> (run.delivery_count - threshold + 1), 1), run.count)


def _size(entry: AcquiredRecords) -> int:
    return entry.last_offset - entry.first_offset + 1


def _shape_problem(batch: AcknowledgementBatch, position: int) -> str | None:
    """The error in a range whatever the records' states are, or None. position: the last offset of
    the range before it."""
    first, last, types = batch
    if first < 0 or last < first:
        return f"the records {first} to {last} are no range"
    if first <= position:
        return f"the range from {first} to {last} does not come after {position}"
    if len(types) not in (1, last - first + 1):
        return f"{len(types)} types for the records {first} to {last}"
    unknown = next((kind for kind in types if kind not in _KNOWN_TYPES), None)
    return None if unknown is None else f"the type {unknown} of an acknowledgement is not known"


_KNOWN_TYPES = frozenset(int(kind) for kind in AcknowledgeType)


def _spans(batch: AcknowledgementBatch) -> Iterable[tuple[int, int, AcknowledgeType]]:
    """The ranges of equal types in one batch."""
    first, last, types = batch
    if len(types) == 1:
        yield first, last, AcknowledgeType(types[0])
        return
    start = 0
    for index in range(1, len(types) + 1):
        if index == len(types) or types[index] != types[start]:
            yield first + start, first + index - 1, AcknowledgeType(types[start])
            start = index
