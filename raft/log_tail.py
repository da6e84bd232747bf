"""The core's own knowledge of the log: where it begins and ends and which epochs it holds.

Mirrors what the log on disk will hold once the effects issued so far are carried out; the core
asks nobody else, so a recorded run replays without a disk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from raft.model import BatchSpan, OffsetAndEpoch
from runtime.errors import invariant


class LogTail:
    """epochs: (epoch, start offset) pairs, both ascending. end_offset is exclusive.

    flushed_end_offset: what this node may vouch for; never above end_offset.
    generation: how often the log was truncated.
    """

    def __init__(
        self,
        *,
        epochs: Sequence[tuple[int, int]] = (),
        start_offset: int = 0,
        end_offset: int = 0,
        flushed_end_offset: int = 0,
    ) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.flushed_end_offset = flushed_end_offset
        self.generation = 0
        self._epochs = [epoch for epoch, _ in epochs]
        self._starts = [start for _, start in epochs]

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, 0 for an empty log."""
        return self._epochs[-1] if self._epochs else 0

    @property
    def epochs(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def append(self, span: BatchSpan) -> None:
        """Take a batch that continues the log. Raises InvariantViolated if it does not."""
        invariant(
            span.base_offset == self.end_offset and span.last_offset >= span.base_offset,
            f"batch {span} does not continue the log at {self.end_offset}",
        )
        if not self._epochs or span.epoch > self._epochs[-1]:
            self._epochs.append(span.epoch)
            self._starts.append(span.base_offset)
        invariant(span.epoch == self._epochs[-1], f"epoch of {span} below {self.last_epoch}")
        self.end_offset = span.last_offset + 1

    def truncate(self, end_offset: int) -> None:
        """Drop everything at and above end_offset."""
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
        self.end_offset = min(self.end_offset, end_offset)
        self.flushed_end_offset = min(self.flushed_end_offset, end_offset)
        self.generation += 1

    def flushed(self, end_offset: int, generation: int) -> bool:
        """Note a finished flush; False if it says nothing new.

        Bad sequence that `generation` prevents: a leader's flush of 10 is under way; it becomes
        a follower, truncates to 5 and appends the new leader's records up to 8; the old flush
        ends and 8 would count as on disk although nothing after 5 was synced.
        """
        if generation != self.generation or end_offset <= self.flushed_end_offset:
            return False
        self.flushed_end_offset = min(end_offset, self.end_offset)
        return True

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The largest epoch held that is not above `epoch`, and where it ends (exclusive).

        (start of the log, 0) if all epochs held are above it.
        """
        index = bisect_right(self._epochs, epoch)
        if index == 0:
            return OffsetAndEpoch(self.start_offset, 0)
        end = self._starts[index] if index < len(self._starts) else self.end_offset
        return OffsetAndEpoch(end, self._epochs[index - 1])

    def divergence(self, fetch_offset: int, last_fetched_epoch: int) -> OffsetAndEpoch | None:
        """None if a log ending at (fetch_offset, last_fetched_epoch) is a prefix of this one.

        Otherwise where this log's largest epoch not above it ends: the other log cannot agree
        beyond that (kraft.md section 5, step 3).
        """
        end = self.end_of_epoch(last_fetched_epoch)
        if end.epoch != last_fetched_epoch or end.offset < fetch_offset:
            return end
        return None

    def truncation_offset(self, diverging: OffsetAndEpoch) -> int:
        """Where to cut this log, given the leader's answer `diverging`.

        Same epoch held here: the lesser of both ends. Else the end of the next smaller epoch held
        here, as nothing later can be the leader's.
        """
        own = self.end_of_epoch(diverging.epoch)
        if own.epoch == diverging.epoch:
            return min(own.offset, diverging.offset)
        return own.offset
