"""Times and durations as options give them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SHORT = re.compile(r"(?:\d+(?:ms|s|m|h|d))+")
_SHORT_PART = re.compile(r"(\d+)(ms|s|m|h|d)")
_ISO_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,3})\d*)?S)?)?"
)
_SECONDS_DIGITS_MAX = 10


def time_ms(text: str) -> int:
    """Milliseconds since 1970 of an ISO date or time, or of a number of seconds (up to ten digits)
    or milliseconds. A time without a zone is in UTC, as for Kafka's tools. Raises ValueError."""
    if text.isascii() and text.isdigit():
        return int(text) * (1000 if len(text) <= _SECONDS_DIGITS_MAX else 1)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(
            f"{text!r} is no time; write 2026-01-31T12:00:00, 2026-01-31, or milliseconds"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def duration_ms(text: str) -> int:
    """Milliseconds of a duration, as 90m, 1h30m or ISO's P1DT2H. Raises ValueError."""
    if _SHORT.fullmatch(text):
        return sum(int(n) * _UNITS_MS[unit] for n, unit in _SHORT_PART.findall(text))
    match = _ISO_DURATION.fullmatch(text)
    if match is None or not any(match.groups()) or text.endswith("T"):
        raise ValueError(f"{text!r} is no duration; write 90m, 1h30m, 7d or P1DT2H")
    days, hours, minutes, seconds, fraction = match.groups()
    return (
        int(days or 0) * _UNITS_MS["d"]
        + int(hours or 0) * _UNITS_MS["h"]
        + int(minutes or 0) * _UNITS_MS["m"]
        + int(seconds or 0) * _UNITS_MS["s"]
        + int((fraction or "0").ljust(3, "0"))
    )


def time_text(value_ms: int) -> str:
    """A time in UTC as ISO 8601 has it; "-" for none."""
    if value_ms < 0:
        return "-"
    moment = datetime.fromtimestamp(value_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
