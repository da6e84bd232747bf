"""Names and numbers as people and tools read and write them."""

from __future__ import annotations

import re

DIGITS_MAX = 19
"""Of the largest number that anything here counts, 2^63 - 1."""

PORT_MAX = 65_535


def percent_escaped(name: str, reserved: re.Pattern[str]) -> str:
    """The name with every character that `reserved` finds as in a URL, `%2F`. With the percent sign
    among them different names stay different. ASCII characters only."""
    return reserved.sub(lambda found: f"%{ord(found[0]):02X}", name)


def whole_number(text: str) -> int | None:
    """What these decimal digits, and nothing but them, say; None if it is no number or too long.

    Text of others must not go to `int()`: it raises above 4,300 digits, and for digits such as "²"
    that `isdigit()` lets through.
    """
    is_number = text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
    return int(text) if is_number else None


def address_text(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address: its own colons would hide the port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(text: str) -> tuple[str, int] | None:
    """Host, without brackets, and port of `host:port`; None if the text is not of that form."""
    host, _, digits = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    port = whole_number(digits)
    is_host = bool(host) and not host.startswith("[") and not host.endswith("]")
    return (host, port) if is_host and port is not None and 0 < port <= PORT_MAX else None
