"""The content of the load's records: a whole number, padded to the wanted size. Pure."""

from __future__ import annotations

from typing import Any


def encode(value: int, record_bytes: int) -> bytes:
    """`value` in decimal, a colon, and padding up to record_bytes."""
    return b"%d:" % value + b"." * max(0, record_bytes - len(str(value)) - 1)


def decode(data: bytes | None) -> int:
    """The value of a record's bytes, -1 for bytes that encode did not make."""
    number, colon, _ = (data or b"").partition(b":")
    return int(number) if colon and number.isdigit() else -1


def offset_of(message: Any) -> int:
    """The offset at which a delivered message was acknowledged; -1 if the answer had none.

    A broker answers an idempotent producer's retry of a batch that the log has already with
    DUPLICATE_SEQUENCE_NUMBER and no offset (KIP-98): the record is acknowledged all the same.
    """
    offset: int | None = message.offset()
    return -1 if offset is None else offset
