"""Histograms and windows that hot code keeps for the metrics page."""

from __future__ import annotations

import random
from bisect import bisect_left

import pytest

from kvorum.runtime.metrics import RECENT_S, Histogram, Window


def test_a_value_at_a_bound_counts_below_it():
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 3.0):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.count == 5
    assert histogram.sum == 8.0


def test_a_quantile_lies_in_the_bucket_of_the_value_of_that_rank():
    rng, bounds = random.Random(4), (0.1, 0.2, 0.5, 1.0, 2.0)
    histogram, values = Histogram(bounds), [rng.random() * 2 for _ in range(999)]
    for value in values:
        histogram.observe(value)
    for q in (0.01, 0.5, 0.9, 0.99, 1.0):
        exact = sorted(values)[max(round(q * 999) - 1, 0)]
        found = histogram.quantile(q)
        assert bisect_left(bounds, found) == bisect_left(bounds, exact)


def test_a_quantile_of_nothing_is_zero_and_of_too_much_the_last_bound():
    histogram = Histogram((1.0, 2.0))
    assert histogram.quantile(0.99) == 0.0
    histogram.observe(50.0)
    assert histogram.quantile(0.5) == 2.0


def test_recent_counts_leave_out_what_is_older_than_two_windows():
    histogram = Histogram((1.0,))
    histogram.observe(0.5)
    assert sum(histogram.recent(0.0)) == 1
    histogram.observe(0.5)
    assert sum(histogram.recent(RECENT_S / 2)) == 2
    assert sum(histogram.recent(RECENT_S)) == 1
    assert sum(histogram.recent(2 * RECENT_S)) == 0
    assert histogram.count == 2


def test_a_window_forgets():
    window = Window(window_s=10.0)
    assert window.mean(0.0) is None
    assert window.rate(0.0) == 0.0
    window.note(4.0, 0.0)
    window.note(8.0, 1.0)
    assert window.mean(1.0) == 6.0
    assert window.maximum(1.0) == 8.0
    # The rate is over at least one sample, 5 s: the first second does not count five times.
    assert window.rate(1.0) == pytest.approx(12 / 5)
    window.note(2.0, 6.0)
    assert window.maximum(6.0) == 8.0
    assert window.maximum(10.0) == 2.0
    assert window.mean(17.0) is None
