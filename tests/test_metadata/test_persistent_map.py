"""The image's maps, against plain dicts."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from kvorum.metadata.image.persistent_map import ONE_BUCKET_MAX, Map

KEYS = st.integers(0, 200)
CHANGES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers())), max_size=200)
"""Keys with their new values; None removes the key."""


def changed(model: dict[int, int], changes: list[tuple[int, int | None]]) -> dict[int, int]:
    after = dict(model)
    for key, value in changes:
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value
    return after


def assert_is(made: Map[int, int], model: dict[int, int]) -> None:
    assert len(made) == len(model) and bool(made) == bool(model)
    assert sorted(made) == sorted(made.keys()) == sorted(model)
    assert sorted(made.items()) == sorted(model.items())
    assert sorted(made.values()) == sorted(model.values())
    for key in range(-1, 202):
        assert (key in made) == (key in model)
        assert made.get(key) == model.get(key) and made.get(key, 7) == model.get(key, 7)


@given(st.dictionaries(KEYS, st.integers()), st.lists(CHANGES, max_size=5))
def test_changes_make_the_next_map_and_leave_each_one_before_as_it_was(start, steps):
    models, maps = [start], [Map(start)]
    for changes in steps:
        mutation = maps[-1].mutate()
        model = dict(models[-1])
        for key, value in changes:
            assert (key in mutation, mutation.get(key)) == (key in model, model.get(key))
            if value is not None:
                mutation[key] = model[key] = value
                assert mutation[key] == value
            elif key in model:
                del mutation[key]
                del model[key]
        models.append(model)
        maps.append(mutation.finish())
    for model, made in zip(models, maps, strict=True):
        assert_is(made, model)


@given(CHANGES)
def test_single_changes_end_where_many_at_once_do(changes):
    one_by_one: Map[int, int] = Map()
    for key, value in changes:
        if value is not None:
            one_by_one = one_by_one.set(key, value)
        elif key in one_by_one:
            one_by_one = one_by_one.delete(key)
    model = changed({}, changes)
    assert_is(one_by_one, model)
    assert one_by_one == Map(model)
    assert one_by_one.set(201, 0) != one_by_one


def test_a_large_map_shares_all_but_what_changed():
    before = Map({key: str(key) for key in range(10_000)})
    after = before.set(5, "five").delete(6)
    shared = {id(bucket) for bucket in before._buckets}
    assert sum(id(bucket) not in shared for bucket in after._buckets) == 2
    assert (len(before), len(after), before[5], after[5]) == (10_000, 9_999, "5", "five")


def test_a_map_that_grows_one_by_one_gets_more_buckets():
    grown: Map[int, int] = Map()
    for key in range(5_000):
        grown = grown.set(key, key)
        assert len(grown) <= max(ONE_BUCKET_MAX, 4 * len(grown._buckets) ** 2)
    assert max(map(len, grown._buckets)) <= 4 * len(grown._buckets)
    assert sorted(grown) == list(range(5_000))


def test_without_a_change_the_map_stays_the_same_object():
    made = Map({1: 1})
    assert made.mutate().finish() is made


def test_another_process_goes_through_the_keys_in_the_same_order():
    script = (
        "from kvorum.metadata.image.persistent_map import Map\n"
        "made = Map({str(key): key for key in range(300)})\n"
        "print(list(made.delete('7').set('new', 1)))"
    )
    orders = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=True,
        ).stdout
        for _ in range(2)
    }  # fmt: skip
    assert len(orders) == 1
