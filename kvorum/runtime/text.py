"""Text forms of names and numbers, for people and tools."""

from __future__ import annotations

import re

DIGITS_MAX = 19
"""Digits of the largest number in use, 2^63 - 1."""

PORT_MAX = 65_535


def percent_escaped(name: str, reserved: re.Pattern[str]) -> str:
    """The name with every character that `reserved` matches percent-escaped, as in URLs (`%2F`). If
    `reserved` includes the percent sign, different names stay different. ASCII characters only."""
    return reserved.sub(lambda found: f"%{ord(found[0]):02X}", name)


def whole_number(text: str) -> int | None:
    """The number that these decimal digits represent; None for any other text or too many digits.

    Foreign text must not go to `int()`: it raises above 4,300 digits, and for digits such as "²"
    that `isdigit()` accepts.
    """
    is_number = text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
    return int(text) if is_number else None


def address_text(host: str, port: int) -> str:
    """`host:port`; an IPv6 address gets brackets, because it has colons itself."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(text: str) -> tuple[str, int] | None:
    """Host, without brackets, and port of `host:port`; None for text of another form. An IPv6
    address must have brackets: `::1:9092` may be an address alone."""
    host, _, digits = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    port = whole_number(digits)
    is_host = bool(host) and not host.startswith("[") and not host.endswith("]")
    return (host, port) if is_host and port is not None and 0 < port <= PORT_MAX else None


def address_problem(text: str) -> str:
    """Why `split_address` refuses this text."""
    is_ipv6 = text.count(":") > 1 and "[" not in text
    hint = "; an IPv6 address goes in brackets, as [::1]:9092" if is_ipv6 else ""
    return f"{text!r} is not host:port{hint}"


def reading_problem(error: OSError | UnicodeDecodeError) -> str:
    """Why a text file cannot be read, without its path."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8, see byte {error.start}"
    return error.strerror or str(error)
