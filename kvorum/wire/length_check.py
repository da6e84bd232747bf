"""Checks that the lengths in a message fit into it, before kio parses it.

kio's native parser trusts an array's count and allocates memory for that many items. A request of
20 bytes that claims two billion items would kill the process. This module compares every count and
length with the remaining bytes; an item takes at least one byte. It also counts all items, so that
one request cannot keep a broker busy for seconds.

The same walk finds the tagged fields that this build does not know (KIP-482). A newer client may
add them to any struct of a flexible version, and kio refuses them: the body is then copied without
them and read again. Only messages with such a tag pay for that.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

from kvorum.runtime.errors import WireError
from kvorum.wire.primitives import INT16, INT32, uvarint_bytes
from kvorum.wire.schema import Field, SchemaWalk

Edit = tuple[int, int, bytes]
"""The bytes from start to end of a message, and those that take their place."""


class Walked:
    """The things that a walk over one message has met.

    left: the number of array items and tagged fields that the message may still have.
    edits: they take the unknown tags out of the message.
    """

    __slots__ = ("edits", "left", "most")

    def __init__(self, most: int) -> None:
        self.most = self.left = most
        self.edits: list[Edit] = []

    def take(self, count: int) -> None:
        if count > 0:
            self.left -= count
            if self.left < 0:
                raise WireError(f"{count} items more make it over the bound of {self.most}")


Skip = Callable[[bytes, int, Walked], int]
"""(message, start of a value, what the walk met) -> end of the value. Raises WireError, IndexError,
struct.error."""

FIXED_BYTES = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "error_code": 2, "int32": 4, "uint32": 4,
    "timedelta_i32": 4, "int64": 8, "timedelta_i64": 8, "float64": 8, "datetime_i64": 8,
    "uuid": 16,
}  # fmt: skip
_NULL_STRUCT = 0xFF
_LARGE_UVARINT = re.compile(rb"[\x80-\xff]{2}")
"""Two continuation bytes in a row, as in every varint of three bytes or more. Without them no count
is above 16,383, and an array of that size needs little memory."""


def check_lengths(entity: Any, body: bytes, *, items_max: int | None = None) -> None:
    """Raise WireError if a length in `body`, a message of kio's class `entity`, does not fit, or if
    the body has more than `items_max` items."""
    most = len(body) if items_max is None else items_max
    if entity.__flexible__ and len(body) <= most and _LARGE_UVARINT.search(body) is None:
        return
    _walk(entity, body, Walked(most))


def without_unknown_tags(entity: Any, body: bytes) -> bytes:
    """`body`, a message of kio's class `entity` in a flexible version, without unknown tags.

    Raises WireError if it is malformed.
    """
    met = Walked(len(body))
    _walk(entity, body, met)
    parts = []
    at = 0
    for start, end, instead in sorted(met.edits):
        parts += [body[at:start], instead]
        at = end
    return b"".join([*parts, body[at:]])


def _walk(entity: Any, body: bytes, met: Walked) -> None:
    try:
        end = SKIPS.of(entity)(body, 0, met)
    except (IndexError, struct.error) as error:
        raise WireError(f"{entity.__name__} of {len(body)} bytes ends too early") from error
    if end > len(body):
        raise WireError(f"{entity.__name__} of {len(body)} bytes ends too early")


class _Skips(SchemaWalk[Skip]):
    def of_struct(self, entity: Any, fields: Sequence[tuple[Field, Skip]]) -> Skip:
        is_flexible = bool(entity.__flexible__)
        plain = [skip for field, skip in fields if field.tag is None]
        tagged = {field.tag: skip for field, skip in fields if field.tag is not None}

        def skip_struct(body: bytes, at: int, met: Walked) -> int:
            for skip in plain:
                at = skip(body, at, met)
            return _skip_tags(body, at, met, tagged) if is_flexible else at

        return skip_struct

    def of_array(self, item: Skip, field: Field) -> Skip:
        is_flexible = field.is_flexible

        def skip_array(body: bytes, at: int, met: Walked) -> int:
            if is_flexible:
                count, at = _uvarint(body, at)
                count -= 1
            else:
                count = INT32.unpack_from(body, at)[0]
                at += 4
            _fits(body, at, count)
            met.take(count)
            for _ in range(count):
                at = item(body, at, met)
            return at

        return skip_array

    def of_nullable(self, one: Skip) -> Skip:
        def skip_nullable(body: bytes, at: int, met: Walked) -> int:
            return at + 1 if body[at] == _NULL_STRUCT else one(body, at + 1, met)

        return skip_nullable

    def of_primitive(self, field: Field) -> Skip:
        size = FIXED_BYTES.get(field.kafka_type)
        if size is not None:
            fixed = size
            return lambda _body, at, _met: at + fixed
        if field.is_flexible:
            return _skip_compact
        return _skip_string if field.kafka_type == "string" else _skip_bytes


SKIPS = _Skips()


def _skip_tags(body: bytes, at: int, met: Walked, known: dict[int, Skip]) -> int:
    start = at
    count, at = _uvarint(body, at)
    met.take(count)
    first, kept = at, count
    for _ in range(count):
        begin = at
        tag, sized = _uvarint(body, at)
        size, at = _uvarint(body, sized)
        end = at + size
        _fits(body, at, size)
        skip = known.get(tag)
        if skip is None:
            met.edits.append((begin, end, b""))
            kept -= 1
        else:
            _skip_known(body, met, skip, (sized, at, end), tag)
        at = end
    if kept < count:
        met.edits.append((start, first, uvarint_bytes(kept)))
    return at


def _skip_known(
    body: bytes, met: Walked, skip: Skip, place: tuple[int, int, int], tag: int
) -> None:
    """Skip a known tag's value. place: of its size, of the value, and of what follows."""
    sized, at, end = place
    done = len(met.edits)
    last = skip(body, at, met)
    if last > end:
        raise WireError(f"tag {tag} is longer than the {end - at} bytes that it says")
    if len(met.edits) > done:
        if last < end:
            met.edits.append((last, end, b""))
        change = sum(len(instead) - (stop - start) for start, stop, instead in met.edits[done:])
        met.edits.append((sized, at, uvarint_bytes(end - at + change)))


def _skip_compact(body: bytes, at: int, _met: Walked) -> int:
    length, at = _uvarint(body, at)
    _fits(body, at, length - 1)
    return at + max(length - 1, 0)


def _skip_string(body: bytes, at: int, _met: Walked) -> int:
    length: int = INT16.unpack_from(body, at)[0]
    _fits(body, at + 2, length)
    return at + 2 + max(length, 0)


def _skip_bytes(body: bytes, at: int, _met: Walked) -> int:
    length: int = INT32.unpack_from(body, at)[0]
    _fits(body, at + 4, length)
    return at + 4 + max(length, 0)


def _uvarint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift <= 28:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise WireError("an unsigned varint is longer than five bytes")


def _fits(body: bytes, at: int, count: int) -> None:
    if count > len(body) - at:
        raise WireError(f"{count} items or bytes are announced, {len(body) - at} bytes are left")
