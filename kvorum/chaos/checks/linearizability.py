"""Linearizability of small histories: a search by Wing and Gong with Lowe's memo.

Every operation takes effect at one moment between its invocation and its return. The search builds
such an order one operation at a time: the next one may be any whose invocation is not after the
first return of those that are left. A configuration (what is done, the object's state) that was
seen before leads nowhere new, so each is looked at once.

An operation that never returned has an effect at any time after its invocation, or none. Of several
such operations that do the same only the first invoked need be tried, so they cost a count and not
a subset. A read that fits the present state is taken at once: that forbids nothing later.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kvorum.runtime.errors import KvorumError

CONFIGURATIONS_MAX = 1_000_000

NEVER = float("inf")
"""The return of an operation whose outcome is unknown."""

O = TypeVar("O", bound=Hashable)  # noqa: E741
S = TypeVar("S", bound=Hashable)


class SearchTooLong(KvorumError):
    """The search looked at CONFIGURATIONS_MAX configurations and decided nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCall(Generic[O]):
    """One operation of a history. Moments only need an order. is_read: it changes no state."""

    operation: O
    invoked: float
    returned: float
    is_read: bool = False


def is_linearizable(
    calls: Iterable[TimedCall[O]], initial: Iterable[S], step: Callable[[S, O], Sequence[S]]
) -> bool:
    """True if an order of the operations exists that the object allows.

    initial: the states in which the object may begin.
    step: the states to which an operation may lead, none if it cannot have its result in this
        state.
    Raises SearchTooLong when so many operations overlap that CONFIGURATIONS_MAX do not decide it.
    """
    search = _Search(calls, step)
    return any(search.succeeds_from(state) for state in initial)


@dataclass(frozen=True, slots=True)
class _Configuration(Generic[S]):
    """done: bit n stands for the certain operation first + n; all before `first` are done.
    used: the number of each kind of uncertain operation that took effect.
    """

    first: int
    done: int
    used: tuple[int, ...]
    state: S


class _Search(Generic[O, S]):
    def __init__(self, calls: Iterable[TimedCall[O]], step: Callable[[S, O], Sequence[S]]) -> None:
        ordered = sorted(calls, key=lambda call: call.invoked)
        self._certain = [call for call in ordered if call.returned < NEVER]
        uncertain: dict[O, list[float]] = {}
        for call in ordered:
            if call.returned == NEVER and not call.is_read:
                uncertain.setdefault(call.operation, []).append(call.invoked)
        self._uncertain = list(uncertain.items())
        self._step = step

    def succeeds_from(self, state: S) -> bool:
        """True if all certain operations can be put in order."""
        begin = _Configuration(0, 0, (0,) * len(self._uncertain), state)
        waiting, seen = [begin], {begin}
        while waiting:
            configuration = waiting.pop()
            if configuration.first == len(self._certain):
                return True
            for following in self._following(configuration):
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
            if len(seen) > CONFIGURATIONS_MAX:
                raise SearchTooLong(
                    f"no verdict after {CONFIGURATIONS_MAX} configurations: too many of the "
                    f"{len(self._certain)} operations overlap; let fewer clients use one object"
                )
        return False

    def _following(self, at: _Configuration[S]) -> Iterator[_Configuration[S]]:
        enabled, first_return = self._enabled(at)
        for index in enabled:
            call = self._certain[index]
            if call.is_read and at.state in self._step(at.state, call.operation):
                yield self._with(at, index, at.state)
                return
        for kind, (operation, invoked) in enumerate(self._uncertain):
            count = at.used[kind]
            if count < len(invoked) and invoked[count] <= first_return:
                used = (*at.used[:kind], count + 1, *at.used[kind + 1 :])
                for state in self._step(at.state, operation):
                    if state != at.state:
                        yield _Configuration(at.first, at.done, used, state)
        for index in enabled:
            for state in self._step(at.state, self._certain[index].operation):
                yield self._with(at, index, state)

    def _enabled(self, at: _Configuration[S]) -> tuple[list[int], float]:
        """The certain operations that may come next, and the first return of those left."""
        found: list[int] = []
        first_return = NEVER
        for index in range(at.first, len(self._certain)):
            call = self._certain[index]
            if call.invoked > first_return:
                break
            if not at.done >> (index - at.first) & 1:
                found.append(index)
                first_return = min(first_return, call.returned)
        return [n for n in found if self._certain[n].invoked <= first_return], first_return

    def _with(self, at: _Configuration[S], index: int, state: S) -> _Configuration[S]:
        done = at.done | 1 << (index - at.first)
        first = at.first
        while done & 1:
            done >>= 1
            first += 1
        return _Configuration(first, done, at.used, state)
