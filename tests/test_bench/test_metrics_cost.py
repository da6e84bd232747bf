"""The verdict on pairs of throughputs without and with metrics."""

from __future__ import annotations

from bench.metrics_cost import cost_of, results


def test_the_cost_is_the_median_of_the_pairs_ratios():
    assert cost_of([(100, 98), (200, 202), (100, 60)]) == 1 - 0.98
    assert cost_of([(100, 110)]) < 0


def test_the_table_has_each_pair_and_the_verdict():
    met = results([(300, 297), (280, 280.5)] * 3)
    assert "| 1 | 300 | 297 | 0.990 |\n| 2 | 280 | 280 | 1.002 |\n" in met
    assert met.endswith("Cost, by the median of the ratios: +0.4% (goal: at most 2%; met).\n")
    assert results([(100, 97)] * 6).endswith("+3.0% (goal: at most 2%; missed).\n")
    assert "prove nothing" in results([(100, 101)])
