"""Times as text: `500ms`, `30s`, `15m`, `2h`, `1d`."""

from __future__ import annotations

import re

_UNITS_MS = {
    "": 1,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


def parse_duration_ms(text: str) -> int | None:
    """The time in ms, which is the unit of a bare number; None for any other text."""
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.lower())
    if found is None or found[2] not in _UNITS_MS:
        return None
    return int(found[1]) * _UNITS_MS[found[2]]
