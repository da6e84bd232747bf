"""The assignor of share groups: even shares, and nobody moves without need."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kvorum.broker.groups.share.assignor import Sharer, assign_simple

T, U = b"t" * 16, b"u" * 16


def rows(topic, count):
    return [(topic, partition) for partition in range(count)]


def assigned(names, partitions, has=None):
    members = {
        name: Sharer(frozenset({T, U}), frozenset((has or {}).get(name, ()))) for name in names
    }
    return assign_simple(members, partitions)


@given(st.integers(1, 12), st.integers(1, 12))
def test_shares_differ_by_one_at_most(members, partitions):
    given_out = assigned([f"m{i}" for i in range(members)], rows(T, partitions))
    sizes = [len(mine) for mine in given_out.values()]
    sharers = Counter(row for mine in given_out.values() for row in mine)
    assert max(sizes) - min(sizes) <= 1
    assert set(sharers) == set(rows(T, partitions))
    assert max(sharers.values()) - min(sharers.values()) <= 1
    assert max(sizes) == 1 or max(sharers.values()) == 1


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_nothing_moves_while_nothing_changes(members, partitions, others):
    names = [f"m{i}" for i in range(members)]
    first = assigned(names, rows(T, partitions) + rows(U, others))
    assert assigned(names, rows(T, partitions) + rows(U, others), first) == first


@given(st.integers(1, 9), st.integers(1, 9))
def test_a_member_that_leaves_moves_no_more_than_its_share(members, partitions):
    names = [f"m{i}" for i in range(members + 1)]
    first = assigned(names, rows(T, partitions))
    after = assigned(names[:-1], rows(T, partitions), first)
    kept = sum(len(first[name] & after[name]) for name in names[:-1])
    had = sum(len(first[name]) for name in names[:-1])
    fair = -(-max(members, partitions) // min(members, partitions))
    assert had - kept <= fair * members
    if partitions > members:
        assert kept == had


def test_members_have_partitions_of_their_topics_only():
    members = {
        "both": Sharer(frozenset({T, U})),
        "one": Sharer(frozenset({T})),
        "none": Sharer(frozenset()),
    }
    found = assign_simple(members, rows(T, 2) + rows(U, 2))
    assert found["none"] == frozenset()
    assert {topic for topic, _ in found["one"]} == {T}
    assert set().union(*found.values()) == set(rows(T, 2) + rows(U, 2))


def test_a_group_without_members_or_partitions_has_no_shares():
    assert assign_simple({}, rows(T, 3)) == {}
    assert assigned(["a"], []) == {"a": frozenset()}
