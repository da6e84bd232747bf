"""The arithmetic over samples."""

from __future__ import annotations

import pytest

from bench.figures import (
    FIGURES,
    GROUPS,
    OPTIONAL_GROUPS,
    Goal,
    compare_deliveries,
    longest_gap,
    percentile,
    ratio_of,
    summarize,
)


def test_keys_are_unique_and_optional_groups_exist() -> None:
    keys = [figure.key for figure in FIGURES]
    assert len(set(keys)) == len(keys)
    assert set(GROUPS) >= OPTIONAL_GROUPS


def test_summary_holds_median_and_range() -> None:
    summary = summarize([3.0, 1.0, 10.0])
    assert summary is not None
    assert (summary.median, summary.least, summary.most, summary.count) == (3.0, 1.0, 10.0, 3)


def test_no_samples_have_no_summary() -> None:
    assert summarize([]) is None


def test_ratio_is_kvorum_over_kafka() -> None:
    assert ratio_of(50.0, 200.0) == 0.25


@pytest.mark.parametrize(("kvorum", "kafka"), [(None, 1.0), (1.0, None), (1.0, 0.0)])
def test_a_missing_side_or_zero_has_no_ratio(kvorum: float | None, kafka: float | None) -> None:
    assert ratio_of(kvorum, kafka) is None


def test_an_absolute_floor_is_met_at_its_bound() -> None:
    goal = Goal(bound=400, is_ratio=False, is_floor=True)
    assert goal.is_met(400, None) is True
    assert goal.is_met(399.9, None) is False


def test_an_absolute_ceiling_is_met_at_its_bound() -> None:
    goal = Goal(bound=0, is_ratio=False, is_floor=False)
    assert goal.is_met(0, 0) is True
    assert goal.is_met(1, 0) is False


def test_a_ratio_goal_looks_at_both_sides() -> None:
    floor = Goal(bound=2.5, is_ratio=True, is_floor=True)
    assert floor.is_met(250, 100) is True
    assert floor.is_met(249, 100) is False
    ceiling = Goal(bound=0.25, is_ratio=True, is_floor=False)
    assert ceiling.is_met(1, 4) is True
    assert ceiling.is_met(2, 4) is False


def test_a_ratio_goal_without_kafka_is_not_judged() -> None:
    assert Goal(bound=2, is_ratio=True, is_floor=True).is_met(100, None) is None


def test_percentiles_are_values_that_occurred() -> None:
    samples = [float(i) for i in range(1, 101)]
    assert percentile(samples, 50) == 50
    assert percentile(samples, 99) == 99
    assert percentile(samples, 100) == 100
    assert percentile([7.0], 1) == 7.0


def test_percentiles_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        percentile([], 50)
    with pytest.raises(ValueError, match="percent"):
        percentile([1.0], 0)


def test_gap_spans_the_fault() -> None:
    assert longest_gap([1.0, 1.9, 5.0, 5.1, 5.2], struck_at=2.0, until=5.3) == pytest.approx(3.1)


def test_gap_ignores_silence_that_was_over_before_the_fault() -> None:
    assert longest_gap([1.0, 9.0, 9.5, 10.5, 11.0], 10.0, 11.1) == pytest.approx(1.0)


def test_gap_finds_a_second_silence_after_the_fault() -> None:
    assert longest_gap([1.0, 2.1, 2.2, 6.2, 6.3], 2.0, 6.4) == pytest.approx(4.0)


def test_gap_that_never_ends_counts_to_the_end() -> None:
    assert longest_gap([1.0, 2.0], 2.0, 12.0) == pytest.approx(10.0)


def test_gap_without_any_success_counts_from_the_fault() -> None:
    assert longest_gap([], 2.0, 12.0) == pytest.approx(10.0)


def test_gap_does_not_depend_on_the_order_of_successes() -> None:
    assert longest_gap([5.0, 1.9, 1.0], 2.0, 5.1) == longest_gap([1.0, 1.9, 5.0], 2.0, 5.1)


def test_whole_delivery_is_clean() -> None:
    found = compare_deliveries({0: [1, 2, 3], 1: [1]}, {0: [1, 2, 3], 1: [1]})
    assert (found.lost, found.duplicated, found.misplaced) == (0, 0, 0)


def test_an_acknowledged_record_that_is_not_in_the_log_is_lost() -> None:
    assert compare_deliveries({0: [1, 2], 1: [1]}, {0: [1]}).lost == 2


def test_a_record_twice_in_a_partition_is_duplicated() -> None:
    found = compare_deliveries({0: [1, 2]}, {0: [1, 2, 2]})
    assert (found.lost, found.duplicated) == (0, 1)


def test_the_same_value_in_two_partitions_is_no_duplicate() -> None:
    assert compare_deliveries({0: [1], 1: [1]}, {0: [1], 1: [1]}).duplicated == 0


def test_a_record_behind_a_later_one_is_misplaced() -> None:
    assert compare_deliveries({0: [1, 2]}, {0: [2, 1]}).misplaced == 1


def test_a_stored_record_of_unknown_outcome_is_neither() -> None:
    found = compare_deliveries({0: [1]}, {0: [1, 2]})
    assert (found.lost, found.duplicated) == (0, 0)
