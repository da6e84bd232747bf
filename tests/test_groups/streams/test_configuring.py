"""Topologies beside topics: counts of partitions, missing topics, and what cannot be."""

from __future__ import annotations

import pytest

from kvorum.broker.groups.streams.configuring import (
    TASKS_MAX,
    TopologyRefused,
    configure,
)
from kvorum.broker.groups.streams.states import Status
from kvorum.broker.groups.streams.topology import (
    CopartitionGroup,
    InternalTopic,
    Subtopology,
    Topology,
)
from tests.test_groups.consumer.world import image_of


def configured(*parts: Subtopology, **counts: int):
    return configure(Topology(epoch=0, subtopologies=parts), image_of(counts))


def part(name: str = "0", *sources: str, **more) -> Subtopology:
    return Subtopology(subtopology_id=name, source_topics=sources, **more)


def together(*sources: int, repartitions: tuple[int, ...] = ()) -> tuple[CopartitionGroup, ...]:
    return (CopartitionGroup(source_topics=sources, repartition_source_topics=repartitions),)


def test_there_are_as_many_tasks_as_the_largest_input_has_partitions():
    found = configured(part("0", "a", "b"), a=2, b=5)
    assert (found.is_ready, found.subtopologies["0"].num_tasks) == (True, 5)


def test_a_repartition_topic_has_as_many_partitions_as_its_writers_inputs():
    found = configured(
        part("0", "a", "b", repartition_sink_topics=("r",)),
        part("1", repartition_source_topics=(InternalTopic("r"),)),
        a=2,
        b=5,
    )
    assert [(t.name, t.num_partitions) for t in found.missing] == [("r", 5)]
    assert found.subtopologies["1"].num_tasks == 5


def test_counts_pass_through_a_chain_of_repartition_topics():
    found = configured(
        part("0", repartition_source_topics=(InternalTopic("r2"),)),
        part(
            "1",
            repartition_source_topics=(InternalTopic("r1"),),
            repartition_sink_topics=("r2",),
        ),
        part("2", "a", repartition_sink_topics=("r1",)),
        a=3,
    )
    assert {topic.name: topic.num_partitions for topic in found.missing} == {"r1": 3, "r2": 3}


def test_a_changelog_has_as_many_partitions_as_there_are_tasks():
    part_ = part("0", "a", state_changelog_topics=(InternalTopic("log"),))
    assert configured(part_, a=4).missing[0].num_partitions == 4
    assert configured(part_, a=4, log=4).is_ready
    wrong = configured(part_, a=4, log=3)
    assert wrong.status.code == Status.INCORRECTLY_PARTITIONED_TOPICS
    assert wrong.missing == ()


def test_copartitioned_sources_have_the_same_count_or_a_status():
    part_ = part("0", "a", "b", copartition_groups=together(0, 1))
    assert configured(part_, a=2, b=2).is_ready
    assert configured(part_, a=2, b=3).status.code == Status.INCORRECTLY_PARTITIONED_TOPICS


def test_a_source_decides_for_the_repartition_topics_beside_it():
    writer = part("0", "wide", repartition_sink_topics=("r",))
    reader = part(
        "1",
        "a",
        repartition_source_topics=(InternalTopic("r"),),
        copartition_groups=together(0, repartitions=(0,)),
    )
    assert configured(writer, reader, a=2, wide=8).missing[0].num_partitions == 2


def test_without_a_source_a_fixed_repartition_topic_decides_and_else_the_largest():
    writers = [
        part("0", "a", repartition_sink_topics=("r",)),
        part("1", "b", repartition_sink_topics=("s",)),
    ]

    def reader(count: int) -> Subtopology:
        return part(
            "2",
            repartition_source_topics=(InternalTopic("r", count), InternalTopic("s")),
            copartition_groups=together(repartitions=(0, 1)),
        )

    free = configured(*writers, reader(0), a=2, b=6)
    assert {topic.name: topic.num_partitions for topic in free.missing} == {"r": 6, "s": 6}
    fixed = configured(*writers, reader(4), a=2, b=6)
    assert {topic.name: topic.num_partitions for topic in fixed.missing} == {"r": 4, "s": 4}


def test_a_fixed_repartition_topic_beside_a_source_of_another_count_is_a_status():
    found = configured(
        part("0", "wide", repartition_sink_topics=("r",)),
        part(
            "1",
            "a",
            repartition_source_topics=(InternalTopic("r", 5),),
            copartition_groups=together(0, repartitions=(0,)),
        ),
        a=2,
        wide=8,
    )
    assert found.status.code == Status.INCORRECTLY_PARTITIONED_TOPICS


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((part("0"),), id="no-input"),
        pytest.param((part("0", "a"), part("0", "a")), id="one-id-twice"),
        pytest.param(
            (
                part(
                    "0",
                    repartition_sink_topics=("r",),
                    repartition_source_topics=(InternalTopic("r"),),
                ),
            ),
            id="cycle",
        ),
        pytest.param(
            (part("0", "a", repartition_source_topics=(InternalTopic("r"),)),), id="never-written"
        ),
        pytest.param((part("0", "a", copartition_groups=together(1)),), id="no-such-source"),
        pytest.param((part("0", "a", copartition_groups=together(-1)),), id="negative-position"),
        pytest.param(
            (part("0", "a", copartition_groups=together(0, repartitions=(0,))),),
            id="no-such-repartition-topic",
        ),
        pytest.param(
            (part("0", "a", repartition_source_topics=(InternalTopic("r", -1),)),),
            id="negative-count",
        ),
        pytest.param(
            (part("0", "a", repartition_source_topics=(InternalTopic("r", TASKS_MAX + 1),)),),
            id="absurd-count",
        ),
    ],
)
def test_a_topology_that_no_topics_could_make_ready_is_refused(parts):
    with pytest.raises(TopologyRefused):
        configured(*parts, a=1)


def test_a_topology_with_more_tasks_than_a_coordinator_assigns_is_refused():
    parts = [part(str(number), "a") for number in range(5)]
    with pytest.raises(TopologyRefused, match="limit"):
        configured(*parts, a=5_000)


def test_a_loop_that_a_source_feeds_has_counts():
    found = configured(
        part(
            "0",
            "a",
            repartition_sink_topics=("r",),
            repartition_source_topics=(InternalTopic("r"),),
        ),
        a=3,
    )
    assert found.missing[0].num_partitions == 3


def test_many_missing_topics_are_counted():
    names = [f"topic-{number}" for number in range(5)]
    assert configured(part("0", *names)).status.detail == (
        "Source topics topic-0, topic-1, topic-2 and 2 additional topics are missing."
    )
