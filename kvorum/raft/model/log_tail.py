"""The core's own model of the log: where it begins, where it ends, and the epochs in it.

It mirrors the log on disk as it will be once all effects issued so far are carried out. The core
reads nothing else of the log, so a recorded run can be replayed without a disk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from kvorum.raft.model.values import BatchSpan, OffsetAndEpoch
from kvorum.raft.model.voters import VoterHistory, VoterSet
from kvorum.runtime.errors import InvariantViolated, invariant

NO_SNAPSHOT = OffsetAndEpoch(0, 0)


class LogTail:
    """The log as the core knows it.

    epochs: (epoch, start offset) pairs, both ascending.
    end_offset: exclusive.
    flushed_end_offset: the end of what is fsynced, and so may be acknowledged; never above
        end_offset.
    generation: how often the log was truncated or replaced.
    snapshots: the snapshots on this node's disk, ascending. The log begins at the end of the
        oldest, so that any of them plus the log behind it gives the same state.
    voters: the voter sets in the log; see `raft.model.voters`.
    """

    def __init__(
        self,
        *,
        epochs: Sequence[tuple[int, int]] = (),
        end_offset: int = 0,
        flushed_end_offset: int = 0,
        snapshots: Sequence[OffsetAndEpoch] = (),
        voter_sets: Iterable[tuple[int, VoterSet]] = (),
    ) -> None:
        self.end_offset = end_offset
        self.flushed_end_offset = flushed_end_offset
        self.generation = 0
        self.snapshots = list(snapshots)
        self.voters = VoterHistory(voter_sets)
        self._epochs = [epoch for epoch, _ in epochs]
        self._starts = [start for _, start in epochs]

    @property
    def base(self) -> OffsetAndEpoch:
        """Where the log begins, and the epoch of the record just below."""
        return self.snapshots[0] if self.snapshots else NO_SNAPSHOT

    @property
    def start_offset(self) -> int:
        return self.base.offset

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, 0 for an empty log."""
        return self._epochs[-1] if self._epochs else self.base.epoch

    @property
    def epochs(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def append(self, span: BatchSpan) -> None:
        """Append a batch that continues the log. Raises InvariantViolated if it does not continue
        it."""
        if span.base_offset != self.end_offset or span.last_offset < span.base_offset:
            raise InvariantViolated(f"batch {span} does not continue the log at {self.end_offset}")
        if span.epoch < self.last_epoch:
            raise InvariantViolated(f"epoch of {span} below {self.last_epoch}")
        if not self._epochs or span.epoch > self._epochs[-1]:
            self._epochs.append(span.epoch)
            self._starts.append(span.base_offset)
        if span.voters is not None:
            self.voters.append(span.voters_offset, span.voters)
        self.end_offset = span.last_offset + 1

    def truncate(self, end_offset: int) -> None:
        """Drop everything at and above end_offset."""
        invariant(
            end_offset >= self.start_offset,
            f"cannot truncate to {end_offset}, the log begins at {self.start_offset}",
        )
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
        self.voters.truncate(end_offset)
        self.end_offset = min(self.end_offset, end_offset)
        self.flushed_end_offset = min(self.flushed_end_offset, end_offset)
        self.generation += 1

    def add_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        """Add a snapshot that this node made of a prefix of its log. Only the first one trims the
        log."""
        invariant(
            self.is_prefix(snapshot), f"{snapshot} names no prefix of the log at {self.end_offset}"
        )
        first = not self.snapshots
        self.snapshots.append(snapshot)
        if first:
            self._trim()

    def drop_snapshots(self, count: int) -> None:
        """Drop the oldest `count` snapshots; the log then begins at the end of the next one."""
        invariant(0 < count < len(self.snapshots), f"cannot drop {count} of {self.snapshots}")
        del self.snapshots[:count]
        self._trim()

    def replace(self, snapshot: OffsetAndEpoch, voters: VoterSet | None) -> None:
        """Replace the log by an empty one at the end of a snapshot that another node made."""
        invariant(
            snapshot.offset > self.start_offset, f"{snapshot} is not ahead of {self.snapshots}"
        )
        in_force = voters if voters is not None else self.voters.at(self.end_offset)
        self.snapshots = [snapshot]
        self._epochs.clear()
        self._starts.clear()
        self.voters = VoterHistory([(snapshot.offset - 1, in_force)] if len(in_force) else [])
        self.end_offset = self.flushed_end_offset = snapshot.offset
        self.generation += 1

    def is_prefix(self, snapshot: OffsetAndEpoch) -> bool:
        """True if the log holds the record before snapshot.offset, with that epoch."""
        if not self.start_offset < snapshot.offset <= self.end_offset:
            return False
        index = bisect_right(self._starts, snapshot.offset - 1)
        return index > 0 and self._epochs[index - 1] == snapshot.epoch

    def flushed(self, end_offset: int, generation: int) -> bool:
        """Note a finished flush. Return False if it changes nothing.

        Bad sequence that `generation` prevents:
        1. A leader's flush up to offset 10 is under way.
        2. The leader becomes a follower, truncates to 5 and appends the new leader's records up to
           8.
        3. The old flush finishes. Offset 8 would count as on disk, although nothing above 5 was
           fsynced.
        """
        if generation != self.generation or end_offset <= self.flushed_end_offset:
            return False
        self.flushed_end_offset = min(end_offset, self.end_offset)
        return True

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The largest epoch in the log that is not above `epoch`, and its end offset (exclusive).

        The epoch of the record just below the log counts too. The result is (start of the log, 0)
        if every known epoch is above `epoch`.
        """
        index = bisect_right(self._epochs, epoch)
        if index == 0:
            base = self.base
            return base if base.epoch <= epoch else OffsetAndEpoch(base.offset, 0)
        end = self._starts[index] if index < len(self._starts) else self.end_offset
        return OffsetAndEpoch(end, self._epochs[index - 1])

    def snapshot_for(self, fetch_offset: int, last_fetched_epoch: int) -> OffsetAndEpoch | None:
        """The newest snapshot, if a log that ends there cannot be continued from this log; else
        None.

        This log has been trimmed: it lacks the record to send next, or the last record to compare
        (KIP-595, Fetch).
        """
        base = self.base
        behind = fetch_offset < base.offset or last_fetched_epoch < base.epoch
        return self.snapshots[-1] if behind and self.snapshots else None

    def divergence(self, fetch_offset: int, last_fetched_epoch: int) -> OffsetAndEpoch | None:
        """None if a log ending at (fetch_offset, last_fetched_epoch) is a prefix of this log.

        Otherwise the largest epoch in this log that is not above last_fetched_epoch, and its end.
        The two logs cannot agree beyond that (KIP-595, Fetch).
        """
        end = self.end_of_epoch(last_fetched_epoch)
        if end.epoch != last_fetched_epoch or end.offset < fetch_offset:
            return end
        return None

    def truncation_offset(self, diverging: OffsetAndEpoch) -> int:
        """The offset to truncate this log to, given the leader's answer `diverging`.

        If this log has that epoch, the smaller of its two ends. If not, the end of the next smaller
        epoch in this log, because no later record can be in the leader's log.
        """
        own = self.end_of_epoch(diverging.epoch)
        if own.epoch == diverging.epoch:
            return min(own.offset, diverging.offset)
        return own.offset

    def _trim(self) -> None:
        start_offset = self.start_offset
        drop = max(bisect_right(self._starts, start_offset) - 1, 0)
        if self._starts and self.end_offset <= start_offset:
            drop = len(self._starts)
        del self._starts[:drop]
        del self._epochs[:drop]
        if self._starts:
            self._starts[0] = max(self._starts[0], start_offset)
        self.voters.trim(start_offset)
