"""Names as people and tools read them."""

from __future__ import annotations

import re


def percent_escaped(name: str, reserved: re.Pattern[str]) -> str:
    """The name with every character that `reserved` finds as in a URL, `%2F`. With the percent sign
    among them different names stay different. ASCII characters only."""
    return reserved.sub(lambda found: f"%{ord(found[0]):02X}", name)
