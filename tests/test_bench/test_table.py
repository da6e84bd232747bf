"""Samples to tables."""

from __future__ import annotations

import pytest

from bench.figures import summarize
from bench.rounds import FULL
from bench.run import method
from bench.table import (
    HEADINGS,
    ProcessRow,
    markdown_table,
    number,
    plain_table,
    range_text,
    results_markdown,
    table_rows,
)

_SAMPLES = {
    "kafka": {"produce_all_mb_s": [80.0, 100.0, 90.0], "lost": [0, 0, 0]},
    "kvorum": {"produce_all_mb_s": [225.0, 180.0, 270.0], "lost": [0, 0, 0]},
}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0123, "0.012"),
        (0.4567, "0.46"),
        (3.14159, "3.14"),
        (17.26, "17.3"),
        (228_311.4, "228,311"),
    ],
)
def test_numbers_have_about_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_a_cell_is_median_and_range() -> None:
    assert range_text(summarize([90.0, 80.0, 100.0])) == "90.0 (80.0-100)"


def test_a_single_sample_has_no_range_and_none_is_a_dash() -> None:
    assert range_text(summarize([5.0])) == "5.00"
    assert range_text(None) == "-"


def test_a_row_has_both_sides_the_ratio_and_the_verdict() -> None:
    row = table_rows(_SAMPLES, {})[0]
    assert row == (
        "produce acks=all, 1,000 B",
        "MB/s",
        "90.0 (80.0-100)",
        "225 (180-270)",
        "2.50x",
        "≥ 2.5x Kafka",
        "met",
    )


def test_zero_lost_on_both_sides_has_no_ratio_but_a_verdict() -> None:
    row = table_rows(_SAMPLES, {})[1]
    assert (row[4], row[6]) == ("-", "met")


def test_figures_that_were_not_asked_for_have_no_row() -> None:
    assert [row[0] for row in table_rows(_SAMPLES, {})] == [
        "produce acks=all, 1,000 B",
        "acknowledged records lost",
    ]


def test_a_failure_of_ours_is_never_a_goal_met() -> None:
    failures = {("kvorum", "broker-gap"): "round 2: it hung"}
    rows = {row[0]: row for row in table_rows(_SAMPLES, failures)}
    lost = rows["acknowledged records lost"]
    assert lost[3] == "0 (0-0), failed once or more"
    assert lost[6] == "missed"


def test_a_figure_that_only_failed_has_a_row() -> None:
    rows = table_rows({}, {("kafka", "consume"): "round 1: no"})
    assert [row[:4] for row in rows] == [("consume, 1,000 B", "MB/s", "failed", "-")]


def test_plain_columns_line_up() -> None:
    lines = plain_table([("a", "bb"), ("ccc", "d")], ("x", "y")).splitlines()
    assert lines == ["x    y", "a    bb", "ccc  d"]


def test_markdown_has_a_line_per_row_and_two_of_heading() -> None:
    rows = table_rows(_SAMPLES, {})
    lines = markdown_table(rows).splitlines()
    assert len(lines) == len(rows) + 2
    assert all(line.count("|") == len(HEADINGS) + 1 for line in lines)


def test_results_hold_table_failures_processes_machine_and_method() -> None:
    text = results_markdown(
        machine={"cores": "2"},
        method=method(FULL, 3),
        rows=table_rows(_SAMPLES, {}),
        processes=[
            ProcessRow(side="kvorum", name="broker-101", resident_mb=35.2, idle_cpu_percent=None)
        ],
        failures={("kafka", "idle"): "round 1: gone"},
        notes=["seen"],
    )
    for part in (
        "| produce acks=all, 1,000 B |",
        "- kafka, idle: round 1: gone",
        "- seen",
        "| kvorum | broker-101 | 35.2 | - |",
        "| cores | 2 |",
        "-Xmx512m",
    ):
        assert part in text
