from __future__ import annotations

import pytest

from kvorum.chaos.experiment.timeline import build_timeline, percentile

from .histories import HistoryBuilder


def steady(history: HistoryBuilder, begin_ms: int, end_ms: int, partitions=(0, 1)) -> None:
    """One acknowledgement every 10 ms in each partition, 1 ms after its invocation."""
    for at_ms in range(begin_ms, end_ms, 10):
        for partition in partitions:
            history.written(partition, at_ms, at_ms, at_ms=at_ms + 1, latency_ms=1.0)


def test_silence_of_the_cluster_is_where_no_partition_acknowledges():
    history = HistoryBuilder()
    steady(history, 0, 1000)
    steady(history, 1000, 2000, partitions=(1,))
    steady(history, 2500, 3000)
    timeline = build_timeline(history.events)
    assert timeline.longest_cluster_silence_ms == pytest.approx(510)
    assert [silence.begin_ms for silence in timeline.cluster_silences] == [1991]
    assert timeline.partition_silences[0][0].length_ms == pytest.approx(1510)
    assert timeline.partition_silences[1][0].length_ms == pytest.approx(510)


def test_partition_that_never_acknowledges_is_silent_for_the_whole_load():
    history = HistoryBuilder()
    history.sent("invoke", 5, 0, at_ms=0)
    steady(history, 10, 1010, partitions=(0,))
    timeline = build_timeline(history.events)
    assert timeline.partition_silences[5][0].length_ms == pytest.approx(1001)


def test_recovery_counts_only_records_written_after_the_fault():
    history = HistoryBuilder()
    steady(history, 0, 500, partitions=(0,))
    history.fault(7, 500, 900, led=[0], held=[0, 1])
    # On its way when the fault struck: says nothing about fail-over.
    history.sent("ok", 0, -1, 9, latency_ms=30, at_ms=510)
    history.sent("ok", 0, -2, 10, latency_ms=280, at_ms=800)
    steady(history, 900, 1000, partitions=(0,))
    (fault,) = build_timeline(history.events).faults
    led, held = fault.recoveries
    assert (led.partition, led.is_led, led.recovery_ms) == (0, True, 300)
    assert (held.partition, held.is_led, held.recovery_ms) == (1, False, None)
    assert (fault.begin_ms, fault.end_ms) == (500, 900)


def test_controller_recovers_with_the_next_topic_asked_for_after_its_death():
    history = HistoryBuilder()
    steady(history, 0, 100)
    history.fault(0, 100, None, is_active_controller=True)
    for at_ms, latency_ms in ((150, 80), (450, 340), (500, 10)):
        history.add("t", "ok", "create-topic", topic="x", at_ms=at_ms, latency_ms=latency_ms)
    steady(history, 500, 1000)
    timeline = build_timeline(history.events)
    assert timeline.faults[0].controller_recovery_ms == 350
    assert timeline.topics_created == 3
    assert timeline.longest_controller_silence_ms == pytest.approx(491)


def test_leader_and_isr_changes_are_counted_from_what_was_seen():
    history = HistoryBuilder()
    for leader, isr in ((101, [101, 102]), (102, [102]), (102, [102, 101])):
        history.observed(what="partition", partition=0, leader=leader, isr=isr)
    timeline = build_timeline(history.events)
    assert (timeline.leader_changes[0], timeline.isr_changes[0]) == (1, 2)


def test_buckets_hold_every_acknowledgement():
    history = HistoryBuilder()
    steady(history, 0, 60_000, partitions=(0,))
    timeline = build_timeline(history.events, buckets_max=100)
    assert len(timeline.buckets) <= 101
    assert sum(bucket.acknowledged for bucket in timeline.buckets) == 6000
    assert timeline.latency_p99_ms == pytest.approx(1.0)


def test_empty_history_gives_an_empty_timeline():
    timeline = build_timeline([])
    assert (timeline.acknowledged, timeline.faults) == (0, [])


def test_percentile_is_the_nearest_rank():
    values = [float(value) for value in range(1, 101)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile(values, 1)) == (
        50,
        99,
        100,
    )
    assert percentile([3.0], 0.01) == 3.0
    assert percentile([], 0.5) is None
