"""Rules that every assignment obeys, for any members and subscriptions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.broker.groups.consumer.assignors import (
    ASSIGNORS,
    Subscriber,
    assign_range,
    assign_uniform,
    parse_assignors,
)

TOPICS = [bytes([n]) * 16 for n in range(4)]
NAMES = ["a", "b", "c", "d", "e", "f"]
COUNTS = st.fixed_dictionaries({topic: st.integers(1, 9) for topic in TOPICS})
SUBSCRIPTIONS = st.dictionaries(
    st.sampled_from(NAMES), st.frozensets(st.sampled_from(TOPICS)), min_size=1
)


def subscribers(subscriptions, has=None):
    return {
        name: Subscriber(topics, None, (has or {}).get(name, frozenset()))
        for name, topics in subscriptions.items()
    }


@st.composite
def histories(draw):
    """(members with their partitions of an earlier target, partition counts by topic); members,
    subscriptions and counts may have changed since."""
    counts = draw(COUNTS)
    before = draw(SUBSCRIPTIONS)
    has = assign_uniform(subscribers(before), counts)
    later = {topic: draw(st.integers(1, 9)) for topic in counts}
    return subscribers(draw(SUBSCRIPTIONS), has), later


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(history=histories())
def test_every_partition_is_one_subscribers(name, history):
    members, counts = history
    given_to = ASSIGNORS[name](members, counts)
    assert given_to.keys() == members.keys()
    wanted = {
        (topic, p)
        for topic in set().union(*(m.topics for m in members.values()))
        for p in range(counts[topic])
    }
    rows = [row for partitions in given_to.values() for row in partitions]
    assert len(rows) == len(set(rows))
    assert set(rows) == wanted
    for member_id, partitions in given_to.items():
        assert {topic for topic, _ in partitions} <= members[member_id].topics
    # The same in, the same out, in whatever order members came.
    turned = dict(reversed(members.items()))
    assert ASSIGNORS[name](turned, counts) == given_to


@given(history=histories())
def test_uniform_leaves_nobody_two_short(history):
    members, counts = history
    given_to = assign_uniform(members, counts)
    for owner, partitions in given_to.items():
        for topic, _ in partitions:
            for other, member in members.items():
                if topic in member.topics:
                    assert len(given_to[owner]) - len(given_to[other]) <= 1


@given(
    names=st.sets(st.sampled_from(NAMES), min_size=1),
    later=st.sets(st.sampled_from(NAMES), min_size=1),
    counts=COUNTS,
)
def test_uniform_moves_only_what_must(names, later, counts):
    topics = frozenset(TOPICS)
    before = assign_uniform(subscribers(dict.fromkeys(names, topics)), counts)
    after = assign_uniform(subscribers(dict.fromkeys(later, topics), before), counts)
    total = sum(counts.values())
    kept = sum(len(before[name] & after[name]) for name in names & later)
    # The most partitions that can stay: each member keeps its own up to its new size, and the
    # larger sizes go to the members that had most.
    least, more = divmod(total, len(later))
    had = sorted((len(before.get(name, ())) for name in later), reverse=True)
    assert kept == sum(min(size, least + (place < more)) for place, size in enumerate(had))


def test_a_newcomer_gets_some_of_each_topic():
    counts = {TOPICS[0]: 4, TOPICS[1]: 4}
    alone = assign_uniform(subscribers({"a": frozenset(counts)}), counts)
    both = assign_uniform(subscribers(dict.fromkeys("ab", frozenset(counts))), counts)
    assert len(alone["a"]) == 8
    assert {topic for topic, _ in both["b"]} == set(counts)


@given(names=st.sets(st.sampled_from(NAMES), min_size=1), count=st.integers(1, 20))
def test_range_cuts_topics_alike(names, count):
    counts = {TOPICS[0]: count, TOPICS[1]: count}
    given_to = assign_range(subscribers(dict.fromkeys(names, frozenset(counts))), counts)
    start = 0
    for name in sorted(names):
        of_topic = [sorted(p for t, p in given_to[name] if t == topic) for topic in counts]
        assert of_topic[0] == of_topic[1] == list(range(start, start + len(of_topic[0])))
        start += len(of_topic[0])
    sizes = [len(rows) for rows in given_to.values()]
    assert max(sizes) - min(sizes) <= 2


def test_uniform_takes_from_one_that_had_all_no_more_than_it_must():
    counts = dict.fromkeys(TOPICS, 25)
    every = frozenset((topic, p) for topic in TOPICS for p in range(25))
    members = {name: Subscriber(frozenset(TOPICS[: 3 + (name != "b")])) for name in NAMES[:5]}
    members["a"] = Subscriber(frozenset(TOPICS), None, every)
    given_to = assign_uniform(members, counts)
    assert [len(rows) for rows in given_to.values()] == [20] * 5
    assert given_to["a"] <= every


def test_range_keeps_the_place_of_static_members():
    topics = frozenset(TOPICS[:1])
    before = assign_range(
        {"x1": Subscriber(topics, "one"), "b": Subscriber(topics)}, {TOPICS[0]: 4}
    )
    after = assign_range({"zz": Subscriber(topics, "one"), "a": Subscriber(topics)}, {TOPICS[0]: 4})
    assert before["x1"] == after["zz"] == {(TOPICS[0], 0), (TOPICS[0], 1)}


def test_the_setting_names_assignors_that_there_are():
    assert parse_assignors(" range , uniform,range") == ("range", "uniform")
    for wrong in ("", "sticky", "range,x"):
        with pytest.raises(ValueError, match=r"group\.consumer\.assignors"):
            parse_assignors(wrong)
