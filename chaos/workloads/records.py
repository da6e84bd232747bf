"""The content of the load's records: a whole number, padded to the wanted size. Pure."""

from __future__ import annotations


def encode(value: int, record_bytes: int) -> bytes:
    """`value` in decimal, a colon, and padding up to record_bytes."""
    return b"%d:" % value + b"." * max(0, record_bytes - len(str(value)) - 1)


def decode(data: bytes | None) -> int:
    """The value of a record's bytes, -1 for bytes that encode did not make."""
    number, colon, _ = (data or b"").partition(b":")
    return int(number) if colon and number.isdigit() else -1
