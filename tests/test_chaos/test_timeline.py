from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from kvorum.chaos.history import Event, Send
from kvorum.chaos.outages.latencies import Latencies
from kvorum.chaos.outages.milestones import Milestone, MilestoneSource
from kvorum.chaos.outages.timeline import (
    OTHER_ERRORS,
    build_timeline,
    isr_changes,
    isr_shrinks,
    leader_changes,
)
from kvorum.chaos.outages.waits import Lag, OpenWaits

from .histories import TOPIC, HistoryBuilder, pipelined

SOURCE = MilestoneSource(milestones=1, source="a test")


def test_the_cluster_is_silent_where_no_partition_acknowledges():
    history = HistoryBuilder()
    pipelined(history, 0, 3_000, silent={0: (1_000, 2_500), 1: (2_000, 2_500)})
    timeline = build_timeline(history.events)
    assert timeline.cluster.longest_ms == pytest.approx(500, abs=15)
    assert timeline.partitions[TOPIC, 0].longest_ms == pytest.approx(1_500, abs=15)
    assert timeline.partitions[TOPIC, 1].longest_ms == pytest.approx(500, abs=15)
    assert [len(timeline.partitions[TOPIC, number].spans) for number in (0, 1)] == [1, 1]


def test_a_partition_to_which_nothing_is_sent_is_not_unavailable():
    history = HistoryBuilder()
    history.written(0, 0, 0, at_ms=100, latency_ms=2)
    history.written(0, 1, 1, at_ms=9_000, latency_ms=3)
    timeline = build_timeline(history.events)
    assert timeline.partitions[TOPIC, 0].spans == []
    assert timeline.partitions[TOPIC, 0].longest_ms == 3


def test_partition_that_never_acknowledges_is_unavailable_from_its_first_record_on():
    history = HistoryBuilder()
    history.sent("invoke", 5, 0, at_ms=0)
    pipelined(history, 10, 1_010, partitions=(0,))
    (span,) = build_timeline(history.events).partitions[TOPIC, 5].spans
    assert (span.is_over, span.is_first) == (False, True)
    assert span.length_ms == pytest.approx(1_001, abs=15)


def test_a_late_acknowledgement_of_an_old_record_does_not_end_an_outage():
    waits = OpenWaits()
    waits.invoked(90)
    waits.invoked(95)
    waits.answered(100, 90)
    waits.invoked(300)
    waits.answered(1_000, 95)
    assert waits.spans == []
    waits.answered(3_000, 300)
    (span,) = waits.spans
    assert (span.begin_ms, span.end_ms, span.is_over) == (100, 3_000, True)


def test_an_outage_that_only_old_records_ended_ends_with_them_if_nothing_else_was_sent():
    waits = OpenWaits()
    waits.invoked(90)
    waits.invoked(95)
    waits.answered(100, 90)
    waits.answered(1_000, 95)
    waits.end(5_000)
    (span,) = waits.spans
    assert (span.begin_ms, span.end_ms) == (100, 1_000)


def test_a_slow_pipeline_that_is_acknowledged_all_the_time_is_no_outage():
    waits = OpenWaits()
    for at_ms in range(0, 3_000, 10):
        waits.invoked(at_ms)
        if at_ms >= 600:
            waits.answered(at_ms, at_ms - 600)
    assert [round(span.end_ms) for span in waits.spans] == [600]


def test_what_an_operation_that_timed_out_waited_for_has_not_been_seen():
    waits = OpenWaits()
    waits.invoked(0)
    waits.gave_up()
    waits.invoked(5_000)
    waits.answered(5_001, 5_000)
    (span,) = waits.spans
    assert (span.begin_ms, span.end_ms) == (0, 5_001)


def test_a_consumer_waits_while_the_end_is_ahead_of_it():
    lag = Lag()
    lag.written(0, 0)
    lag.read(50, 0)
    lag.written(5_000, 1)
    lag.written(5_100, 2)
    lag.read(6_200, 1)
    lag.read(6_900, 2)
    lag.end(20_000)
    assert [(span.begin_ms, span.end_ms) for span in lag.spans] == [(5_000, 6_200), (6_200, 6_900)]


def test_a_load_with_a_slow_rhythm_of_its_own_has_no_outages():
    history = HistoryBuilder()
    for value in range(20):
        history.written(0, value, value, at_ms=1_000 + 400 * value, latency_ms=300)
    assert build_timeline(history.events).partitions[TOPIC, 0].spans == []


def test_each_partition_has_a_rhythm_of_its_own_and_an_outage_does_not_set_it():
    history = HistoryBuilder()
    for value in range(20):
        history.written(1, value, value, at_ms=1_000 + 400 * value, latency_ms=300)
    pipelined(history, 0, 9_000, partitions=(0,), silent={0: (1_000, 8_000)})
    history.events.sort(key=lambda event: event.time_ms)
    partitions = build_timeline(history.events).partitions
    assert partitions[TOPIC, 1].spans == []
    assert len(partitions[TOPIC, 0].spans) == 1


def test_a_transaction_acknowledges_what_it_sent_when_it_commits():
    history = HistoryBuilder()
    ops = (Send(TOPIC, 0, 1),)
    history.add("t", "invoke", "transaction", ops=ops, transaction="x", at_ms=10)
    done = (Send(TOPIC, 0, 1, 7),)
    history.add("t", "ok", "transaction", ops=done, transaction="x", at_ms=15, latency_ms=5)
    timeline = build_timeline(history.events)
    assert (timeline.invoked, timeline.acknowledged) == (1, 1)


def milestone(at_ms: float, what: str, **fields) -> Milestone:
    if what in ("leader", "isr"):
        fields = {"topic": TOPIC, "partition": 0, **fields}
    return Milestone(wall_ms=at_ms, what=what, **fields)


def test_leaders_and_isrs_change_after_the_first_that_is_known():
    history = HistoryBuilder()
    history.written(0, 0, 0)
    told = [
        milestone(1, "leader", leader=101, epoch=0),
        milestone(1, "isr", isr=(101, 102, 103)),
        milestone(5, "isr", isr=(101,)),
        milestone(6, "leader", leader=102, epoch=1),
        milestone(7, "isr", isr=(101, 103)),
        milestone(8, "leader", leader=9, epoch=0, topic="other"),
    ]
    timeline = build_timeline(history.events, milestones=(SOURCE, told))
    assert isr_changes(timeline) == {(TOPIC, 0): [(5, 0, 2), (7, 1, 0)]}
    assert leader_changes(timeline) == {(TOPIC, 0): [(6, 1, 102)]}
    assert isr_shrinks(timeline) == 1


def test_the_observer_counts_where_the_metadata_log_was_trimmed():
    history = HistoryBuilder()
    history.written(0, 0, 0)
    for at_ms, epoch in ((10, 1), (60, 2)):
        history.add(
            "observer", "ok", "observe", at_ms=at_ms,
            details={"what": "quorum", "observer": "c", "leader_id": 1, "leader_epoch": epoch},
        )  # fmt: skip
    source = MilestoneSource(milestones=1, source="a test", first_wall_ms=1_050)
    told = [Milestone(wall_ms=1_059, what="active-controller", leader=1, epoch=2)]
    timeline = build_timeline(history.events, milestones=(source, told), wall_start_ms=1_000)
    assert timeline.controller_epochs() == [(10, 1, 1), (59, 2, 1)]


def test_buckets_hold_every_acknowledgement():
    history = HistoryBuilder()
    for at_ms in range(0, 60_000, 10):
        history.written(0, at_ms, at_ms, at_ms=at_ms + 1)
    timeline = build_timeline(history.events, buckets_max=100)
    assert len(timeline.buckets) <= 101
    assert sum(bucket.acknowledged for bucket in timeline.buckets) == 6_000
    assert timeline.latencies.percentile(0.99) == pytest.approx(1.0)
    assert timeline.buckets[-1].begin_ms <= 60_000


def test_empty_history_gives_an_empty_timeline():
    timeline = build_timeline([])
    assert (timeline.acknowledged, timeline.faults, timeline.buckets) == (0, [], [])


def test_a_percentile_is_at_most_one_percent_above_the_nearest_rank():
    latencies = Latencies()
    for value in range(1, 101):
        latencies.add(float(value))
    for share, exact in ((0.5, 50), (0.99, 99), (1, 100), (0.01, 1)):
        found = latencies.percentile(share)
        assert found is not None and exact <= found <= exact * 1.01
    assert Latencies().percentile(0.5) is None
    latencies.add(0.0)
    assert latencies.percentile(0.001) == pytest.approx(0.001, abs=0.002)


def test_errors_of_many_names_are_counted_together():
    history = HistoryBuilder()
    for number in range(80):
        history.sent("info", 0, number, error=f"error {number}")
    errors = build_timeline(history.events).errors
    assert len(errors) == 51
    assert errors[OTHER_ERRORS] == 30


def sends(count: int) -> Iterator[Event]:
    """`count` records a millisecond apart, acknowledged at once, with a gap now and then."""
    for value in range(count):
        at_ms = value + (value // 10_000) * 500.0
        send = Send(TOPIC, value % 6, value)
        yield Event(
            index=2 * value, time_ms=at_ms, process="p", type="invoke", f="send", ops=(send,)
        )
        done = Send(TOPIC, value % 6, value, value)
        yield Event(
            index=2 * value + 1, time_ms=at_ms + 0.5, process="p", type="ok", f="send",
            ops=(done,), latency_ms=0.5,
        )  # fmt: skip


def test_memory_does_not_grow_with_the_history():
    def peak_bytes(count: int) -> int:
        tracemalloc.start()
        build_timeline(sends(count))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert peak_bytes(60_000) < peak_bytes(6_000) + 500_000
