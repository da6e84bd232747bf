"""Checks if a history of the replicated list is linearizable.

The object is an append-only list of unique values; `read` gives its length and last value. Every
operation has a moment of invocation and one of return. The committed log fixes the one order in
which the appends can have happened: another order would contradict the state machines, which the
clients of any later leader see. So the check needs no search. Give every operation the length of
the list right after it (its position); then the history is linearizable if and only if

1. every acknowledged append is in the log, once, at the acknowledged place; no refused append is;
   no append is that was not requested;
2. every read saw a prefix of the log;
3. if A returned before B was invoked, A's position is below B's when B appends, and not above it
   when B reads.

Sufficient: order operations by (position, appends first, invocation); by 3 this respects real time,
and by 1 and 2 each result is right. Necessary: each point states a property of any valid order. An
append whose outcome is unknown may be in the log, then at any time after its invocation, or not at
all. Cost: O(n log n). The search for histories without a log is
`chaos.checks.linearizability`; a test compares both.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvorum.chaos.sim.kernel.checks import check

NAME = "Linearizable"
NEVER = 1 << 62
"""Moment of return of an operation that never returned."""


class Kind(enum.Enum):
    """The kind of operation."""

    APPEND = "append"
    READ = "read"


class Outcome(enum.Enum):
    """The client's knowledge of the outcome, in every world. UNKNOWN: no answer, or an ambiguous
    one; the operation may take effect later."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True, kw_only=True)
class ClientOperation:
    """One operation of the history. Moments only need an order: any clock that all operations
        share.

    value: the appended value.
    count, last: the list's length and last value that a read saw; for an acknowledged append count
        is the length after it.
    """

    kind: Kind
    invoked: int
    value: bytes = b""
    returned: int = NEVER
    outcome: Outcome = Outcome.UNKNOWN
    count: int = 0
    last: bytes = b""


def check_linearizable(operations: Iterable[ClientOperation], committed: Sequence[bytes]) -> None:
    """Raise CheckFailed if the history contradicts the committed values in their order."""
    position_of = {value: index for index, value in enumerate(committed, 1)}
    check(len(position_of) == len(committed), NAME, "a value is committed twice")
    history = list(operations)
    appended = {op.value for op in history if op.kind is Kind.APPEND}
    phantoms = [value for value in committed if value not in appended]
    check(not phantoms, NAME, f"committed, but never appended: {phantoms[:3]}")
    placed: list[tuple[int, ClientOperation]] = []
    for op in history:
        if op.kind is Kind.READ:
            if op.outcome is Outcome.OK:
                placed.append((op.count, op))
                check_prefix(op, committed)
            continue
        position = position_of.get(op.value)
        if position is None:
            check(op.outcome is not Outcome.OK, NAME, f"{op.value!r} was acknowledged and is lost")
            continue
        check(op.outcome is not Outcome.FAILED, NAME, f"{op.value!r} was refused and is there")
        is_told_right = op.outcome is not Outcome.OK or op.count == position
        check(is_told_right, NAME, f"{op.value!r} was told {op.count}, stands at {position}")
        placed.append((position, op))
    check_real_time(placed)


def check_prefix(read: ClientOperation, committed: Sequence[bytes]) -> None:
    """Check rule 2 for one read: it saw a prefix of the committed values, without a value that
    vanished or was never written."""
    expected = committed[read.count - 1] if 0 < read.count <= len(committed) else b""
    check(
        0 <= read.count <= len(committed) and read.last == expected,
        NAME,
        f"a read saw {read.last!r} at position {read.count}, committed there is {expected!r}",
    )


def check_real_time(placed: Iterable[tuple[int, ClientOperation]]) -> None:
    """Check rule 3 for operations with their positions."""
    by_invocation = sorted(placed, key=lambda item: item[1].invoked)
    returns = sorted(
        (item for item in by_invocation if item[1].outcome is Outcome.OK),
        key=lambda item: item[1].returned,
    )
    done = 0
    floor, witness = 0, None
    for position, op in by_invocation:
        while done < len(returns) and returns[done][1].returned < op.invoked:
            if returns[done][0] > floor:
                floor, witness = returns[done]
            done += 1
        if op.kind is Kind.READ:
            check(
                position >= floor, NAME, f"{op} began after {witness} ended and saw less: {floor}"
            )
        else:
            check(position > floor, NAME, f"{op} began after {witness} ended and stands before it")


def stale_reads(operations: Iterable[ClientOperation], committed: Sequence[bytes]) -> int:
    """The number of answered reads that saw less than was acknowledged before they began."""
    position_of = {value: index for index, value in enumerate(committed, 1)}
    answered = [op for op in operations if op.outcome is Outcome.OK]
    returns = sorted(answered, key=lambda op: op.returned)
    done = floor = stale = 0
    for op in sorted(answered, key=lambda item: item.invoked):
        while done < len(returns) and returns[done].returned < op.invoked:
            earlier = returns[done]
            if earlier.kind is Kind.APPEND:
                floor = max(floor, position_of.get(earlier.value, 0))
            done += 1
        stale += op.kind is Kind.READ and op.count < floor
    return stale
