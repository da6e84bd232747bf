from __future__ import annotations

import pytest

from kvorum.chaos.experiment.checks import run_checks_of
from kvorum.chaos.experiment.checks.model import CheckResult

from .histories import HistoryBuilder, good_history


def outcome(history: HistoryBuilder, check: str) -> CheckResult:
    return next(result for result in run_checks_of(history.events) if result.check == check)


def broken(history: HistoryBuilder) -> set[str]:
    return {result.check for result in run_checks_of(history.events) if result.count}


def test_good_history_breaks_nothing_and_every_check_examined_something():
    results = run_checks_of(good_history().events)
    assert [result.check for result in results if result.count] == []
    assert [result.check for result in results if not result.examined] == []


def test_acknowledged_record_missing_from_the_final_read_is_lost():
    history = HistoryBuilder()
    for value in range(3):
        history.written(0, value, value)
    history.final(0, [(0, 0), (2, 2)])
    found = outcome(history, "lost-write")
    assert found.count == 1
    assert (found.findings[0].value, found.findings[0].offset) == (1, 1)


def test_record_of_unknown_outcome_may_be_missing_or_present():
    history = HistoryBuilder()
    for value in range(3):
        history.sent("invoke", 0, value)
        history.sent("info", 0, value, error="_MSG_TIMED_OUT")
    history.final(0, [(1, 0)])
    assert broken(history) == set()


def test_unread_tail_is_unread_and_not_lost():
    history = HistoryBuilder()
    for value in range(3):
        history.written(0, value, value)
    history.final(0, [(0, 0)], end_offset=3)
    assert broken(history) == {"unread"}


def test_missing_final_read_is_unread():
    history = HistoryBuilder()
    history.written(0, 0, 0)
    assert broken(history) == {"unread"}


def test_partition_without_an_answer_is_unread_only():
    history = HistoryBuilder()
    history.written(0, 0, 0)
    history.final(0, [], end_offset=-1)
    assert broken(history) == {"unread"}


def test_log_that_ends_below_an_acknowledged_offset_is_caught_though_fully_read():
    history = HistoryBuilder()
    for value in range(3):
        history.written(0, value, value)
    history.final(0, [(0, 0)])
    assert broken(history) == {"high-watermark-back"}


def test_value_at_two_offsets_is_duplicate():
    history = HistoryBuilder()
    history.written(0, 0, 0)
    history.written(0, 1, 2)
    history.final(0, [(0, 0), (0, 1), (1, 2)])
    assert broken(history) == {"duplicate"}


def test_falling_offsets_of_one_producer_are_reordered():
    history = HistoryBuilder()
    history.written(0, 0, 1)
    history.written(0, 1, 0)
    history.final(0, [(1, 0), (0, 1)])
    assert broken(history) == {"reordered"}


def test_order_between_producers_is_free():
    history = HistoryBuilder()
    history.written(0, 0, 1, process="producer-1")
    history.written(0, 1, 0, process="producer-2")
    history.final(0, [(1, 0), (0, 1)])
    assert broken(history) == set()


@pytest.mark.parametrize("reader", ["consumer-1", "final-read"])
def test_two_values_at_one_offset_are_inconsistent(reader):
    history = HistoryBuilder()
    history.written(0, 0, 0)
    history.written(0, 1, 1)
    history.consumed(0, [(1, 0)], process=reader)
    assert outcome(history, "inconsistent-offsets").count == 1


def test_consumer_that_goes_back_is_nonmonotonic():
    history = good_history()
    history.consumed(0, [(4, 4)])
    assert broken(history) == {"nonmonotonic-poll"}


def test_consumer_that_jumps_over_a_record_skipped_it_and_never_saw_it():
    history = HistoryBuilder()
    for value in range(3):
        history.written(0, value, value)
    history.consumed(0, [(0, 0), (2, 2)])
    history.final(0, [(0, 0), (1, 1), (2, 2)])
    assert broken(history) == {"int-poll-skip", "unseen"}


def test_offset_gap_in_the_log_itself_is_no_skip():
    history = HistoryBuilder()
    history.written(0, 0, 0)
    history.written(0, 1, 2)
    history.consumed(0, [(0, 0), (1, 2)])
    history.final(0, [(0, 0), (1, 2)])
    assert broken(history) == set()


def test_read_of_a_failed_or_unwritten_value_is_phantom():
    history = HistoryBuilder()
    history.sent("invoke", 0, 0)
    history.sent("fail", 0, 0, error="MSG_SIZE_TOO_LARGE")
    history.final(0, [(0, 0), (77, 1)])
    found = outcome(history, "phantom")
    assert [finding.value for finding in found.findings] == [0, 77]


def test_two_leaders_of_one_quorum_epoch_are_found():
    history = good_history()
    history.observed(what="quorum", leader_id=3, leader_epoch=2, high_watermark=44)
    assert broken(history) == {"two-leaders"}


def test_two_leaders_of_one_partition_epoch_are_found():
    history = good_history()
    history.observed(what="partition", partition=0, leader=101, leader_epoch=4, isr=[101])
    history.observed(what="partition", partition=1, leader=102, leader_epoch=4, isr=[101])
    assert broken(history) == set()
    history.observed(what="partition", partition=0, leader=103, leader_epoch=4, isr=[101])
    assert broken(history) == {"two-leaders"}


def test_high_watermark_falling_in_one_epoch_is_found():
    history = good_history()
    history.observed(what="quorum", leader_id=2, leader_epoch=2, high_watermark=43)
    assert broken(history) == {"high-watermark-back"}


def test_new_quorum_leader_below_an_older_epoch_is_found_but_a_deposed_one_may_lag():
    history = good_history()
    history.observed(what="quorum", leader_id=1, leader_epoch=1, high_watermark=41)
    assert broken(history) == set()
    history.observed(what="quorum", leader_id=3, leader_epoch=3, high_watermark=42)
    assert broken(history) == {"high-watermark-back"}


def test_findings_are_bounded_and_the_count_is_not():
    history = HistoryBuilder()
    for value in range(100):
        history.written(0, value, value)
    history.final(0, [(100, 100)])
    found = outcome(history, "lost-write")
    assert found.count == 100
    assert len(found.findings) == 20
