"""Offsets as options name them.

A range is START:END; each side is start, end, N, +N (after the start), -N (before the end), or
@TIME. `rpk topic consume --offset` has the same form.
"""

from __future__ import annotations

import re

from kvorum.cli.records.times import duration_ms, time_ms
from kvorum.client.cluster.offsets import START, Position
from kvorum.storage.format.record_codec import INT64_MAX

_NUMBER = re.compile(r"[+-]?\d+")
_WORDS = {
    "start": "start",
    "earliest": "start",
    "beginning": "start",
    "end": "end",
    "latest": "end",
}
_EXPECTED = "write start, end, N, +N, -N, @TIME, or a range of them with a colon"


def parse_position(text: str, *, now_ms: int) -> Position:
    """One side of a range. Raises ValueError."""
    if text.lower() in _WORDS:
        return Position(kind=_WORDS[text.lower()])
    if text.startswith("@"):
        return Position(kind="time", number=_time(text[1:], now_ms))
    if not _NUMBER.fullmatch(text) or abs(int(text)) > INT64_MAX:
        raise ValueError(f"{text!r} is no offset; {_EXPECTED}")
    number = int(text)
    if text[0] == "+":
        return Position(kind="start", number=number)
    if text[0] == "-":
        return Position(kind="end", number=number)
    return Position(kind="offset", number=number)


def parse_range(text: str, *, now_ms: int) -> tuple[Position, Position | None]:
    """(first, end) of an option; the end is exclusive, None if the text has none. Raises
    ValueError."""
    # An ISO time has colons of its own. After a time, only a colon before `@`, before `end`, or at
    # the end of the text separates the two sides.
    separator = re.search(r":(?=@|end$|$)" if text.startswith("@") else ":", text)
    if separator is None:
        return parse_position(text, now_ms=now_ms), None
    before, after = text[: separator.start()], text[separator.end() :]
    first = parse_position(before, now_ms=now_ms) if before else START
    end = parse_position(after, now_ms=now_ms) if after else None
    if end == START:
        raise ValueError(f"{text!r} ends at the start, and no record is in front of it")
    # Of two kinds, only a partition's own start and end tell which comes first.
    if end is not None and end.kind == first.kind and end.number < first.number:
        raise ValueError(f"{text!r} runs backward; write the earlier side first: {after}:{before}")
    return first, end


def _time(text: str, now_ms: int) -> int:
    if text.startswith("-"):
        return max(now_ms - duration_ms(text[1:]), 0)
    return time_ms(text)
