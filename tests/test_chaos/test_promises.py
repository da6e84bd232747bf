from __future__ import annotations

import pytest

from kvorum.chaos.outages.milestones import Milestone, MilestoneSource
from kvorum.chaos.outages.promises import PROMISES, judge_promises
from kvorum.chaos.outages.timeline import Timeline, build_timeline
from kvorum.runtime.errors import ConfigError

from .histories import TOPIC, HistoryBuilder, pipelined


def a_run() -> Timeline:
    """One leader paused: its partition is silent for two seconds, and an ISR shrinks."""
    history = HistoryBuilder()
    pipelined(history, 0, 6_000, silent={0: (2_000, 4_000)})
    history.asked("create-topic", "side-1")
    history.asked("create-topic", "side-2", "fail", error="INVALID_REPLICATION_FACTOR")
    history.fault(0, 1_999, 5_000, led=[0], held=[0, 1], injection_ms=0.0)
    history.events.sort(key=lambda event: event.time_ms)
    told = [
        Milestone(wall_ms=1, what="leader", topic=TOPIC, partition=0, leader=101, epoch=0),
        Milestone(wall_ms=1, what="isr", topic=TOPIC, partition=0, isr=(101, 102)),
        Milestone(wall_ms=2_799, what="leader", topic=TOPIC, partition=0, leader=102, epoch=1),
        Milestone(wall_ms=2_799, what="isr", topic=TOPIC, partition=0, isr=(102,)),
    ]
    return build_timeline(
        history.events, milestones=(MilestoneSource(milestones=1, source="s"), told)
    )


@pytest.mark.parametrize(
    ("promise", "kept", "broken", "measured"),
    [
        ("longest_silence_ms", 30, 5, 10),
        ("longest_partition_silence_ms", 2_100, 1_900, 2_005),
        ("latency_p99_ms", 2_100, 1_000, 1_940),
        ("time_to_elect_ms", 800, 799, 800),
        ("isr_shrinks_at_least", 1, 2, 1),
        ("isr_shrinks_at_most", 1, 0, 1),
        ("acknowledged_at_least", 1_200, 1_201, 1_200),
        ("failed_topic_changes_at_most", 1, 0, 1),
        ("unavailable_ms", 2_100, 1_900, 2_001),
    ],
)
def test_a_promise_is_kept_up_to_its_limit(promise, kept, broken, measured):
    timeline = a_run()
    (good,) = judge_promises({promise: kept}, timeline)
    (bad,) = judge_promises({promise: broken}, timeline)
    assert (good.is_kept, bad.is_kept) == (True, False)
    assert good.measured == pytest.approx(measured, rel=0.03)
    assert f"promise {promise}: " in bad.text() and f" {broken:,g}" in bad.text()


def test_every_promise_is_tried():
    marks = test_a_promise_is_kept_up_to_its_limit.pytestmark
    assert {values[0] for values in marks[0].args[1]} == set(PROMISES)


def test_a_promise_without_a_figure_is_neither_kept_nor_broken():
    (found,) = judge_promises({"time_to_elect_ms": 5}, build_timeline([]))
    assert (found.measured, found.is_kept) == (None, None)
    assert "could not be measured" in found.text()


def test_an_unknown_promise_names_the_known_ones():
    with pytest.raises(ConfigError, match="unknown promise 'speed'; known: longest_silence_ms, "):
        judge_promises({"speed": 1}, build_timeline([]))
