"""The checks of share groups judge what is certain, and nothing else."""

from __future__ import annotations

import pytest

from kvorum.chaos.checks import CheckRules, run_checks_of
from kvorum.chaos.checks.results import CheckResult
from kvorum.chaos.history import ACCEPT, REJECT, RELEASE

from .bad_histories import BAD_HISTORIES
from .histories import TOPIC, HistoryBuilder


def outcome(history: HistoryBuilder, check: str, rules: CheckRules | None = None) -> CheckResult:
    results = run_checks_of(history.events, rules)
    return next(result for result in results if result.check == check)


def broken(history: HistoryBuilder) -> set[str]:
    return {result.check for result in run_checks_of(history.events) if result.count}


def unobserved() -> HistoryBuilder:
    """Two empty partitions."""
    history = HistoryBuilder()
    for partition in (0, 1):
        history.final(partition, [])
    return history


def members(*names: str) -> HistoryBuilder:
    """Members that have joined, and partition 0 with a leader."""
    history = unobserved()
    history.led(0)
    for name in names:
        history.joined(name)
    return history


@pytest.mark.parametrize(("kind", "check"), [
    (ACCEPT, "accepted-again"), (REJECT, "rejected-delivered"),
])  # fmt: skip
class TestASettledRecord:
    def test_comes_again_if_a_later_acknowledgement_of_any_member_is_confirmed(self, kind, check):
        for member in ("a", "b"):
            history = members("a", "b")
            history.delivered("a", 0, 7)
            history.acknowledged("a", 0, 7, kind)
            history.delivered(member, 0, 7, 2)
            history.acknowledged(member, 0, 7, RELEASE)
            found = outcome(history, check)
            assert [finding.offset for finding in found.findings] == [7]

    def test_may_be_delivered_late_to_a_member_that_had_lost_it(self, kind, check):
        history = members("a", "b")
        # 1. b's client gets the record. 2. Its leader fails, and a settles it with the next one.
        # 3. b takes the record from its client.
        history.delivered("a", 0, 7)
        history.acknowledged("a", 0, 7, kind)
        history.delivered("b", 0, 7)
        history.acknowledged("b", 0, 7, ACCEPT, type="fail")
        assert broken(history) == set()

    def test_is_settled_only_by_a_confirmed_acknowledgement(self, kind, check):
        for type in ("info", "fail", "invoke"):
            history = members("a")
            history.delivered("a", 0, 7)
            history.acknowledged("a", 0, 7, kind, type=type)
            history.joined("b")
            history.delivered("b", 0, 7, 2)
            history.acknowledged("b", 0, 7, kind)
            assert broken(history) == set()
            assert outcome(history, check).examined == 1

    def test_is_one_record_of_one_group(self, kind, check):
        history = members("a")
        history.delivered("a", 0, 7)
        history.acknowledged("a", 0, 7, kind)
        history.joined("b")
        history.delivered("b", 0, 8)
        history.delivered("b", 1, 7)
        assert broken(history) == set()


def test_a_released_record_comes_again():
    history = members("a", "b")
    history.delivered("a", 0, 0)
    history.acknowledged("a", 0, 0, RELEASE)
    history.delivered("b", 0, 0, 2)
    history.acknowledged("b", 0, 0)
    assert broken(history) == set()


def test_a_group_that_was_not_drained_may_get_the_rest_later():
    history = BAD_HISTORIES["never-delivered"]()
    history.events = [e for e in history.events if (e.details or {}).get("what") != "drained"]
    found = outcome(history, "never-delivered")
    assert (found.count, found.examined) == (0, 0)
    assert "share group shared was not drained" in found.notes[0]


def test_a_partition_of_which_a_drained_group_got_nothing_is_found():
    history = members("a")
    history.written(1, 0, 0)
    history.final(1, [(0, 0)])
    history.drained()
    assert broken(history) == {"never-delivered"}
    for rules in (
        CheckRules(trimmed_topics=frozenset({TOPIC})),
        CheckRules(compacted_topics=frozenset({TOPIC})),
    ):
        assert outcome(history, "never-delivered", rules).examined == 0


def test_deliveries_of_one_leader_are_counted_even_if_the_leader_counts_too_few():
    history = members("a")
    for _ in range(6):
        history.delivered("a", 0, 0, 0)
        history.acknowledged("a", 0, 0, RELEASE)
    assert broken(history) == {"too-many-deliveries"}


def test_a_new_leader_may_count_anew():
    history = members("a")
    for count in (1, 2, 3):
        history.delivered("a", 0, 0, count)
        history.acknowledged("a", 0, 0, RELEASE)
    history.led(0, 1, leader=102)
    for count in (1, 2, 3):
        history.delivered("a", 0, 0, count)
        history.acknowledged("a", 0, 0, RELEASE)
    assert broken(history) == set()


class TestAHold:
    def second(self, history: HistoryBuilder, count: int = 2) -> set[str]:
        """The checks that fire if b gets offset 0 now."""
        history.delivered("b", 0, 0, count)
        return broken(history)

    def test_is_known_by_the_delivery_alone_if_no_count_is_shown(self):
        history = members("a", "b")
        history.delivered("a", 0, 0, 0)
        assert self.second(history, 0) == {"held-by-two"}

    def test_is_of_a_member_that_got_a_record_later_than_its_client_says(self):
        history = members("a", "b")
        history.delivered("a", 0, 0, 3)
        assert self.second(history, 2) == set()

    def test_ends_when_an_acknowledgement_begins(self):
        history = members("a", "b")
        history.delivered("a", 0, 0)
        history.acknowledged("a", 0, 0, ACCEPT, type="invoke")
        assert self.second(history) == set()

    @pytest.mark.parametrize("type", ["ok", "info"])
    def test_ends_when_its_member_leaves_or_is_killed(self, type):
        history = members("a", "b")
        history.delivered("a", 0, 0)
        history.left("a", type)
        assert self.second(history) == set()

    def test_may_have_ended_with_its_lock(self):
        history = members("a", "b")
        history.delivered("a", 0, 0)
        history.delivered("b", 0, 0, 2, at_ms=15_010)
        assert broken(history) == set()

    def test_may_have_ended_with_its_leader_which_is_observed_a_moment_later(self):
        history = members("a", "b")
        history.delivered("a", 0, 0)
        history.delivered("b", 0, 0, 1)
        history.led(0, 1, leader=102)
        assert broken(history) == set()

    def test_of_a_partition_that_nobody_observed_says_nothing(self):
        history = unobserved()
        history.joined("a")
        history.joined("b")
        history.delivered("a", 0, 0)
        assert self.second(history) == set()
        assert outcome(history, "held-by-two").examined == 0

    @pytest.mark.parametrize(("begin_ms", "end_ms"), [(10, 20), (100, 200), (100, None)])
    def test_may_have_ended_by_a_fault_or_in_the_11_seconds_after_it(self, begin_ms, end_ms):
        history = members("a", "b")
        history.delivered("a", 0, 0, at_ms=9)
        history.fault(0, begin_ms, end_ms)
        history.delivered("b", 0, 0, 2, at_ms=300)
        assert broken(history) == set()

    def test_that_began_long_after_a_fault_is_judged(self):
        history = unobserved()
        history.led(0)
        history.fault(0, 10, 20)
        history.joined("a", at_ms=11_100)
        history.joined("b")
        history.delivered("a", 0, 0)
        assert self.second(history) == {"held-by-two"}
