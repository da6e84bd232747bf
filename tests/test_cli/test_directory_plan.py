"""Plans for moves between the data directories of a broker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.cli.directory_plan import TOLERANCE, Directory, Move, NoTarget, balanced, drained


def directory(path: str, *sizes: int, cordoned: bool = False) -> Directory:
    return Directory(
        path=path, is_cordoned=cordoned, sizes={(path, n): size for n, size in enumerate(sizes)}
    )


def test_a_drained_directory_gives_each_replica_to_the_emptiest_other() -> None:
    found = [directory("a", 5, 30, 10), directory("b", 20), directory("c", 0)]
    assert drained(found, "a") == [
        Move(("a", 1), 30, "a", "c"), Move(("a", 2), 10, "a", "b"), Move(("a", 0), 5, "a", "b"),
    ]  # fmt: skip


def test_a_cordoned_directory_takes_nothing() -> None:
    found = [directory("a", 5), directory("b", cordoned=True), directory("c", 100)]
    assert drained(found, "a") == [Move(("a", 0), 5, "a", "c")]
    assert balanced([directory("a", 50, 50), directory("b", cordoned=True)]) == []
    assert drained([directory("a"), directory("b", cordoned=True)], "a") == []
    assert balanced([]) == [], "every directory is offline"
    with pytest.raises(NoTarget, match="not cordoned: a stays"):
        drained([directory("a", 5), directory("b", cordoned=True)], "a")


def test_directories_are_balanced_with_few_moves() -> None:
    assert balanced([directory("a", 10, 20, 30, 40), directory("b")]) == [
        Move(("a", 3), 40, "a", "b"), Move(("a", 0), 10, "a", "b")
    ]  # fmt: skip
    assert balanced([directory("a", 50), directory("b", 51)]) == []
    assert balanced([directory("a", 100), directory("b")]) == []


SIZES = st.lists(st.integers(0, 1_000), max_size=12)


@given(st.lists(st.tuples(SIZES, st.booleans()), min_size=1, max_size=5))
def test_a_plan_makes_no_directory_fuller_than_the_fullest_was(shape) -> None:
    found = [
        directory(str(at), *sizes, cordoned=cordoned) for at, (sizes, cordoned) in enumerate(shape)
    ]
    before = {d.path: sum(d.sizes.values()) for d in found}
    after = dict(before)
    moves = balanced(found)
    assert len({move.replica for move in moves}) == len(moves)
    cordoned = {d.path for d in found if d.is_cordoned}
    for move in moves:
        assert move.target not in cordoned and move.replica[0] == move.source
        after[move.source] -= move.size_bytes
        after[move.target] += move.size_bytes
    assert max(after.values()) <= max(before.values())
    assert sum(after.values()) == sum(before.values())
    assert 0 < TOLERANCE < 1
