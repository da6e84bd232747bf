"""Guarantees about share groups (KIP-932): settled records stay settled, every record reaches a
member, and one member holds a record at a time.

Members state each delivery after it, and each acknowledgement before and after it. A record may
have waited in a member's client since before its delivery, and meanwhile the member may have lost
it, by a broken connection or a fail-over. Such a late delivery breaks no promise. So a delivery
counts as later than a moment only in two cases:

- the member joined after that moment, and the time since was calm; or
- it began to acknowledge the record after that moment, and the leader confirmed that.

A leader that was replaced and does not know it yet may give out records that members have accepted
at its successor; no share coordinator takes their acknowledgements from it.

`held-by-two` and the counting half of `too-many-deliveries` need to know what a leader knew. They
judge a delivery only in a calm time (`share_calm`): the partition was observed, and from the joins
of the members concerned to the delivery no fault was in force or had ended less than 11 s before,
and no new leader of the partition was seen.

An acknowledgement that failed or has no answer proves nothing, except that the member may hold the
record no longer once it has begun.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kvorum.chaos.checks import catalogue
from kvorum.chaos.checks.columns import Ints, blocks_of
from kvorum.chaos.checks.evidence import PartitionEvidence, distinct, is_in
from kvorum.chaos.checks.gather import ACKNOWLEDGING, CONFIRMED, DELIVERED, Fold, Key
from kvorum.chaos.checks.results import Board, Findings, whole
from kvorum.chaos.checks.share_calm import Calm
from kvorum.chaos.history import (
    ACCEPT,
    FAULT_BEGIN,
    FAULT_END,
    INVOKE,
    JOIN,
    LEAVE,
    OBSERVE,
    REJECT,
    Event,
    details_of,
)

_NEVER_US = 1 << 62


@dataclass(slots=True, kw_only=True)
class _Session:
    """A member, from its join to its end, in microseconds. Limits of its group are -1 if they are
    not known."""

    joined_us: int
    left_us: int = _NEVER_US
    lock_us: int = -1
    deliveries_max: int = -1


@dataclass(slots=True, kw_only=True)
class _Hold:
    """A delivery that its member has not begun to acknowledge."""

    session: _Session
    count: int


@dataclass(slots=True)
class _Record:
    """One record of a share group.

    holds: by member.
    settled_us: by check, when the first acknowledgement of its kind was confirmed.
    reported: (check, member) pairs that have their finding.
    calm_since_us, calm_deliveries: the deliveries that one leader counted, and the earliest moment
        of their first.
    """

    holds: dict[str, _Hold] = field(default_factory=dict)
    settled_us: dict[str, int] = field(default_factory=dict)
    reported: set[tuple[str, str]] = field(default_factory=set)
    calm_since_us: int = _NEVER_US
    calm_deliveries: int = 0


_SETTLED_BY = {
    CONFIRMED[ACCEPT]: catalogue.ACCEPTED_AGAIN,
    CONFIRMED[REJECT]: catalogue.REJECTED_DELIVERED,
}
_WORDS = {catalogue.ACCEPTED_AGAIN: "accepted", catalogue.REJECTED_DELIVERED: "rejected"}


class ShareGroups:
    """The fold over members, faults and leaders, which then judges one partition after the other.
    Its state has the size of the members' sessions and of the faults."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._sessions: dict[str, _Session] = {}
        self._drained: dict[str, set[str]] = {}
        self._joined: set[str] = set()
        self._calm = Calm()

    def folds(self) -> dict[str, Fold]:
        """By the function of the events that each takes."""
        return {
            JOIN: self._join,
            LEAVE: self._leave,
            OBSERVE: self._observe,
            FAULT_BEGIN: self._calm.on_fault,
            FAULT_END: self._calm.on_fault,
        }

    def _join(self, event: Event) -> None:
        if event.type == INVOKE:
            return
        limits = details_of(event)
        lock_ms = whole(limits.get("lock_duration_ms"))
        self._joined.add(event.group or "")
        self._sessions[event.process] = _Session(
            joined_us=int(event.time_ms * 1000),
            lock_us=lock_ms * 1000 if lock_ms >= 0 else -1,
            deliveries_max=whole(limits.get("delivery_count_limit")),
        )

    def _leave(self, event: Event) -> None:
        session = self._sessions.get(event.process)
        if session is not None:
            session.left_us = min(session.left_us, int(event.time_ms * 1000))

    def _observe(self, event: Event) -> None:
        details = details_of(event)
        if details.get("what") == "drained":
            groups = self._drained.setdefault(event.topic or "", set())
            groups.add(str(details.get("group")))
        self._calm.on_observation(event)

    # --- one partition -----------------------------------------------------------------------

    def examine(self, partition: PartitionEvidence, board: Board) -> None:
        """Judge a partition, after the whole history was read."""
        self._look_for_undelivered(partition)
        judge = _PartitionJudge(partition, self._sessions, self._calm, board)
        shared = partition.shared
        # Record by record, each one's rows in the order of the history.
        order = np.lexsort((shared[:, 5], shared[:, 4]))
        for block in blocks_of(len(order)):
            for row in shared[order[block]].tolist():
                judge.take(row)

    def _look_for_undelivered(self, partition: PartitionEvidence) -> None:
        """Each group that was drained got every acknowledged record.

        Says nothing of topics that are compacted or trimmed. A record whose deliveries all vanished
        on their way to members, as often as the limit allows, is archived and counts as a finding.
        """
        found = self._board[catalogue.NEVER_DELIVERED]
        if partition.is_compacted or partition.is_trimmed:
            return
        shared = partition.shared
        acked = partition.acked_offsets
        acked = distinct(acked[acked >= 0])
        for group in sorted(self._drained.get(partition.topic, ())):
            mine = _of_group(shared, partition, group)
            delivered = distinct(mine[mine[:, 0] == DELIVERED, 5])
            missing = acked[~is_in(acked, delivered)]
            found.examined += len(acked)
            found.add_all(
                missing.tolist(),
                len(missing),
                lambda offset, group=group: found.add(  # type: ignore[misc]
                    f"no member of share group {group} got offset {offset} of {partition.name}",
                    topic=partition.topic,
                    partition=partition.number,
                    offset=offset,
                ),
            )

    def finish(self, board: Board) -> None:
        """Note the groups about which `never-delivered` says nothing."""
        drained = set().union(*self._drained.values())
        for group in sorted(self._joined - drained):
            board[catalogue.NEVER_DELIVERED].note(
                f"share group {group} was not drained: records may have been on their way"
            )


def _of_group(shared: Ints, partition: PartitionEvidence, group: str) -> Ints:
    """The rows of one group."""
    numbers = [at for at in set(shared[:, 4].tolist()) if partition.group(at) == group]
    rows: Ints = shared[shared[:, 4] == (numbers[0] if numbers else -1)]
    return rows


class _PartitionJudge:
    """Takes the rows of one partition: all of one record, then all of the next."""

    def __init__(
        self,
        partition: PartitionEvidence,
        sessions: dict[str, _Session],
        calm: Calm,
        board: Board,
    ) -> None:
        self._partition = partition
        self._key: Key = (partition.topic, partition.number)
        self._sessions = sessions
        self._calm = calm
        self._board = board
        self._place = (-1, -1)
        self._record = _Record()

    def take(self, row: Sequence[int]) -> None:
        """One row of PartitionEvidence.shared."""
        kind, time_us, invoked_us, process, group, offset, count = row
        member = self._partition.process(process)
        if (group, offset) != self._place:
            self._place, self._record = (group, offset), _Record()
        record = self._record
        if kind == DELIVERED:
            session = self._sessions.get(member)
            if session is not None:
                self._delivered(record, member, session, time_us, offset, count)
        elif kind == ACKNOWLEDGING:
            record.holds.pop(member, None)
        else:
            self._confirmed(record, member, kind, invoked_us, time_us, offset)

    # --- settled records ---------------------------------------------------------------------

    def _confirmed(
        self, record: _Record, member: str, kind: int, invoked_us: int, time_us: int, offset: int
    ) -> None:
        """The leader says that the member held the record when it acknowledged it."""
        self._held_at(record, member, invoked_us, offset)
        check = _SETTLED_BY.get(kind)
        if check is not None:
            self._board[check].examined += 1
            record.settled_us.setdefault(check, time_us)

    def _held_at(self, record: _Record, member: str, since_us: int, offset: int) -> None:
        """The member certainly held the record at `since_us` or later, of a leader whose word
        counts."""
        for check, settled_us in record.settled_us.items():
            if since_us >= settled_us:
                self._report(check, record, member, settled_us, offset)

    def _report(
        self, check: str, record: _Record, member: str, settled_us: int, offset: int
    ) -> None:
        if (check, member) in record.reported:
            return
        record.reported.add((check, member))
        self._enter(
            self._board[check],
            f"{member} got offset {offset} of {self._partition.name} after it was "
            f"{_WORDS[check]} at {settled_us / 1e6:.3f} s",
            offset,
        )

    # --- deliveries --------------------------------------------------------------------------

    def _delivered(
        self,
        record: _Record,
        member: str,
        session: _Session,
        now_us: int,
        offset: int,
        count: int,
    ) -> None:
        for check, settled_us in record.settled_us.items():
            if session.joined_us >= settled_us and self._calm.is_calm(
                self._key, settled_us, now_us
            ):
                self._report(check, record, member, settled_us, offset)
        self._look_at_limit(record, session, now_us, offset, count)
        held = self._board[catalogue.HELD_BY_TWO]
        held.examined += self._calm.is_calm(self._key, session.joined_us, now_us)
        for other, hold in list(record.holds.items()):
            if other == member or hold.session.left_us <= now_us:
                del record.holds[other]
            elif self._is_second(hold, session, now_us, count):
                self._enter(
                    held,
                    f"{member} got offset {offset} of {self._partition.name} at "
                    f"{now_us / 1e6:.3f} s while {other} held it",
                    offset,
                )
        record.holds[member] = _Hold(session=session, count=count)

    def _is_second(self, hold: _Hold, session: _Session, now_us: int, count: int) -> bool:
        """True if a delivery now, with this count, must be later than that of the hold, which must
        be in force.

        1. The leader counted upwards, so a lower count would be an older delivery that was late.
        2. The other member's lock began after it joined, so it lasts for a lock's time from then.
        """
        if hold.session.lock_us < 0 or now_us >= hold.session.joined_us + hold.session.lock_us:
            return False
        if count and hold.count and count < hold.count:
            return False
        since_us = min(hold.session.joined_us, session.joined_us)
        return self._calm.is_calm(self._key, since_us, now_us)

    def _look_at_limit(
        self, record: _Record, session: _Session, now_us: int, offset: int, count: int
    ) -> None:
        """A delivery count is the leader's own, so it may never exceed the limit. Deliveries are
        counted here as well, but a new leader may not know of those before it."""
        found = self._board[catalogue.TOO_MANY_DELIVERIES]
        limit = session.deliveries_max
        if limit < 0:
            return
        found.examined += 1
        since_us = min(record.calm_since_us, session.joined_us)
        if self._calm.is_calm(self._key, since_us, now_us):
            record.calm_since_us = since_us
            record.calm_deliveries += 1
        else:
            record.calm_since_us, record.calm_deliveries = session.joined_us, 1
        seen = max(count, record.calm_deliveries)
        if seen > limit:
            self._enter(
                found,
                f"offset {offset} of {self._partition.name} was delivered for the {seen}th time, "
                f"the limit is {limit}",
                offset,
            )

    def _enter(self, found: Findings, message: str, offset: int) -> None:
        found.add(
            message,
            topic=self._partition.topic,
            partition=self._partition.number,
            offset=offset,
        )
