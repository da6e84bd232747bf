"""When a share-partition's leader may have lost what it knew of records in flight.

A leader keeps in memory which member holds which record, and how often a record was delivered since
the share coordinator was last told. A new leader begins without that. So does a leader that gets
no answer from the share coordinator. Between two such moments the share-partition is calm.
"""

from __future__ import annotations

from bisect import bisect_right

from kvorum.chaos.checks.gather import Key
from kvorum.chaos.checks.results import whole
from kvorum.chaos.history import FAULT_BEGIN, OBSERVE, Event, details_of

_NEVER_US = 1 << 62
#: A leader asks an unreachable share coordinator for 10 s, and then reads its state anew.
_AFTERMATH_US = 11_000_000
#: A new leader is observed so much later at the most: brokers are asked every 100 ms, and an answer
#: takes up to a second.
_OBSERVED_WITHIN_US = 3_000_000

Span = tuple[int, int]
"""Begin and end in microseconds."""


class Calm:
    """Folds faults and observed leaders; afterwards it tells which times were calm."""

    def __init__(self) -> None:
        self._begun: dict[object, int] = {}
        self._faults: list[Span] = []
        self._epochs: dict[Key, int] = {}
        self._moves: dict[Key, list[Span]] = {}
        self._merged: dict[Key, tuple[list[int], list[int]]] = {}

    def on_fault(self, event: Event) -> None:
        """The begin or the end of a fault, of any kind: also a cut link costs a member what it
        holds."""
        fault = details_of(event).get("id")
        now_us = int(event.time_ms * 1000)
        if event.f == FAULT_BEGIN:
            injection_ms = details_of(event).get("injection_ms")
            lasted_ms = injection_ms if isinstance(injection_ms, int | float) else 0.0
            self._begun[fault] = now_us - int(lasted_ms * 1000)
        elif fault in self._begun:
            self._faults.append((self._begun.pop(fault), now_us + _AFTERMATH_US))

    def on_observation(self, event: Event) -> None:
        """A broker's view of a partition."""
        details = details_of(event)
        epoch = whole(details.get("leader_epoch"))
        if (event.f, details.get("what")) != (OBSERVE, "partition") or epoch < 0:
            return
        key = (event.topic or "", -1 if event.partition is None else event.partition)
        known = self._epochs.setdefault(key, epoch)
        if epoch > known:
            self._epochs[key] = epoch
            now_us = int(event.time_ms * 1000)
            self._moves.setdefault(key, []).append((now_us - _OBSERVED_WITHIN_US, now_us))

    def is_observed(self, key: Key) -> bool:
        """True if the history tells who led the partition."""
        return key in self._epochs

    def is_calm(self, key: Key, begin_us: int, end_us: int) -> bool:
        """True if the partition's leader forgot nothing from `begin_us` to `end_us`. Asked after
        the whole history was read."""
        if key not in self._epochs:
            return False
        if key not in self._merged:
            self._merged[key] = self._merge(key)
        begins, ends = self._merged[key]
        before = bisect_right(begins, end_us)
        return before == 0 or ends[before - 1] < begin_us

    def _merge(self, key: Key) -> tuple[list[int], list[int]]:
        """The begins and ends of the times that are not calm, ascending, without overlaps."""
        open_faults = [(begin, _NEVER_US) for begin in self._begun.values()]
        begins: list[int] = []
        ends: list[int] = []
        for begin, end in sorted([*self._faults, *open_faults, *self._moves.get(key, ())]):
            if ends and begin <= ends[-1]:
                ends[-1] = max(ends[-1], end)
            else:
                begins.append(begin)
                ends.append(end)
        return begins, ends
