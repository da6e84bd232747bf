"""The pictures of lessons, as text and as drawings."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from kvorum.tour.pages.picture_svg import WIDTH, svg
from kvorum.tour.picture import GAP, Part, Picture, Row, bars, logs, spans
from kvorum.tour.picture_text import lines_of

LOG = logs(
    "Two logs, <one> & another",
    {"101 leads": ["one", "two", "three"], "102 follows": ["one", "", "other"]},
    lambda text: text == "other",
    ((1, "HW 1"), (3, "log end 3")),
    ((0, "epoch 0"), (1, "epoch 1"), (GAP, "no record")),
)
BARS = bars("Bytes", {"alone": 214_000, "together": (61, 93_936)}, "bytes")
WIDE = Picture(
    title="Many small parts",
    rows=(
        Row(label="forty", parts=tuple(Part(length=1, text=f"record {i}") for i in range(40))),
        Row(label="none", parts=(), start=0, marks=((0, "a mark"), (40, "a mark at the end"))),
    ),
)


def text(picture: Picture, width: int = 80) -> str:
    return "\n".join(lines_of(picture, width, is_plain=True))


def test_a_log_is_a_row_of_records_with_marks_below_it_and_a_key():
    assert text(LOG) == (
        "Two logs, <one> & another\n"
        "101 leads    ## one ## ## two ## # three #\n"
        "102 follows  ## one ## ......... = other =\n"
        "                       ^HW 1               ^log end 3\n"
        "### epoch 0\n"
        "=== epoch 1\n"
        "... no record"
    )


def test_a_figure_is_a_bar_as_long_as_its_share_of_the_longest():
    _, alone, together = text(BARS).splitlines()
    assert alone.endswith("  214,000 bytes") and together.endswith("  93,997 bytes")
    assert abs(together.count("=") - alone.count("#") * 93_936 / 214_000) < 2


@pytest.mark.parametrize("width", [40, 55, 80, 100])
@pytest.mark.parametrize("picture", [LOG, BARS, WIDE], ids=["log", "bars", "wide"])
def test_a_picture_fits_into_the_width_and_is_ascii_in_a_pipe(picture, width):
    lines = lines_of(picture, width, is_plain=True)
    assert max(map(len, lines)) <= width
    assert all(line.isascii() and "\x1b" not in line for line in lines)


def test_texts_without_room_stand_below_their_row():
    assert "one, -, other" in " ".join(text(LOG, 30).split())
    assert "record 39" in text(WIDE, 100)


def test_marks_that_would_touch_stand_on_two_lines_the_last_one_first():
    row = Row(label="log", parts=spans([0, 50, 51]), marks=((50, "high watermark"), (51, "end")))
    first, second = text(Picture(title="A log", rows=(row,))).splitlines()[2:4]
    assert first.strip() == "^end" and second.strip() == "^high watermark"


def test_tones_differ_without_colour_and_have_colours_on_a_terminal():
    plain = text(LOG)
    coloured = "\n".join(lines_of(LOG, 80, is_plain=False))
    assert "#" in plain and "=" in plain and "." in plain
    signs = {re.sub("[ \x1b\\[0-9m]", "", line)[:3] for line in coloured.splitlines()[-3:]}
    assert len(signs) == 3
    assert "\x1b[36m" in coloured and "\x1b[33m" in coloured


def test_a_part_that_is_not_nothing_is_seen():
    assert "#" in text(bars("Seconds", {"quick": 0.001, "slow": 1_000})).splitlines()[1]
    assert "#" not in text(bars("Seconds", {"none": 0, "slow": 1_000})).splitlines()[1]
    assert text(bars("Seconds", {"none": 0}))


@pytest.mark.parametrize("picture", [LOG, BARS, WIDE], ids=["log", "bars", "wide"])
def test_a_drawing_is_xml_with_a_title_and_nothing_outside_of_it(picture):
    root = ElementTree.fromstring(svg(picture))
    assert root.get("role") == "img"
    assert root.findtext("{*}title") == picture.title
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(box.get("x", 0)) + float(box.get("width", 0)) <= WIDTH


def test_a_drawing_has_its_colours_for_dark_pages_and_a_box_for_each_tone():
    drawn = svg(LOG)
    assert "prefers-color-scheme: dark" in drawn
    assert {"t0", "t1", "t-1"} <= set(re.findall(r'rect class="([^"]+)"', drawn))
    assert ">three</text>" in drawn and "&lt;one&gt; &amp; another" in drawn
