from __future__ import annotations

import pytest

from kvorum.chaos.history import Poll
from kvorum.chaos.outages.milestones import Milestone, MilestoneSource
from kvorum.chaos.outages.outages import Outage, longest_silence_ms, outages_of, unowned
from kvorum.chaos.outages.timeline import build_timeline

from .histories import TOPIC, HistoryBuilder, pipelined


def outages(
    silent: tuple[int, int],
    *faults: tuple[str, int, int | None],
    milestones: tuple[Milestone, ...] = (),
    end_ms: int = 20_000,
) -> list[Outage]:
    """The outages of a run in which partition 0 is silent for the time `silent` (begin and end in
    ms) and partition 1 is not. faults: (name, begin, end) in ms."""
    history = HistoryBuilder()
    pipelined(history, 0, end_ms, silent={0: silent})
    for number, (name, begin_ms, ended_ms) in enumerate(faults):
        history.fault(number, begin_ms, ended_ms, name=name)
    history.events.sort(key=lambda event: event.time_ms)
    source = MilestoneSource(milestones=1, source="a test")
    return outages_of(build_timeline(history.events, milestones=(source, milestones)))


def test_an_outage_belongs_to_the_faults_in_force_when_it_began():
    (found,) = outages(
        (3_000, 5_000), ("kill", 2_000, 3_500), ("cut", 1_000, 9_000), ("late", 4_000, 4_100)
    )
    assert (found.kind, found.subject) == ("partition", f"{TOPIC}/0")
    assert found.owners == ("cut", "kill")
    assert found.length_ms == pytest.approx(2_000, abs=15)


def test_a_fault_without_an_end_is_in_force_to_the_end():
    assert outages((9_000, 9_900), ("kill", 2_000, None))[0].owners == ("kill",)


def test_an_outage_just_after_a_fault_is_its_own():
    assert outages((5_000, 6_000), ("kill", 2_000, 4_000))[0].owners == ("kill",)


def test_an_outage_that_begins_just_before_the_fault_is_written_is_its_own():
    assert outages((1_900, 4_000), ("kill", 2_000, 8_000))[0].owners == ("kill",)


def test_an_outage_that_a_later_fault_meets_is_the_faults_from_there_on():
    before, after = outages((3_000, 10_000), ("kill", 6_500, 7_000))
    assert (before.begin_ms, before.end_ms, before.owners) == (
        3_000,
        pytest.approx(6_500, abs=1),
        (),
    )
    assert (after.begin_ms, after.end_ms, after.owners) == (before.end_ms, 10_000, ("kill",))
    assert unowned([before, after]) == [before]


@pytest.mark.parametrize(
    ("milestones", "owners"),
    [
        ((Milestone(wall_ms=14_500, what="unfenced", broker=101),), ("kill",)),
        ((Milestone(wall_ms=14_500, what="unfenced", broker=102),), ()),
        ((Milestone(wall_ms=13_000, what="unfenced", broker=101),), ()),
        (
            (
                Milestone(wall_ms=1, what="isr", topic=TOPIC, partition=0, isr=(102, 103)),
                Milestone(
                    wall_ms=14_100, what="isr", topic=TOPIC, partition=0, isr=(101, 102, 103)
                ),
            ),
            ("kill",),
        ),
    ],
)
def test_a_struck_broker_that_comes_back_late_owns_what_its_return_costs(milestones, owners):
    assert (
        outages((14_000, 15_500), ("kill", 2_000, 4_000), milestones=milestones)[0].owners == owners
    )


def test_a_short_outage_without_an_owner_is_counted_and_does_not_fail_the_run():
    (found,) = outages((9_000, 9_600))
    assert found.is_unowned
    assert unowned([found]) == []


def test_spans_that_follow_each_other_are_one_outage():
    history = HistoryBuilder()
    value = 0
    for at_ms in (1_000, 1_010, 1_700, 2_400, 3_000, 3_010, 3_020, 3_030, 3_040, 3_050, 3_060):
        history.sent("invoke", 0, value, at_ms=at_ms - 5)
        history.sent("invoke", 0, value + 1, at_ms=at_ms - 4)
        history.sent("ok", 0, value, value, at_ms=at_ms, latency_ms=5)
        value += 2
    (found,) = [
        item for item in outages_of(build_timeline(history.events)) if item.kind == "partition"
    ]
    assert (found.parts, found.begin_ms, found.end_ms) == (3, 1_010, 3_000)
    assert found.longest_ms == pytest.approx(700)


def test_the_first_connection_of_a_client_is_no_outage_of_the_cluster():
    history = HistoryBuilder()
    history.sent("invoke", 0, 0, at_ms=0)
    history.sent("ok", 0, 0, 0, at_ms=2_000, latency_ms=2_000)
    for value in range(1, 50):
        history.written(0, value, value, at_ms=2_000 + 10 * value)
    timeline = build_timeline(history.events)
    found = outages_of(timeline)
    assert [(item.is_start, item.is_unowned) for item in found] == [(True, False)] * 2
    (partition,) = timeline.partitions.values()
    assert longest_silence_ms(timeline.cluster, timeline) < 10
    assert longest_silence_ms(partition, timeline) < 10


def test_a_first_connection_that_a_fault_meets_is_a_silence_from_the_fault_on():
    history = HistoryBuilder()
    history.sent("invoke", 0, 0, at_ms=0)
    history.fault(0, 500, 1_900, name="kill")
    history.sent("ok", 0, 0, 0, at_ms=2_000, latency_ms=2_000)
    timeline = build_timeline(history.events)
    assert longest_silence_ms(timeline.cluster, timeline) == pytest.approx(1_500, abs=1)


def test_a_client_that_never_got_an_answer_saw_a_silence():
    history = HistoryBuilder()
    history.sent("invoke", 0, 0, at_ms=0)
    history.sent("invoke", 0, 1, at_ms=3_000)
    timeline = build_timeline(history.events)
    assert longest_silence_ms(timeline.cluster, timeline) == pytest.approx(3_000)
    assert [item.is_unowned for item in outages_of(timeline)] == [True] * 2


def test_topics_that_cannot_be_created_are_an_outage_with_its_errors():
    history = HistoryBuilder()
    for at_ms in range(0, 20_000, 500):
        late = 8_000 <= at_ms < 14_000
        history.add("t", "invoke", "create-topic", topic=f"t-{at_ms}", at_ms=at_ms)
        history.add(
            "t", "info" if late else "ok", "create-topic", topic=f"t-{at_ms}", at_ms=at_ms + 10,
            latency_ms=10, error="_TIMED_OUT" if late else None,
        )  # fmt: skip
        history.written(0, at_ms, at_ms, at_ms=at_ms + 20)
    history.fault(0, 7_990, 14_010, name="isolate")
    history.events.sort(key=lambda event: event.time_ms)
    timeline = build_timeline(history.events)
    assert timeline.administration.errors == {"_TIMED_OUT": 12}
    assert timeline.administration.unknown == 12
    (found,) = [item for item in outages_of(timeline) if item.kind == "administration"]
    assert (found.begin_ms, found.end_ms, found.owners) == (8_000, 14_010, ("isolate",))


def test_a_refusal_of_a_working_controller_is_an_answer():
    history = HistoryBuilder()
    history.written(0, 0, 0, at_ms=1)
    for at_ms in (100, 4_000):
        history.add("t", "invoke", "create-topic", topic="x", at_ms=at_ms)
        history.add(
            "t", "fail", "create-topic", topic="x", at_ms=at_ms + 5, latency_ms=5,
            error="TOPIC_ALREADY_EXISTS",
        )  # fmt: skip
    timeline = build_timeline(history.events)
    assert timeline.administration.waits.spans == []
    assert timeline.administration.errors == {"TOPIC_ALREADY_EXISTS": 2}


def test_readers_that_get_nothing_although_the_log_goes_on_have_an_outage():
    history = HistoryBuilder()
    for value in range(500):
        history.written(0, value, value, at_ms=10 * value + 1)
        if not 1_000 <= 10 * value < 4_500:
            history.consumed(0, [(value, value)])
    history.events.sort(key=lambda event: event.time_ms)
    (found,) = outages_of(build_timeline(history.events))
    assert (found.kind, found.subject) == ("consumer", f"readers of {TOPIC}/0")
    assert found.length_ms == pytest.approx(3_500, abs=15)
    assert unowned([found]) == [found]


def test_a_group_that_rebalances_has_an_owner_for_its_wait():
    history = HistoryBuilder()
    for value in range(500):
        history.written(0, value, value, at_ms=10 * value + 1)
        if not 2_000 <= 10 * value < 4_500:
            ops = (Poll(TOPIC, 0, (value,), (value,)),)
            history.add("m-1", "ok", "poll", ops=ops, group="g", generation=1)
    history.add(
        "m-1", "ok", "revoke", group="g", generation=1, partitions=((TOPIC, 0),), at_ms=2_100
    )
    history.events.sort(key=lambda event: event.time_ms)
    (found,) = outages_of(build_timeline(history.events))
    assert (found.subject, found.owners) == (f"group g of {TOPIC}/0", ("rebalance of the group",))
    assert unowned([found]) == []
