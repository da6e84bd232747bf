"""The picture of the dashboard: texts, places and variables. The run itself is a tool
(tests/live/dashboard_picture.py)."""

from __future__ import annotations

import itertools
import json
import math

import pytest

from tests.live.dashboard_layout import (
    HANDLE_PX,
    LEGENDS_MAX,
    WIDTH_PX,
    columns_of,
    height_px,
    is_alone,
    legend_entries,
    place,
)
from tests.live.dashboard_panels import (
    UNITS,
    Panel,
    Series,
    clock,
    legend,
    panels_of,
    scale,
    series_of,
    substituted,
    text_of,
    threshold_colour,
)
from tests.tree import ROOT

NAN = math.nan


def shipped() -> list[Panel]:
    path = ROOT / "deploy" / "monitoring" / "kvorum.json"
    return panels_of(json.loads(path.read_text(encoding="utf-8")))


def series(name: str, *values: float) -> Series:
    return Series(legend=name, values=values)


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        ("none", 0, "0"),
        ("none", 12_345, "12345"),
        ("none", 0.25, "0.25"),
        ("s", 0.00025, "250 µs"),
        ("s", 0.0123, "12.3 ms"),
        ("s", 1.5, "1.5 s"),
        ("s", 90, "1.5 min"),
        ("bytes", 1536, "1.5 KiB"),
        ("bytes", 64 * 1024**2, "64 MiB"),
        ("Bps", 1_500_000, "1.5 MB/s"),
        ("ops", 0.2, "0.2 ops/s"),
        ("ops", 1500, "1.5K ops/s"),
        ("reqps", 75, "75 req/s"),
        ("percentunit", 0.425, "42.5 %"),
    ],
)
def test_a_value_has_the_text_of_its_unit(unit: str, value: float, text: str) -> None:
    assert text_of(unit, value) == text


def test_the_ticks_of_an_axis_share_the_unit_of_its_largest_value() -> None:
    assert scale("s", 0.05) == (1e-3, " ms")
    assert scale("bytes", 5 * 1024**2) == (1024**2, " MiB")
    assert scale("Bps", 0) == (1, " B/s")


def test_a_legend_takes_the_values_of_labels() -> None:
    labels = {"node": "broker-101", "listener": "PLAINTEXT"}
    assert legend("{{node}} {{listener}}", labels) == "broker-101 PLAINTEXT"
    assert legend("node {{ node }}", labels) == "node broker-101"
    assert legend("99 %", labels) == "99 %"
    assert legend("{{topic}}", labels) == ""


def test_variables_are_replaced() -> None:
    assert substituted('rate(x{topic=~"$topic"}[$__rate_interval])') == 'rate(x{topic=~".*"}[10s])'
    with pytest.raises(AssertionError, match="not known"):
        substituted("rate(x[$__range])")


def test_seconds_without_a_number_are_gaps() -> None:
    answer = [
        {"metric": {"node": "b"}, "values": [[101, "1"], [103, "+Inf"], [104, "2.5"]]},
        {"metric": {"node": "never"}, "values": [[100, "NaN"]]},
        {"metric": {"node": "a"}, "values": [[100, "0"]]},
    ]
    found = series_of(answer, "{{node}}", start_s=100, count=5)
    assert [one.legend for one in found] == ["a", "b"]
    assert str(found[1].values) == "(nan, 1.0, nan, nan, 2.5)"
    assert found[1].numbers() == [1, 2.5]


def test_a_stat_has_the_colour_of_the_highest_threshold_that_it_reaches() -> None:
    active = next(panel for panel in shipped() if panel.title == "Active controllers")
    colours = [threshold_colour(active.thresholds, value) for value in (0, 1, 2)]
    assert colours == ["red", "green", "red"]


def test_times_are_minutes_and_seconds() -> None:
    assert [clock(seconds) for seconds in (0, 65.9, 180)] == ["0:00", "1:05", "3:00"]


def test_every_panel_is_placed_in_the_picture_and_overlaps_no_other() -> None:
    panels = shipped()
    height = height_px(panels)
    boxes = [place(panel, height) for panel in panels]
    for box in boxes:
        assert box.left > 0 and box.left + box.width < WIDTH_PX
        assert box.bottom > 0 and box.bottom + box.height < height
    for one, other in itertools.combinations(boxes, 2):
        assert (
            one.left + one.width < other.left
            or other.left + other.width < one.left
            or one.bottom + one.height < other.bottom
            or other.bottom + other.height < one.bottom
        )


def test_every_panel_can_be_drawn_and_asks_for_something() -> None:
    for panel in shipped():
        assert panel.kind in ("row", "stat", "timeseries")
        assert panel.unit in UNITS
        assert bool(panel.targets) == (panel.kind != "row")
        assert bool(panel.thresholds) == (panel.kind == "stat")


def test_a_long_legend_keeps_the_largest_series_and_counts_the_others() -> None:
    few = [series(f"s{at}", at) for at in range(LEGENDS_MAX)]
    assert legend_entries(few) == [(at, f"s{at}") for at in range(LEGENDS_MAX)]
    many = [series("largest", NAN, 99), *few, series("large", 50)]
    entries = legend_entries(many)
    assert len(entries) == LEGENDS_MAX
    assert (entries[0], entries[-2]) == ((0, "largest"), (9, "large"))
    assert entries[-1] == (-1, "and 3 more")


def test_a_legend_has_as_few_rows_as_its_texts_have_room_for() -> None:
    assert columns_of([100.0] * 3, 3 * (100 + HANDLE_PX)) == 3
    assert columns_of([100.0] * 3, 3 * (100 + HANDLE_PX) - 1) == 2
    assert columns_of([100.0, 300.0, 100.0], 300 + 100 + 2 * HANDLE_PX) == 2
    assert columns_of([900.0, 900.0], 500) == 1


def test_the_rows_of_a_legend_are_equally_long() -> None:
    """Five columns have room, but six texts would leave one alone in the second row."""
    assert columns_of([100.0] * 6, 5 * (100 + HANDLE_PX)) == 3


def test_a_value_between_two_gaps_is_marked() -> None:
    values = [1.0, NAN, 2.0, NAN, 3.0, 4.0]
    assert [at for at in range(len(values)) if is_alone(values, at)] == [0, 2]
