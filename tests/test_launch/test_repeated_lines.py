"""Lines that a quorum without a leader repeats do not fill its log."""

from __future__ import annotations

import logging

from kvorum.launch.daemon.logs import set_up_logging
from kvorum.launch.daemon.repeated_lines import LINES_KEPT_MAX, RepeatedLines


def said(lines: RepeatedLines, text: str, at_s: float, level: int = logging.INFO) -> str | None:
    """The line as it is written, None if it is left out."""
    record = logging.LogRecord("kvorum.raft", level, "", 0, "node=%d %s", (1, text), None)
    record.created = 1_700_000_000.0 + at_s
    return record.getMessage() if lines.filter(record) else None


def test_a_line_that_repeats_is_written_at_growing_intervals():
    lines = RepeatedLines()
    at = {
        step / 4: text
        for step in range(4 * 200)
        if (text := said(lines, "leader=2", step / 4)) is not None
    }
    assert list(at) == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    assert at[0] == "node=1 leader=2"
    assert at[3] == "node=1 leader=2 (and 7 times since)"


def test_another_line_and_a_warning_are_not_left_out():
    lines = RepeatedLines()
    assert said(lines, "leader=2", 0.0) and said(lines, "leader=-1", 0.1)
    assert said(lines, "leader=2", 0.2) is None
    assert said(lines, "leader=2", 0.3, logging.WARNING)


def test_a_line_that_was_not_said_for_long_is_news():
    lines = RepeatedLines()
    for at_s in (0.0, 0.5, 1.0, 2.0):
        said(lines, "leader=2", at_s)
    assert said(lines, "leader=2", 100.0) == "node=1 leader=2"
    assert said(lines, "leader=2", 100.5) is None
    assert said(lines, "leader=2", 101.2) == "node=1 leader=2 (and 1 times since)"


def test_only_so_many_lines_are_remembered():
    lines = RepeatedLines()
    for number in range(LINES_KEPT_MAX + 1):
        assert said(lines, str(number), 0.0)
    assert len(lines._lines) == LINES_KEPT_MAX
    assert said(lines, "0", 0.1) and said(lines, "2", 0.1) is None


def test_the_quorums_log_has_it_once_however_often_it_is_set_up():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    logger = logging.getLogger("kvorum.raft")
    filters = logger.filters[:]
    try:
        set_up_logging()
        set_up_logging()
        assert [type(item) for item in logger.filters] == [RepeatedLines]
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logger.filters[:] = filters
