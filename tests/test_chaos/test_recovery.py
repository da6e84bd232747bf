"""The way back after a fault, in a report: the examples in which a first acknowledgement
used to hide the damage."""

from __future__ import annotations

import pytest

from kvorum.chaos.outages.blame import Blame, BlameWindow
from kvorum.chaos.outages.milestones import Milestone, MilestoneSource
from kvorum.chaos.outages.outages import longest_silence_ms
from kvorum.chaos.outages.recovery import Recovery
from kvorum.chaos.outages.split import split_of
from kvorum.chaos.outages.timeline import Timeline, build_timeline
from kvorum.chaos.outages.waits import WaitSpan

from .histories import TOPIC, HistoryBuilder, pipelined


def milestone(at_ms: float, what: str, partition: int | None = None, **fields) -> Milestone:
    topic = None if partition is None else TOPIC
    return Milestone(wall_ms=at_ms, what=what, topic=topic, partition=partition, **fields)


def timeline_of(history: HistoryBuilder, *milestones: Milestone) -> Timeline:
    source = MilestoneSource(milestones=1, source="a test")
    return build_timeline(history.events, milestones=(source, milestones))


def faulty(
    silent: dict[int, tuple[int, int]], begin_ms: int, end_ms: int, **fault
) -> HistoryBuilder:
    """A load of ten seconds with silent partitions, and one fault."""
    history = HistoryBuilder()
    pipelined(history, 0, 10_000, partitions=(0, 1, 2), silent=silent)
    history.fault(0, begin_ms, end_ms, held=[0, 1, 2], **fault)
    history.events.sort(key=lambda event: event.time_ms)
    return history


def of(timeline: Timeline, partition: int) -> Recovery:
    (found,) = (item for item in timeline.faults[0].recoveries if item.partition == partition)
    return found


def test_a_follower_that_is_paused_silences_partitions_after_their_first_acknowledgement():
    # The leaders acknowledge for 133 ms more, until min.insync.replicas is no longer met.
    history = faulty({0: (2_133, 6_193), 1: (2_133, 6_193)}, 2_000, 7_000, kind="pause")
    timeline = timeline_of(history)
    for partition in (0, 1):
        found = of(timeline, partition)
        assert found.unavailable_ms == pytest.approx(4_060, abs=15)
        assert found.ack_ms == pytest.approx(4_193, abs=15)
        assert found.is_over
    assert of(timeline, 2).unavailable_ms == 0


def test_an_isolated_broker_is_fenced_long_after_the_first_acknowledgement():
    history = faulty({0: (3_500, 4_310)}, 2_000, 8_000, kind="isolate", led=[0])
    timeline = timeline_of(
        history,
        milestone(100, "leader", 0, leader=101, epoch=0),
        milestone(100, "isr", 0, isr=(101, 102, 103)),
        milestone(3_800, "fenced", broker=102),
        milestone(3_810, "fenced", broker=101),
        milestone(3_810, "isr", 0, isr=(102, 103)),
        milestone(3_810, "leader", 0, leader=102, epoch=1),
    )
    found = of(timeline, 0)
    assert found.fence_ms == found.isr_ms == found.elect_ms == found.detect_ms
    assert found.fence_ms == pytest.approx(1_810, abs=1)
    assert found.unavailable_ms == pytest.approx(810, abs=15)
    assert found.ack_ms == pytest.approx(2_310, abs=15)


def test_a_leader_that_is_paused_has_a_successor_before_its_client_hears_of_it():
    history = faulty({0: (2_000, 5_061)}, 2_000, 5_000, kind="pause", led=[0])
    timeline = timeline_of(
        history,
        milestone(100, "leader", 0, leader=101, epoch=0),
        milestone(4_070, "leader", 0, leader=102, epoch=1),
        milestone(5_500, "leader", 0, leader=101, epoch=2),
    )
    found = of(timeline, 0)
    assert found.is_led
    assert found.elect_ms == pytest.approx(2_070, abs=1)
    assert found.ack_ms == found.learn_ms == pytest.approx(3_061, abs=1)
    split = split_of([found])
    assert split is not None
    assert [(stage.key, round(stage.at_ms)) for stage in split.stages] == [
        ("elect", 2_070), ("learn", 3_061),
    ]  # fmt: skip
    assert sum(stage.share for stage in split.stages) == pytest.approx(100)


def test_an_outage_that_outlasts_its_fault_counts_to_its_end():
    history = faulty({0: (3_000, 6_000)}, 2_900, 3_100)
    assert of(timeline_of(history), 0).unavailable_ms == pytest.approx(3_000, abs=15)


def test_an_outage_that_begins_before_the_fault_counts_from_the_fault_on():
    history = faulty({0: (3_000, 6_000)}, 5_000, 7_000)
    assert of(timeline_of(history), 0).unavailable_ms == pytest.approx(1_000, abs=15)


def test_an_outage_after_the_fault_is_its_own_up_to_the_next_fault():
    history = faulty({0: (5_000, 6_000)}, 3_000, 4_000)
    assert of(timeline_of(history), 0).unavailable_ms == pytest.approx(1_000, abs=15)
    history = faulty({0: (5_000, 6_000)}, 3_000, 4_000)
    history.fault(1, 5_010, 5_900, held=[0])
    history.events.sort(key=lambda event: event.time_ms)
    first, second = timeline_of(history).faults
    assert [item.unavailable_ms for item in first.recoveries] == [0, 0, 0]
    assert second.recoveries[0].unavailable_ms == pytest.approx(990, abs=15)


def test_a_partition_that_does_not_come_back_is_said_to_be_so():
    history = faulty({0: (3_000, 20_000)}, 2_900, 4_000)
    history.events = [event for event in history.events if event.time_ms < 10_000]
    found = of(timeline_of(history), 0)
    assert (found.is_over, found.ack_ms) == (False, None)
    assert found.unavailable_ms == pytest.approx(7_000, abs=25)


def test_the_next_active_controller_and_the_next_topic_are_two_things():
    history = HistoryBuilder()
    pipelined(history, 0, 6_000)
    history.fault(0, 1_000, 4_000, is_active_controller=True)
    for at_ms, type in ((900, "invoke"), (3_400, "ok")):
        latency = 2_500.0 if type == "ok" else None
        history.add("t", type, "create-topic", topic="x", at_ms=at_ms, latency_ms=latency)
    history.events.sort(key=lambda event: event.time_ms)
    timeline = timeline_of(history, milestone(1_070, "active-controller", leader=2, epoch=2))
    (fault,) = timeline.faults
    assert fault.controller_elect_ms == pytest.approx(70, abs=1)
    assert timeline.administration.created == 1
    waits = timeline.administration.waits
    assert longest_silence_ms(waits, timeline) == pytest.approx(2_500)


def test_a_fault_begins_when_its_first_part_is_in_force():
    history = faulty({}, 2_000, 3_000, injection_ms=400.0)
    (fault,) = timeline_of(history).faults
    assert (fault.struck_ms, fault.begin_ms) == (1_600, 2_000)


def two_faults() -> Timeline:
    """A killed leader whose partition is silent for eight seconds, and two faults meanwhile."""
    history = faulty({0: (1_000, 9_500)}, 1_000, 4_000, kind="kill", led=[0], name="kill-leader")
    history.fault(
        1, 5_000, 7_000, kind="slow_disk", name="slow", held=[0, 1],
        nodes=["broker-101", "broker-102"],
    )  # fmt: skip
    history.fault(2, 7_500, 9_900, kind="pause", name="hang", held=[0], nodes=["broker-103"])
    history.events.sort(key=lambda event: event.time_ms)
    return timeline_of(
        history,
        milestone(100, "leader", 0, leader=101, epoch=0),
        milestone(100, "isr", 0, isr=(101, 102)),
        milestone(8_900, "fenced", broker=103),
        milestone(9_100, "fenced", broker=101),
        milestone(9_100, "isr", 0, isr=(102,)),
        milestone(9_100, "leader", 0, leader=102, epoch=1),
    )


def test_an_election_within_an_outage_belongs_to_the_fault_that_began_the_outage():
    kill, slow, hang = two_faults().faults
    assert kill.recoveries[0].elect_ms == pytest.approx(8_100, abs=1)
    assert kill.recoveries[0].fence_ms == kill.recoveries[0].isr_ms == kill.recoveries[0].elect_ms
    for later in (slow, hang):
        assert later.recoveries[0].elect_ms is later.recoveries[0].isr_ms is None
    assert slow.recoveries[0].detect_ms is None
    assert hang.recoveries[0].fence_ms == pytest.approx(1_400, abs=1), "a broker of its own"


def test_an_outage_of_an_earlier_fault_is_continued_and_not_blamed():
    kill, slow, hang = two_faults().faults
    assert kill.recoveries[0].unavailable_ms == pytest.approx(8_500, abs=15)
    for later in (slow, hang):
        assert later.recoveries[0].unavailable_ms == 0
        assert later.recoveries[0].continued_from == ("kill-leader",)
    assert kill.recoveries[0].continued_from == slow.recoveries[1].continued_from == ()


def cut_and(*nodes: str) -> Timeline:
    """A cut of the clients begins an outage, which goes on after it. Meanwhile a fault hits these
    nodes, and broker 101 is fenced."""
    history = faulty({0: (1_000, 8_000)}, 1_000, 2_000, kind="cut", nodes=["clients"])
    history.fault(1, 5_000, 7_000, held=[0], nodes=list(nodes))
    history.events.sort(key=lambda event: event.time_ms)
    return timeline_of(history, milestone(6_500, "fenced", broker=101))


def test_a_fault_without_a_broker_takes_no_fencing_away_from_the_kill_of_that_broker():
    _, kill = cut_and("broker-101").faults
    assert kill.recoveries[0].continued_from == ("cut-it",)
    assert kill.recoveries[0].fence_ms == pytest.approx(1_500, abs=1)


def test_of_two_faults_without_a_broker_the_one_that_began_the_outage_has_the_fencing():
    cut, later = cut_and("clients").faults
    assert cut.recoveries[0].fence_ms == pytest.approx(5_500, abs=1)
    assert later.recoveries[0].fence_ms is None


def test_an_outage_that_no_fault_began_belongs_to_the_first_that_met_it():
    history = faulty({0: (3_000, 9_000)}, 5_000, 6_000, name="first")
    history.fault(1, 7_000, 8_000, held=[0], name="second")
    history.events.sort(key=lambda event: event.time_ms)
    first, second = timeline_of(history).faults
    assert first.recoveries[0].unavailable_ms == pytest.approx(4_000, abs=15)
    assert (second.recoveries[0].unavailable_ms, second.recoveries[0].continued_from) == (
        0,
        ("first",),
    )


def test_parts_of_one_outage_belong_to_the_fault_that_began_the_first():
    begins = [WaitSpan(begin_ms=1_000, end_ms=2_000), WaitSpan(begin_ms=2_040, end_ms=5_000)]
    windows = [
        BlameWindow(name=name, struck_ms=at, end_ms=at + 1, last_ms=at + 9_000, brokers=frozenset())
        for name, at in (("first", 900), ("second", 2_030))
    ]
    blame = Blame(begins, windows)
    assert blame.owned(windows[0]) == begins
    assert blame.continued(windows[1]) == [(begins[1], [windows[0]])]


def test_the_first_acknowledgement_and_the_end_of_the_longest_silence_are_two_things():
    # Partition 0 acknowledges for 133 ms after the fault began; partition 2 is never silent.
    history = faulty({0: (2_133, 6_193)}, 2_000, 7_000, kind="pause")
    timeline = timeline_of(history)
    silenced, untouched = of(timeline, 0), of(timeline, 2)
    assert silenced.ack_ms == pytest.approx(4_193, abs=15)
    assert silenced.next_ack_ms == untouched.next_ack_ms == pytest.approx(5, abs=11)
    assert untouched.ack_ms is None


def test_a_silence_of_an_earlier_fault_gives_a_later_one_no_end_of_its_own():
    kill, slow, hang = two_faults().faults
    assert kill.recoveries[0].ack_ms == pytest.approx(8_500, abs=15)
    assert slow.recoveries[0].ack_ms is hang.recoveries[0].ack_ms is None
