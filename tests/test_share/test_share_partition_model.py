"""A share-partition against a slow model that keeps every record by itself."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvorum.broker.share.core.share_partition import Acquire, ShareLimits, SharePartition
from kvorum.broker.share.core.states import (
    AcknowledgementBatch,
    AcquireMode,
    FetchedBatch,
)
from kvorum.broker.share_state.batches import StateBatch

LOCK_MS = 50
LIMITS = ShareLimits(lock_duration_ms=LOCK_MS, delivery_count_limit=3, record_locks_max=12)
FREE, HELD, DONE, OUT = "AVAILABLE", "ACQUIRED", "ACKNOWLEDGED", "ARCHIVED"
DYING = "ARCHIVING"
MEMBERS = st.sampled_from(["a", "b", "c"])


@dataclass
class Record:
    state: str
    deliveries: int
    member: str = ""
    deadline_ms: int = 0

    def release(self, limits: ShareLimits) -> None:
        self.state, self.member = FREE, ""
        if self.deliveries >= limits.delivery_count_limit:
            self.give_up(limits)

    def give_up(self, limits: ShareLimits) -> None:
        self.state, self.member = (DYING if limits.has_dead_letters else OUT), ""


class Model(RuleBasedStateMachine):
    limits = LIMITS

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.part = SharePartition(0)
        self.records: dict[int, Record] = {}
        self.start = self.end = self.deleted = 0
        self.kept: dict[int, tuple[str, int]] = {}
        self.kept_start = 0
        self.log: list[FetchedBatch] = []

    @rule(size=st.integers(1, 4), hole=st.integers(0, 2), is_dropped=st.booleans())
    def produce(self, size: int, hole: int, is_dropped: bool) -> None:
        first = (self.log[-1].last_offset + 1 if self.log else 0) + hole
        self.log.append(FetchedBatch(first, first + size - 1, is_dropped))

    @rule(member=MEMBERS, most=st.integers(1, 6), mode=st.sampled_from(AcquireMode))
    def fetch(self, member: str, most: int, mode: AcquireMode) -> None:
        offset = self.part.next_fetch_offset(self.limits)
        free = [o for o in range(self.start, self.end) if self.records[o].state == FREE]
        room = self.end - self.start < LIMITS.record_locks_max
        assert offset == (free[0] if free else self.end if room else None)
        if offset is None:
            return
        batches = [batch for batch in self.log if batch.last_offset >= offset]
        wish = Acquire(member_id=member, records_max=most, mode=mode)
        got = self.part.acquire(wish, offset, batches, self.limits, self.now_ms)
        given = {o: count for first, last, count in got for o in range(first, last + 1)}
        assert given == self._acquired(member, most, mode, offset, batches)
        self._trim()

    def _acquired(self, member, most, mode, offset, batches):
        given: dict[int, int] = {}
        position = offset
        for batch in batches:
            if len(given) >= most:
                break
            for hole in range(position, batch.first_offset):
                self._archive(hole)
            offsets = range(max(position, batch.first_offset), batch.last_offset + 1)
            position = batch.last_offset + 1
            if batch.is_dropped:
                for dropped in offsets:
                    self._archive(dropped)
                continue
            known = [o for o in offsets if o < self.end]
            fresh = [o for o in offsets if o >= self.end]
            for o in known:
                if self.records[o].state != FREE or (mode == 1 and len(given) >= most):
                    continue
                if self.records[o].deliveries >= 2:
                    # Half of the limit, and the last but one: such a record comes alone.
                    if not given:
                        given[o] = self._give(o, member)
                    return given
                given[o] = self._give(o, member)
            room = min(most - len(given), LIMITS.record_locks_max - (self.end - self.start))
            if room > 0:
                for o in fresh if mode == 0 else fresh[:room]:
                    self.records[o] = Record(FREE, 0)
                    given[o] = self._give(o, member)
                    self.end = o + 1
            if self.end < position:
                break
        return given

    def _give(self, offset: int, member: str) -> int:
        record = self.records[offset]
        record.state, record.member = HELD, member
        record.deadline_ms = self.now_ms + LOCK_MS
        record.deliveries += 1
        return record.deliveries

    def _archive(self, offset: int) -> None:
        record = self.records.setdefault(offset, Record(FREE, 0))
        if record.state == FREE:
            record.state = OUT
        self.end = max(self.end, offset + 1)

    @rule(member=MEMBERS, data=st.data())
    def acknowledge(self, member: str, data: st.DataObject) -> None:
        first = data.draw(st.integers(max(self.start - 1, 0), self.end + 1))
        count = data.draw(st.integers(1, 4))
        kinds = data.draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))
        last = first + count - 1
        rows = [AcknowledgementBatch(first, last, tuple(kinds))]
        refused = self.part.acknowledge(member, rows, self.limits, self.now_ms)
        mine = [
            o < self.deleted
            or (
                o >= self.start
                and o < self.end
                and (self.records[o].state, self.records[o].member) == (HELD, member)
            )
            for o in range(first, last + 1)
        ]
        assert (refused is None) == all(mine)
        if refused is not None:
            return
        for offset, kind in zip(range(first, last + 1), kinds, strict=True):
            if offset < self.deleted:
                continue
            record = self.records[offset]
            if kind == 4:
                record.deadline_ms = self.now_ms + LOCK_MS
            elif kind == 2:
                record.release(self.limits)
            elif kind == 3:
                record.give_up(self.limits)
            else:
                record.state, record.member = (DONE if kind == 1 else OUT), ""
        self._trim()

    @rule(ahead=st.integers(0, 6))
    def delete(self, ahead: int) -> None:
        """Retention moves the log's start: what waits for its dead letter stays, the rest goes."""
        moved = self.part.on_log_start(self.start + ahead)
        assert moved == (self.start + ahead > max(self.start, self.deleted))
        if not moved:
            return
        self.deleted = self.start + ahead
        for offset in range(self.start, self.deleted):
            record = self.records.setdefault(offset, Record(FREE, 0))
            if record.state != DYING:
                record.state, record.member = OUT, ""
        self.end = max(self.end, self.deleted)
        self._trim()

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        self.part.release_member(member, self.limits)
        for record in self.records.values():
            if record.member == member:
                record.release(self.limits)
        self._trim()

    @rule(after_ms=st.integers(0, 60))
    def wait(self, after_ms: int) -> None:
        self.now_ms += after_ms
        self.part.expire(self.limits, self.now_ms)
        for record in self.records.values():
            if record.state == HELD and record.deadline_ms <= self.now_ms:
                record.release(self.limits)
        self._trim()

    @rule()
    def write(self) -> None:
        write = self.part.take_write()
        self.kept_start = write.start_offset
        for first, last, state, count in write.batches:
            for offset in range(first, last + 1):
                self.kept[offset] = ({0: FREE, 2: DONE, 3: DYING, 4: OUT}[state], count)
        settled = {o for o, r in self.records.items() if r.state in (DONE, OUT)}
        assert write.delivery_complete_count == len([o for o in settled if o >= self.start])
        # A settled record is kept as settled: no fail-over brings it back.
        for offset in settled:
            assert offset < self.kept_start or self.kept[offset][0] == self.records[offset].state

    @rule(most=st.integers(1, 5))
    def bury(self, most: int) -> None:
        """Dead letters that are kept as such are written and archived, oldest first."""
        letters = self.part.dead_letters(self.limits, most)
        got = [o for first, last, *_ in letters for o in range(first, last + 1)]
        known = [
            o
            for o, record in sorted(self.records.items())
            if o >= self.start and record.state == DYING and self.kept.get(o, "")[:1] == (DYING,)
        ]
        assert got == known[:most]
        if got:
            self.part.archive(got[0], got[-1])
        for offset in got:
            self.records[offset].state = OUT
        self._trim()

    @rule()
    def fail_over(self) -> None:
        self.write()
        rows = [
            StateBatch(o, o, {FREE: 0, DONE: 2, DYING: 3, OUT: 4}[state], count)
            for o, (state, count) in sorted(self.kept.items())
            if o >= self.kept_start
        ]
        self.part = SharePartition(self.kept_start, rows)
        self.end = max([self.kept_start, *(row.last_offset + 1 for row in rows)])
        self.start, self.deleted = self.kept_start, 0
        kept = {row.first_offset: row for row in rows}
        self.records = {
            o: Record(self.kept[o][0], self.kept[o][1]) if o in kept else Record(FREE, 0)
            for o in range(self.start, self.end)
        }
        self._trim()

    def _trim(self) -> None:
        while self.start < self.end and self.records[self.start].state in (DONE, OUT):
            self.start += 1

    @invariant()
    def agrees(self) -> None:
        assert (self.part.start_offset, self.part.end_offset) == (self.start, self.end)
        seen = {}
        for run in self.part.runs:
            for offset in range(run.first, run.last + 1):
                seen[offset] = (run.state.name, run.delivery_count, run.member_id)
        assert seen == {
            o: (self.records[o].state, self.records[o].deliveries, self.records[o].member)
            for o in range(self.start, self.end)
        }


class ModelWithDeadLetters(Model):
    limits = dataclasses.replace(LIMITS, has_dead_letters=True)


TestSharePartition = Model.TestCase
TestWithDeadLetters = ModelWithDeadLetters.TestCase
TestSharePartition.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestWithDeadLetters.settings = TestSharePartition.settings
