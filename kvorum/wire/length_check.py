"""Checks that the lengths in a message fit into it, before kio parses it.

kio's native parser trusts an array's count and allocates memory for that many items. A request of
20 bytes that claims two billion items would kill the process. This module compares every count and
length with the remaining bytes; an item takes at least one byte. It also counts all items, so that
one request cannot keep a broker busy for seconds.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import struct
from collections.abc import Callable
from typing import Any

from kvorum.runtime.errors import WireError
from kvorum.wire.primitives import INT16, INT32
from kvorum.wire.shapes import shape_of


class Items:
    """The number of array items and tagged fields that a message may still have."""

    __slots__ = ("left", "most")

    def __init__(self, most: int) -> None:
        self.most = self.left = most

    def take(self, count: int) -> None:
        if count > 0:
            self.left -= count
            if self.left < 0:
                raise WireError(f"{count} items more make it over the bound of {self.most}")


Skip = Callable[[bytes, int, Items], int]
"""(message, start of a value, items) -> end of the value. Raises WireError, IndexError,
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
    try:
        end = _entity_skip(entity)(body, 0, Items(most))
    except (IndexError, struct.error) as error:
        raise WireError(f"{entity.__name__} of {len(body)} bytes ends too early") from error
    if end > len(body):
        raise WireError(f"{entity.__name__} of {len(body)} bytes ends too early")


@functools.cache
def _entity_skip(entity: Any) -> Skip:
    is_flexible = bool(entity.__flexible__)
    plain: list[Skip] = []
    tagged: dict[int, Skip] = {}
    for field in dataclasses.fields(entity):
        tag = field.metadata.get("tag")
        skip = _field_skip(field, is_flexible, is_tagged=tag is not None)
        if tag is None:
            plain.append(skip)
        else:
            tagged[tag] = skip

    def skip_entity(body: bytes, at: int, items: Items) -> int:
        for skip in plain:
            at = skip(body, at, items)
        return _skip_tags(body, at, items, tagged) if is_flexible else at

    return skip_entity


def _skip_tags(body: bytes, at: int, items: Items, known: dict[int, Skip]) -> int:
    count, at = _uvarint(body, at)
    items.take(count)
    for _ in range(count):
        tag, at = _uvarint(body, at)
        size, at = _uvarint(body, at)
        end = at + size
        _fits(body, at, size)
        skip = known.get(tag)
        if skip is not None and skip(body, at, items) > end:
            raise WireError(f"tag {tag} is longer than the {size} bytes that it says")
        at = end
    return at


def _field_skip(field: Any, is_flexible: bool, *, is_tagged: bool) -> Skip:
    kind, inner, is_optional = shape_of(field.type)
    if dataclasses.is_dataclass(inner):
        item = _entity_skip(inner)  # type: ignore[arg-type]
    else:
        item = _primitive_skip(field.metadata["kafka_type"], is_flexible)
    if kind == "array":
        return _array_skip(item, is_flexible)
    if is_optional and dataclasses.is_dataclass(inner) and not is_tagged:
        return _nullable_struct_skip(item)
    return item


def _array_skip(item: Skip, is_flexible: bool) -> Skip:
    def skip_array(body: bytes, at: int, items: Items) -> int:
        if is_flexible:
            count, at = _uvarint(body, at)
            count -= 1
        else:
            count = INT32.unpack_from(body, at)[0]
            at += 4
        _fits(body, at, count)
        items.take(count)
        for _ in range(count):
            at = item(body, at, items)
        return at

    return skip_array


def _nullable_struct_skip(item: Skip) -> Skip:
    def skip_struct(body: bytes, at: int, items: Items) -> int:
        return at + 1 if body[at] == _NULL_STRUCT else item(body, at + 1, items)

    return skip_struct


def _primitive_skip(kafka_type: str, is_flexible: bool) -> Skip:
    size = FIXED_BYTES.get(kafka_type)
    if size is not None:
        fixed = size
        return lambda _body, at, _items: at + fixed
    if is_flexible:
        return _skip_compact
    return _skip_string if kafka_type == "string" else _skip_bytes


def _skip_compact(body: bytes, at: int, _items: Items) -> int:
    length, at = _uvarint(body, at)
    _fits(body, at, length - 1)
    return at + max(length - 1, 0)


def _skip_string(body: bytes, at: int, _items: Items) -> int:
    length: int = INT16.unpack_from(body, at)[0]
    _fits(body, at + 2, length)
    return at + 2 + max(length, 0)


def _skip_bytes(body: bytes, at: int, _items: Items) -> int:
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
