"""Removes tagged fields that this build does not know from requests (KIP-482).

A newer client may add tags to any struct of a flexible version, and kio refuses unknown ones. The
body is then copied without these fields, by the structure of kio's classes, and read again. Only
requests with such a tag pay for that.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from kvorum.runtime.errors import WireError
from kvorum.wire.length_check import FIXED_BYTES
from kvorum.wire.primitives import Reader, uvarint_bytes
from kvorum.wire.shapes import shape_of

_NULL_STRUCT = 0xFF

Copy = Callable[[Reader, bytearray], None]
"""Copies one value from the reader to the end of the buffer."""


def without_unknown_tags(entity: Any, body: bytes | memoryview) -> bytes:
    """`body`, a message of kio's class `entity` in a flexible version, without unknown tags.

    Raises WireError if it is malformed.
    """
    reader = Reader(body, 0, len(body))
    out = bytearray()
    try:
        _entity_copy(entity)(reader, out)
    except IndexError as error:
        raise WireError(f"a message of {len(body)} bytes ends too early") from error
    return bytes(out) + bytes(body[reader.position :])


@functools.cache
def _entity_copy(entity: Any) -> Copy:
    plain: list[Copy] = []
    tagged: dict[int, Copy] = {}
    for field in dataclasses.fields(entity):
        tag = field.metadata.get("tag")
        copy = _field_copy(field, is_tagged=tag is not None)
        if tag is None:
            plain.append(copy)
        else:
            tagged[tag] = copy

    def copy_entity(reader: Reader, out: bytearray) -> None:
        for copy in plain:
            copy(reader, out)
        _copy_tags(reader, out, tagged)

    return copy_entity


def _copy_tags(reader: Reader, out: bytearray, known: dict[int, Copy]) -> None:
    kept: list[bytes] = []
    for _ in range(reader.uvarint()):
        tag, size = reader.uvarint(), reader.uvarint()
        start = reader.skip(size)
        copy = known.get(tag)
        if copy is None:
            continue
        value = bytearray()
        copy(Reader(reader.buffer, start, start + size), value)
        kept.append(uvarint_bytes(tag) + uvarint_bytes(len(value)) + bytes(value))
    out += uvarint_bytes(len(kept)) + b"".join(kept)


def _field_copy(field: Any, *, is_tagged: bool) -> Copy:
    kind, inner, is_optional = shape_of(field.type)
    if dataclasses.is_dataclass(inner):
        item = _entity_copy(inner)  # type: ignore[arg-type]
    else:
        item = _primitive_copy(field.metadata["kafka_type"])
    if kind == "array":
        return _array_copy(item)
    if is_optional and dataclasses.is_dataclass(inner) and not is_tagged:
        return _nullable_struct_copy(item)
    return item


def _array_copy(item: Copy) -> Copy:
    def copy_array(reader: Reader, out: bytearray) -> None:
        count = reader.array_count(is_flexible=True)
        out += uvarint_bytes(count + 1)
        for _ in range(max(count, 0)):
            item(reader, out)

    return copy_array


def _nullable_struct_copy(item: Copy) -> Copy:
    def copy_struct(reader: Reader, out: bytearray) -> None:
        at = reader.skip(1)
        out.append(reader.buffer[at])
        if reader.buffer[at] != _NULL_STRUCT:
            item(reader, out)

    return copy_struct


def _primitive_copy(kafka_type: str) -> Copy:
    size = FIXED_BYTES.get(kafka_type)

    def copy_fixed(reader: Reader, out: bytearray) -> None:
        at = reader.skip(size or 0)
        out += reader.buffer[at : at + (size or 0)]

    def copy_counted(reader: Reader, out: bytearray) -> None:
        length = reader.uvarint() - 1
        out += uvarint_bytes(length + 1)
        if length > 0:
            at = reader.skip(length)
            out += reader.buffer[at : at + length]

    return copy_counted if size is None else copy_fixed
