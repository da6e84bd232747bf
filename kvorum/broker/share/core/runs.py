"""The records in flight of a share-partition, as runs of equal records. Pure.

The runs cover the offsets from the start offset to the end offset without holes. Only different
fates split a run; equal neighbours become one again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from kvorum.broker.share_state.batches import DeliveryState

NOBODY = ""
_TERMINAL = (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED)


@dataclass(slots=True)
class Run:
    """Records with one fate. Offsets are inclusive.

    member_id, lock_deadline_ms: while ACQUIRED; the time is monotonic.
    is_unwritten: the share coordinator has not been told of the last change that it must keep.
    is_rejected: while ARCHIVING: a member has rejected the records.
    """

    first: int
    last: int
    state: DeliveryState
    delivery_count: int
    member_id: str = NOBODY
    lock_deadline_ms: int = 0
    is_unwritten: bool = False
    is_rejected: bool = False

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    @property
    def is_terminal(self) -> bool:
        return self.state in _TERMINAL

    def is_like(self, other: Run) -> bool:
        """True if the two may become one run."""
        return (
            self.state == other.state
            and self.delivery_count == other.delivery_count
            and self.member_id == other.member_id
            and self.lock_deadline_ms == other.lock_deadline_ms
            and self.is_unwritten == other.is_unwritten
            and self.is_rejected == other.is_rejected
        )


class Runs:
    """start_offset, end_offset: of what is in flight; end_offset is exclusive."""

    __slots__ = ("_firsts", "_runs", "start_offset")

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self._runs: list[Run] = []
        self._firsts: list[int] = []

    @property
    def end_offset(self) -> int:
        return self._runs[-1].last + 1 if self._runs else self.start_offset

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def append(self, run: Run) -> None:
        """Add a run at the end offset."""
        last = self._runs[-1] if self._runs else None
        if last is not None and last.is_like(run):
            last.last = run.last
        else:
            self._runs.append(run)
            self._firsts.append(run.first)

    def within(self, first: int, last: int) -> Iterator[Run]:
        """The runs that have offsets from `first` to `last`, in order."""
        index = max(bisect_right(self._firsts, first) - 1, 0)
        while index < len(self._runs) and self._runs[index].first <= last:
            if self._runs[index].last >= first:
                yield self._runs[index]
            index += 1

    def cut(self, first: int, last: int) -> list[Run]:
        """The runs from `first` to `last`, split at both ends so that they have nothing else."""
        self._split(first)
        self._split(last + 1)
        return list(self.within(first, last))

    def _split(self, offset: int) -> None:
        """Let a run begin at `offset`, if one has it."""
        index = bisect_right(self._firsts, offset) - 1
        if index < 0:
            return
        run = self._runs[index]
        if run.first < offset <= run.last:
            rest = Run(
                offset, run.last, run.state, run.delivery_count, run.member_id,
                run.lock_deadline_ms, run.is_unwritten, run.is_rejected,
            )  # fmt: skip
            run.last = offset - 1
            self._runs.insert(index + 1, rest)
            self._firsts.insert(index + 1, offset)

    def trim(self) -> None:
        """Move the start over records that need no delivery any more."""
        done = 0
        while done < len(self._runs) and self._runs[done].is_terminal:
            done += 1
        if done:
            self.start_offset = self._runs[done - 1].last + 1
            del self._runs[:done], self._firsts[:done]

    def drop_below(self, offset: int) -> None:
        """Forget everything below `offset`, which becomes the start."""
        self._split(offset)
        gone = bisect_right(self._firsts, offset - 1)
        del self._runs[:gone], self._firsts[:gone]
        self.start_offset = offset

    def join(self) -> None:
        """Make equal neighbours one run."""
        kept: list[Run] = []
        for run in self._runs:
            if kept and kept[-1].is_like(run):
                kept[-1].last = run.last
            else:
                kept.append(run)
        if len(kept) < len(self._runs):
            self._runs = kept
            self._firsts = [run.first for run in kept]
