from __future__ import annotations

import pytest

from kvorum.chaos.checks import (
    CHECKS,
    CheckRules,
    linearizability,
    run_checks,
    run_checks_of,
)
from kvorum.chaos.checks.columns import Spool
from kvorum.chaos.checks.results import CheckResult
from kvorum.chaos.history import Commit, Send

from .bad_histories import ALSO_BROKEN, BAD_HISTORIES
from .histories import TOPIC, HistoryBuilder, good_history, history_for_every_check

RULES = CheckRules(realtime_lag_max_ms=1000)


def outcome(history: HistoryBuilder, check: str, rules: CheckRules | None = None) -> CheckResult:
    results = run_checks_of(history.events, rules)
    return next(result for result in results if result.check == check)


def broken(history: HistoryBuilder, rules: CheckRules | None = None) -> set[str]:
    return {result.check for result in run_checks_of(history.events, rules) if result.count}


def test_good_history_breaks_nothing_and_every_check_examined_something():
    results = run_checks_of(history_for_every_check().events, RULES)
    assert [result for result in results if result.count] == []
    assert [result.check for result in results if not result.examined] == []


def test_every_check_has_a_bad_history():
    assert list(BAD_HISTORIES) == [promise.check for promise in CHECKS]


@pytest.mark.parametrize("check", BAD_HISTORIES)
def test_the_bad_history_of_a_check_makes_it_fire_and_no_other(check):
    history = BAD_HISTORIES[check]()
    assert broken(history, RULES) == {check} | ALSO_BROKEN.get(check, set())
    found = outcome(history, check, RULES)
    assert found.count == len(found.findings) >= 1
    assert found.is_passed is found.is_allowed


@pytest.mark.parametrize("check", BAD_HISTORIES)
def test_a_file_and_spooled_columns_give_the_results_of_memory(check, tmp_path):
    history = BAD_HISTORIES[check]()
    path = str(tmp_path / "history.jsonl")
    history.write(path)
    expected = run_checks_of(history.events, RULES)
    assert run_checks(path, RULES) == expected
    assert run_checks_of(history.events, RULES, Spool(buffered_bytes_max=0)) == expected


def test_acknowledged_record_missing_from_the_final_read_is_lost():
    history = HistoryBuilder()
    for value in range(3):
        history.written(0, value, value)
    history.final(0, [(0, 0), (2, 2)])
    found = outcome(history, "lost-write")
    assert found.count == 1
    assert (found.findings[0].value, found.findings[0].offset) == (1, 1)


def test_a_record_acknowledged_without_an_offset_must_be_in_a_complete_final_read():
    history = HistoryBuilder()
    for value, offset in ((0, 0), (1, -1), (2, -1)):
        history.written(0, value, offset)
    history.final(0, [(0, 0), (2, 1)])
    found = outcome(history, "lost-write")
    assert [(finding.value, finding.offset) for finding in found.findings] == [(1, None)]
    assert "acknowledged without an offset and is gone" in found.findings[0].message
    assert broken(history) == {"lost-write"}


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


def test_log_that_ends_below_an_acknowledged_offset_has_lost_records():
    history = HistoryBuilder()
    for value in range(3):
        history.written(0, value, value)
    history.final(0, [(0, 0)])
    assert broken(history) == {"high-watermark-back", "lost-write"}


def test_value_at_two_offsets_is_duplicate():
    history = HistoryBuilder()
    history.written(0, 0, 0)
    history.written(0, 1, 2)
    history.final(0, [(0, 0), (0, 1), (1, 2)])
    assert broken(history) == {"duplicate"}


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


def test_read_of_an_unwritten_value_is_phantom_and_of_a_failed_one_aborted():
    history = HistoryBuilder()
    history.sent("invoke", 0, 0)
    history.sent("fail", 0, 0, error="MSG_SIZE_TOO_LARGE")
    history.final(0, [(0, 0), (77, 1)])
    assert [finding.value for finding in outcome(history, "phantom").findings] == [77]
    assert [finding.value for finding in outcome(history, "aborted-read").findings] == [0]


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


def test_new_quorum_leader_that_moves_below_an_older_epoch_is_found_but_a_deposed_one_may_lag():
    history = good_history()
    history.observed(what="quorum", leader_id=1, leader_epoch=1, high_watermark=41)
    assert broken(history) == set()
    history.observed(what="quorum", leader_id=3, leader_epoch=3, high_watermark=42)
    # 42 is the high watermark that it had as a follower: no record of its own epoch is committed
    # yet.
    assert broken(history) == set()
    history.observed(what="quorum", leader_id=3, leader_epoch=3, high_watermark=43)
    assert broken(history) == {"high-watermark-back"}


def test_findings_are_bounded_and_the_count_is_not():
    history = HistoryBuilder()
    for value in range(100):
        history.written(0, value, value)
    history.final(0, [(100, 100)])
    found = outcome(history, "lost-write")
    assert found.count == 100
    assert len(found.findings) == 20


# --- what is no violation ---------------------------------------------------------------------


def test_compacted_topic_must_keep_the_newest_record_of_a_key_only():
    history = HistoryBuilder()
    for value, key in enumerate("abaab"):
        history.add("p", "invoke", "send", ops=(Send(TOPIC, 0, value, key=key),))
        history.add("p", "ok", "send", ops=(Send(TOPIC, 0, value, value, key),), latency_ms=1.0)
    history.consumed(0, [(0, 0), (1, 1), (3, 3)])
    history.consumed(0, [(4, 4)])
    compacted = CheckRules(compacted_topics=frozenset({TOPIC}))
    history.final(0, [(3, 3), (4, 4)])
    assert broken(history, compacted) == set()
    assert broken(history) == {"lost-write", "int-poll-skip", "unseen"}


def test_compacted_topic_without_the_newest_record_of_a_key_lost_it():
    history = HistoryBuilder()
    for value, key in enumerate("aab"):
        history.add("p", "invoke", "send", ops=(Send(TOPIC, 0, value, key=key),))
        history.add("p", "ok", "send", ops=(Send(TOPIC, 0, value, value, key),), latency_ms=1.0)
    history.final(0, [(0, 0), (2, 2)])
    compacted = CheckRules(compacted_topics=frozenset({TOPIC}))
    assert [f.value for f in outcome(history, "lost-write", compacted).findings] == [1]


def test_a_compacted_topic_to_which_nothing_was_written_for_sure_has_lost_nothing():
    """Seed 710837 of the partitions' world."""
    history = HistoryBuilder()
    history.add("p", "invoke", "send", ops=(Send(TOPIC, 0, 0, key="a"),))
    history.add("p", "info", "send", ops=(Send(TOPIC, 0, 0, key="a"),))
    history.final(0, [])
    compacted = CheckRules(compacted_topics=frozenset({TOPIC}))
    assert broken(history, compacted) == set()


def test_records_below_the_start_of_a_trimmed_log_are_not_lost():
    history = HistoryBuilder()
    for value in range(3):
        history.written(0, value, value)
    history.consumed(0, [(0, 0), (2, 2)])
    history.final(0, [(2, 2)], start_offset=2)
    assert broken(history, CheckRules(trimmed_topics=frozenset({TOPIC}))) == set()
    assert broken(history) == {"lost-write", "int-poll-skip", "unseen"}


def test_without_a_final_read_the_polls_tell_what_is_lost():
    history = HistoryBuilder()
    for value in range(4):
        history.written(0, value, value)
    history.consumed(0, [(0, 0), (2, 2)])
    lost = outcome(history, "lost-write")
    # Value 3 is above all values that were read, so it may be unread instead of lost.
    assert [finding.value for finding in lost.findings] == [1]


def test_a_member_that_gets_a_partition_again_continues_elsewhere():
    history = good_history()
    for _ in range(2):
        history.assigned("member-1", 0)
        history.polled("member-1", 0, [(value, value) for value in range(10)])
        history.revoked("member-1", 0)
    assert broken(history) == set()
    history.assigned("member-1", 0)
    history.polled("member-1", 0, [(1, 1)])
    history.polled("member-1", 0, [(1, 1)])
    assert broken(history) == {"nonmonotonic-poll"}


def test_members_whose_assignments_are_not_known_are_not_judged_across_polls():
    history = good_history()
    history.polled("member-1", 0, [(value, value) for value in range(10)])
    history.polled("member-1", 0, [(0, 0)])
    assert broken(history) == set()


def test_a_member_goes_back_after_an_aborted_transaction_and_a_consumer_goes_on():
    for group, begin in (("g", 0), (None, 5)):
        history = good_history()
        history.assigned("member-1", 0)
        first = [(value, value) for value in range(5)]
        history.transacted("fail", polls={0: first}, group=group, process="member-1")
        again = [(value, value) for value in range(begin, 10)]
        history.transacted("ok", polls={0: again}, group=group, process="member-1")
        assert broken(history) == set()


def test_a_group_sees_what_one_of_its_members_sees():
    history = HistoryBuilder()
    for value in range(4):
        history.written(0, value, value)
    history.final(0, [(value, value) for value in range(4)])
    history.polled("member-1", 0, [(0, 0)])
    history.polled("member-2", 0, [(1, 1), (2, 2)])
    # The group may have been stopped before it reached value 3.
    assert broken(history) == set()
    history.polled("member-2", 0, [(3, 3)])
    assert broken(history) == set()


def test_a_topic_that_no_consumer_polls_is_noted_and_not_counted():
    history = HistoryBuilder()
    history.written(0, 0, 0)
    history.final(0, [(0, 0)])
    found = outcome(history, "unseen")
    assert (found.count, found.examined) == (0, 0)
    assert found.notes == ("no consumer that keeps reading polled orders-0",)


def test_partitions_of_two_topics_are_judged_apart():
    history = HistoryBuilder()
    history.written(0, 0, 0)
    history.final(0, [(0, 0)])
    history.final(0, [], topic="audit")
    assert broken(history) == set()


def test_a_value_sent_before_its_partition_was_known_is_no_phantom():
    history = HistoryBuilder()
    history.sent("invoke", -1, 0)
    history.final(1, [(0, 0)])
    assert broken(history) == set()


def test_cycles_need_edges_both_ways():
    history = HistoryBuilder()
    for value in range(5):
        history.transacted(
            sends=[(0, value, value)],
            polls={0: [(value - 1, value - 1)]} if value else {},
            process=f"transactions-{value % 2}",
        )
    history.final(0, [(value, value) for value in range(5)])
    assert not {"G0", "G1c"} & broken(history)
    assert outcome(history, "G1c").examined == 4


def test_a_cycle_with_writes_is_a_figure_and_no_violation():
    history = HistoryBuilder()
    # T1 reads T2's record of partition 1, and T2 writes after T1 in partition 0.
    history.transacted(sends=[(0, 0, 1)], polls={1: [(1, 0)]}, process="transactions-1")
    history.transacted(sends=[(0, 2, 2), (1, 1, 0)], process="transactions-2")
    history.final(0, [(0, 1), (2, 2)])
    history.final(1, [(1, 0)])
    found = outcome(history, "G1c")
    assert (found.count, found.figures) == (0, {"cycles_with_writes": 1.0})


def test_a_long_cycle_is_told_in_order():
    history = HistoryBuilder()
    size = 2000
    for number in range(size):
        history.transacted(
            sends=[(0, number, number)],
            polls={0: [((number + 1) % size, (number + 1) % size)]},
            process=f"transactions-{number}",
        )
    history.final(0, [(value, value) for value in range(size)])
    found = outcome(history, "G1c")
    assert found.count == 1
    assert found.findings[0].message.count("was read by") == size


def test_a_transaction_of_unknown_outcome_may_be_there_or_not():
    for present in ([], [(0, 0)]):
        history = HistoryBuilder()
        history.transacted("info", sends=[(0, 0, 0)])
        history.final(0, present, end_offset=1 if present else None)
        assert broken(history) == set()


def test_a_partition_passes_to_the_next_member_after_it_was_given_up_or_lost():
    history = HistoryBuilder()
    history.assigned("member-1", 0, 1)
    history.revoked("member-1", 1)
    history.assigned("member-2", 1)
    # The coordinator removes member-1, which hears of it late.
    history.assigned("member-2", 0)
    history.revoked("member-1", 0, type="info")
    assert broken(history) == set()


def test_two_owners_in_one_generation_or_in_one_description_are_found():
    history = HistoryBuilder()
    history.assigned("member-1", 0, generation=4)
    history.assigned("member-2", 0, generation=4)
    assert outcome(history, "owned-twice").count == 1
    history.observed(what="group", group="g", members={"a": [["orders", 1]], "b": [["orders", 1]]})
    assert outcome(history, "owned-twice").count == 2


def test_a_group_that_starts_below_its_committed_offset_lost_the_commit():
    history = good_history()
    history.assigned("member-1", 0)
    history.polled("member-1", 0, [(value, value) for value in range(5)])
    history.committed("member-1", 0, 5)
    history.revoked("member-1", 0)
    history.assigned("member-2", 0)
    history.polled("member-2", 0, [(value, value) for value in range(3, 10)])
    assert broken(history) == {"commit-lost"}


def test_a_commit_of_unknown_outcome_may_be_in_force():
    history = HistoryBuilder()
    history.committed("member-1", 0, 3)
    history.committed("member-1", 0, 5, type="info")
    for found in (3, 5):
        history.assigned("member-2", 0, found={0: found})
        history.revoked("member-2", 0)
    assert broken(history) == set()


def test_commits_under_way_at_the_same_time_may_take_either_order():
    history = HistoryBuilder()
    for member, offset in (("member-1", 5), ("member-2", 3)):
        ops = (Commit(TOPIC, 0, offset),)
        history.add(member, "ok", "commit", ops=ops, group="g", latency_ms=50.0)
    assert broken(history) == set()


def test_retried_and_unanswered_creations_explain_what_is_there():
    history = HistoryBuilder()
    history.asked("create-topic", "t", "info", error="_TIMED_OUT")
    history.asked("delete-topic", "t", "fail", error="UNKNOWN_TOPIC_OR_PART")
    history.asked("create-topic", "t", "ok", error="TOPIC_ALREADY_EXISTS")
    history.asked("delete-topic", "t")
    # The first creation takes effect only now.
    history.asked("delete-topic", "t")
    assert broken(history) == set()
    history.asked("delete-topic", "t")
    assert broken(history) == {"topic-anomaly"}


def test_a_list_that_shows_what_never_was_is_no_stale_read():
    history = HistoryBuilder()
    history.add("a", "ok", "list-topics", details={"topics": []}, latency_ms=1.0)
    history.asked("create-topic", "t")
    history.add("a", "ok", "list-topics", details={"topics": ["t"]}, latency_ms=1.0)
    history.add("a", "ok", "list-topics", details={"topics": []}, latency_ms=1.0)
    assert broken(history) == {"stale-topic-read"}
    history.add("a", "ok", "list-topics", details={"topics": ["u"]}, latency_ms=1.0)
    history.add("a", "invoke", "create-topic", topic="u")
    assert broken(history) == {"stale-topic-read", "topic-anomaly"}


def test_requests_that_overlap_too_much_are_noted_as_not_judged(monkeypatch):
    monkeypatch.setattr(linearizability, "CONFIGURATIONS_MAX", 100)
    history = HistoryBuilder()
    for number in range(20):
        name = f"topics-{number}"
        kind = ("create-topic", "delete-topic")[number % 2]
        history.add(name, "ok", kind, topic="t", at_ms=100 + number, latency_ms=90.0)
    history.add("a", "ok", "delete-topic", topic="t", at_ms=300, latency_ms=1.0)
    found = outcome(history, "topic-anomaly")
    assert (found.count, found.examined) == (0, 0)
    assert "topic t: no verdict after 100 configurations" in found.notes[0]
