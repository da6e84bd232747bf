"""The check of clients' histories: valid histories pass, and every kind of invalid one fails."""

from __future__ import annotations

import random

import pytest

from kvorum.chaos.checks.linearizability import NEVER, TimedCall, is_linearizable
from kvorum.chaos.sim.kernel.checks import CheckFailed
from kvorum.chaos.sim.quorum.model.linearizability import (
    ClientOperation,
    Kind,
    Outcome,
    check_linearizable,
    stale_reads,
)


def append(value, invoked, returned, position, outcome=Outcome.OK):
    return ClientOperation(
        kind=Kind.APPEND, invoked=invoked, returned=returned, value=value, outcome=outcome,
        count=position,
    )  # fmt: skip


def read(count, last, invoked, returned):
    return ClientOperation(
        kind=Kind.READ, invoked=invoked, returned=returned, outcome=Outcome.OK, count=count,
        last=last,
    )  # fmt: skip


LIST = [b"a", b"b", b"c"]
GOOD = [
    append(b"a", 0, 3, 1),
    append(b"b", 1, 2, 2),  # overlaps the first: either may stand first
    read(2, b"b", 4, 9),
    append(b"c", 5, 6, 3),
    read(2, b"b", 5, 8),  # overlaps the append of c
    read(3, b"c", 7, 8),
]


def check_fires(operations, committed, match):
    with pytest.raises(CheckFailed, match=f"^Linearizable: .*{match}"):
        check_linearizable(operations, committed)


def test_history_with_overlaps_passes():
    check_linearizable(GOOD, LIST)
    check_linearizable([], [])
    check_linearizable([read(0, b"", 0, 1), *GOOD], LIST)


def test_unknown_append_may_be_there_or_not_and_a_refused_one_must_not():
    lost = append(b"x", 0, 1, 0, Outcome.UNKNOWN)
    late = append(b"c", 0, 1, 0, Outcome.UNKNOWN)  # commits long after its client gave up
    check_linearizable([lost, late, append(b"a", 5, 6, 1), append(b"b", 7, 8, 2)], LIST)
    refused = append(b"x", 0, 1, 0, Outcome.FAILED)
    check_linearizable([refused], [])
    check_fires([refused], [b"x"], "refused and is there")


@pytest.mark.parametrize(
    ("operations", "committed", "match"),
    [
        ([append(b"a", 0, 1, 1)], [], "acknowledged and is lost"),
        ([], [b"a"], "never appended"),
        ([append(b"a", 0, 1, 1)], [b"a", b"a"], "committed twice"),
        ([append(b"a", 0, 1, 2)], [b"a"], "was told 2, stands at 1"),
        ([append(b"a", 0, 1, 1), read(2, b"x", 2, 3)], [b"a"], "saw b'x' at position 2"),
        ([append(b"a", 0, 1, 1), read(1, b"x", 2, 3)], [b"a"], "committed there is b'a'"),
        ([append(b"a", 0, 1, 1), read(0, b"", 2, 3)], [b"a"], "saw less"),
        (
            [append(b"a", 0, 9, 1), read(1, b"a", 1, 2), read(0, b"", 3, 4)],
            [b"a"],
            "saw less",
        ),
        ([append(b"b", 0, 1, 2), append(b"a", 2, 3, 1)], [b"a", b"b"], "stands before it"),
        ([read(1, b"a", 0, 1), append(b"a", 2, 3, 1)], [b"a"], "stands before it"),
        (
            [append(b"b", 0, 1, 2), append(b"a", 2, 3, 0, Outcome.UNKNOWN)],
            [b"a", b"b"],
            "stands before it",
        ),
    ],
)  # fmt: skip
def test_history_that_cannot_be_fires(operations, committed, match):
    check_fires(operations, committed, match)


def test_stale_reads_are_those_that_miss_an_append_acknowledged_before():
    history = [append(b"a", 0, 1, 1), read(0, b"", 1, 2), read(0, b"", 2, 3), read(1, b"a", 4, 5)]
    assert stale_reads(history, [b"a"]) == 1


def is_linearizable_by_search(operations, committed):
    """Slow and obvious: try every order that respects real time."""
    pending = list(operations)

    def search(left, length):
        if not left:
            return length == len(committed)
        for op in left:
            if any(other.returned < op.invoked for other in left if other is not op):
                continue
            rest = [other for other in left if other is not op]
            is_append = op.kind is Kind.APPEND
            if is_append and committed[length : length + 1] != [op.value]:
                continue
            reached = length + is_append
            if op.count == reached and search(rest, reached):
                return True
        return False

    return search(pending, 0)


def test_agrees_with_a_search_over_all_orders():
    rng = random.Random(4)
    verdicts = set()
    for _ in range(400):
        count = rng.randint(1, 3)
        committed = [b"%d" % i for i in range(count)]
        operations = []
        for index, value in enumerate(committed):
            start = rng.randrange(8)
            operations.append(append(value, start, start + rng.randint(1, 4), index + 1))
        for _ in range(rng.randint(0, 2)):
            start, seen = rng.randrange(10), rng.randint(0, count)
            last = committed[seen - 1] if seen else b""
            operations.append(read(seen, last, start, start + rng.randint(1, 4)))
        expected = is_linearizable_by_search(operations, committed)
        try:
            check_linearizable(operations, committed)
            verdict = True
        except CheckFailed:
            verdict = False
        assert verdict == expected, operations
        verdicts.add(verdict)
    assert verdicts == {True, False}


def by_search(operations: list[ClientOperation], committed: list[bytes]) -> bool:
    """The same question for the search that needs no log: the state is the list's length."""
    calls = [
        TimedCall(
            operation=(op.kind, op.value, op.count, op.last, op.outcome),
            invoked=op.invoked,
            returned=NEVER if op.outcome is Outcome.UNKNOWN else op.returned,
            is_read=op.kind is Kind.READ,
        )
        for op in operations
        if op.outcome is not Outcome.FAILED
    ]
    # A read at the end sees the whole log.
    last = committed[-1] if committed else b""
    end = (Kind.READ, b"", len(committed), last, Outcome.OK)
    calls.append(TimedCall(operation=end, invoked=1 << 30, returned=1 << 31, is_read=True))

    def step(length: int, operation: tuple) -> tuple[int, ...]:
        kind, value, count, last, outcome = operation
        if kind is Kind.READ:
            seen = committed[length - 1] if length else b""
            return (length,) if (count, last) == (length, seen) else ()
        if length == len(committed) or committed[length] != value:
            return ()
        is_told_right = outcome is Outcome.UNKNOWN or count == length + 1
        return (length + 1,) if is_told_right else ()

    return is_linearizable(calls, (0,), step)


def test_check_by_the_log_agrees_with_the_search():
    rng = random.Random(5)
    verdicts = set()
    for _ in range(400):
        committed = [bytes([97 + n]) for n in range(rng.randint(0, 4))]
        operations = []
        for position, value in enumerate(committed, 1):
            begin = rng.randrange(12)
            outcome = rng.choice((Outcome.OK, Outcome.OK, Outcome.UNKNOWN))
            operations.append(append(value, begin, begin + rng.randint(1, 8), position, outcome))
        for _ in range(rng.randint(0, 3)):
            count, begin = rng.randint(0, len(committed)), rng.randrange(16)
            value = committed[count - 1] if count else b""
            operations.append(read(count, value, begin, begin + rng.randint(1, 8)))
        try:
            check_linearizable(operations, committed)
            verdict = True
        except CheckFailed:
            verdict = False
        assert verdict == by_search(operations, committed), (operations, committed)
        verdicts.add(verdict)
    assert verdicts == {True, False}
