"""The search for a linearization, compared with trying all orders and with Porcupine."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from kvorum.chaos.checks.linearizability import NEVER, TimedCall, is_linearizable
from kvorum.chaos.checks.topics import (
    CREATE,
    DELETE,
    IS_ABSENT,
    IS_PRESENT,
    LEAVE_ABSENT,
    LEAVE_PRESENT,
    step,
)

PORCUPINE = Path(__file__).parents[1] / "clients" / "porcupine"
READS = (IS_PRESENT, IS_ABSENT)
OPERATIONS = (CREATE, CREATE, DELETE, DELETE, *READS, LEAVE_PRESENT, LEAVE_ABSENT)
HISTORIES = 600
BUILD_TIMEOUT_S = 100


def call(operation: str, invoked: float, returned: float = NEVER) -> TimedCall[str]:
    return TimedCall(
        operation=operation, invoked=invoked, returned=returned, is_read=operation in READS
    )


def judged(*calls: TimedCall[str]) -> bool:
    return is_linearizable(calls, (False,), step)


def random_history(rng: random.Random, size_max: int) -> list[TimedCall[str]]:
    """Mostly linearizable: the answers are those of a register at a moment within each operation,
    and some are others."""
    size = rng.randint(1, size_max)
    spans = [sorted(rng.sample(range(4 * size), 2)) for _ in range(size)]
    moments = sorted((rng.uniform(*span), span) for span in spans)
    history: list[TimedCall[str]] = []
    is_present = False
    for _, (invoked, returned) in moments:
        operation = rng.choice([o for o in OPERATIONS if step(is_present, o)])
        if operation in (CREATE, DELETE) and rng.random() < 0.25:
            is_present = rng.choice((is_present, *step(is_present, operation)))
            history.append(call(operation, invoked))
            continue
        is_present = step(is_present, operation)[0]
        if rng.random() < 0.3:
            operation = rng.choice(OPERATIONS)
        history.append(call(operation, invoked, returned))
    return history


def by_all_orders(calls: Sequence[TimedCall[str]]) -> bool:
    """The definition: a permutation in real-time order that the register allows."""
    certain = [item for item in calls if item.returned < NEVER]
    unknown = [item for item in calls if item.returned == NEVER]
    for count in range(len(unknown) + 1):
        for chosen in itertools.combinations(unknown, count):
            for order in itertools.permutations([*certain, *chosen]):
                if _respects_time(order) and _is_allowed(order):
                    return True
    return False


def _respects_time(order: Sequence[TimedCall[str]]) -> bool:
    return all(
        later.returned >= earlier.invoked
        for place, earlier in enumerate(order)
        for later in order[place + 1 :]
    )


def _is_allowed(order: Sequence[TimedCall[str]]) -> bool:
    is_present = False
    for item in order:
        states = step(is_present, item.operation)
        if not states:
            return False
        is_present = states[0]
    return True


def test_operations_in_turn_must_follow_each_other():
    assert judged(call(CREATE, 0, 1), call(IS_PRESENT, 2, 3), call(DELETE, 4, 5))
    assert not judged(call(CREATE, 0, 1), call(IS_ABSENT, 2, 3))
    assert not judged(call(CREATE, 0, 1), call(CREATE, 2, 3))
    assert not judged(call(DELETE, 0, 1))


def test_overlapping_operations_may_take_either_order():
    assert judged(call(CREATE, 0, 5), call(IS_ABSENT, 1, 2), call(IS_PRESENT, 3, 4))
    assert not judged(call(CREATE, 0, 5), call(IS_PRESENT, 1, 2), call(IS_ABSENT, 3, 4))


def test_an_unknown_operation_has_its_effect_late_or_never_but_not_early():
    assert judged(call(CREATE, 0), call(IS_ABSENT, 1, 2), call(IS_PRESENT, 3, 4))
    assert judged(call(CREATE, 0), call(IS_ABSENT, 1, 2))
    assert not judged(call(IS_PRESENT, 0, 1), call(CREATE, 2))


def test_an_unknown_operation_has_its_effect_once():
    assert not judged(
        call(CREATE, 0), call(DELETE, 1, 2), call(DELETE, 3, 4), call(IS_ABSENT, 5, 6)
    )
    assert judged(call(CREATE, 0), call(CREATE, 0), call(DELETE, 1, 2), call(DELETE, 3, 4))


def test_many_unknown_operations_do_not_multiply_the_search():
    unknown = [call(CREATE, n) for n in range(40)] + [call(DELETE, n) for n in range(40)]
    answered = [call((IS_PRESENT, IS_ABSENT)[n % 2], 100 + n, 100.5 + n) for n in range(40)]
    assert judged(*unknown, *answered)
    assert not judged(*unknown, *answered, *[call(DELETE, 200 + n, 200.5 + n) for n in range(80)])


def test_the_search_agrees_with_trying_all_orders():
    rng = random.Random(33)
    verdicts = set()
    for _ in range(HISTORIES):
        history = random_history(rng, 6)
        verdict = judged(*history)
        assert verdict == by_all_orders(history), history
        verdicts.add(verdict)
    assert verdicts == {True, False}


@pytest.mark.live
def test_the_search_agrees_with_porcupine(tmp_path):
    go = shutil.which("go")
    if go is None:
        pytest.skip("needs Go")
    program = tmp_path / "porcupine"
    built = subprocess.run(
        [go, "build", "-o", str(program), "."],
        cwd=PORCUPINE, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False,
    )  # fmt: skip
    if "dial tcp" in built.stderr or "no such host" in built.stderr:
        pytest.skip(f"needs Porcupine's Go module: {built.stderr.splitlines()[-1]}")
    assert built.returncode == 0, built.stderr
    rng = random.Random(34)
    histories = [random_history(rng, 14) for _ in range(HISTORIES)]
    lines = [
        json.dumps(
            [
                {
                    "op": item.operation,
                    "invoked": item.invoked,
                    "returned": None if item.returned == NEVER else item.returned,
                }
                for item in history
            ]
        )
        for history in histories
    ]
    done = subprocess.run(
        [str(program)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    theirs = [line == "true" for line in done.stdout.split()]
    ours = [judged(*history) for history in histories]
    assert ours == theirs
    assert 50 < sum(ours) < HISTORIES - 50
