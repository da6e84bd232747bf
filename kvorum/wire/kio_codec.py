"""Codec of the infrequent APIs: requests by kio's native parser, responses from plain mappings.

A response is a nested dict with the fields of the NEWEST version. The encoder, compiled once for
each schema class from kio's field table, writes the fields that the requested version has. So an
API file is written once, and not once for each version. Only the schema modules of versions that
are used get imported, because a schema costs tens of milliseconds. kio's own writers are some ten
times slower, as they go through dataclass instances; tests compare the bytes of both.

Values: ints for every number, error code and duration in ms (kio's `throttle_time` stays
`throttle_time`), 16 bytes or None for uuids, str, bytes, bool, sequences, dicts.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvorum.runtime.errors import WireError
from kvorum.runtime.ids import UUID_ZERO
from kvorum.wire.length_check import check_lengths
from kvorum.wire.null_check import Check, null_check
from kvorum.wire.primitives import REQUEST_ITEMS_MAX, count_bytes, string_bytes, uvarint_bytes
from kvorum.wire.shapes import shape_of
from kvorum.wire.unknown_tags import without_unknown_tags

Encoder = Callable[[bytearray, Any], None]

OWN_TAGS = "own tagged fields"
"""Key in a response's mapping: (tag, bytes) pairs, ascending, written after Kafka's own tags."""


class Packed(bytes):
    """A value in a response's mapping: an array that is already packed, with its count."""

    __slots__ = ()


def read_request(name: str, version: int, body: memoryview) -> Any:
    """The kio entity of a request body (its type depends on name and version).

    Bytes after the last field are ignored, as in Kafka: librdkafka's Metadata v13 request has three
    of them. Raises WireError if the body is malformed.
    """
    return _read(name, version, "request", body)


def _read(name: str, version: int, kind: str, body: memoryview) -> Any:
    read, decode_error, check_nulls = _reader(name, version, kind)
    # kio refuses writable buffers.
    readable = bytes(body)
    items_max = REQUEST_ITEMS_MAX if kind == "request" else None
    check_lengths(message_class(name, version, kind), readable, items_max=items_max)
    for is_cleaned in (False, True):
        try:
            entity, _ = read(readable, 0)
        except KeyError as error:
            # kio raises KeyError for a tagged field that is newer than its schemas.
            if is_cleaned:
                raise WireError(f"malformed {name} v{version} {kind}: {error!r}") from error
            readable = without_unknown_tags(message_class(name, version, kind), body)
        except (decode_error, ValueError, OverflowError, MemoryError) as error:
            raise WireError(f"malformed {name} v{version} {kind}: {error!r}") from error
        else:
            check_nulls(entity)
            return entity
    return None


def encode_response(name: str, version: int, values: Mapping[str, Any]) -> bytearray:
    """The body of a response. Raises KeyError for a missing field without a default."""
    out = bytearray()
    _message_encoder(name, version, "response")(out, values)
    return out


def encode_request(name: str, version: int, values: Mapping[str, Any]) -> bytearray:
    """The body of a request: to another broker, or of a tool or a test."""
    out = bytearray()
    _message_encoder(name, version, "request")(out, values)
    return out


def read_response(name: str, version: int, body: memoryview) -> Any:
    """The kio entity of a response body, for requests between brokers. Raises WireError."""
    return _read(name, version, "response", body)


def warm_up(name: str, version: int) -> None:
    """Import the schema of one API version and compile its reader and encoder."""
    _reader(name, version, "request")
    _message_encoder(name, version, "response")


def uuid_bytes(value: Any) -> bytes:
    """The 16 bytes of a uuid as kio reads it (None is the zero uuid)."""
    return UUID_ZERO if value is None else bytes(value.bytes)


def milliseconds(value: Any) -> int:
    """The milliseconds of a duration as kio reads it."""
    return round(float(value.total_seconds()) * 1000)


@functools.cache
def message_class(name: str, version: int, kind: str) -> Any:
    """kio's class of one message; kind is "request" or "response"."""
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
    wanted = (name.replace("_", "") + kind).lower()
    for attribute, value in vars(module).items():
        if attribute.lower() == wanted:
            return value
    raise WireError(f"kio has no {kind} {name} v{version}")


@functools.cache
def _reader(name: str, version: int, kind: str) -> tuple[Any, type[Exception], Check]:
    from kio.serial import entity_reader
    from kio.serial.errors import SerialError

    cls = message_class(name, version, kind)
    return entity_reader(cls), SerialError, null_check(cls)


@functools.cache
def _message_encoder(name: str, version: int, kind: str) -> Encoder:
    return _entity_encoder(message_class(name, version, kind))


@functools.cache
def _entity_encoder(entity: Any) -> Encoder:
    is_flexible = bool(entity.__flexible__)
    plain: list[tuple[str, Any, Encoder]] = []
    tagged: list[tuple[int, str, Any, Encoder]] = []
    for field in dataclasses.fields(entity):
        tag = field.metadata.get("tag")
        encoder = _field_encoder(field, is_flexible, is_tagged=tag is not None)
        if tag is None:
            plain.append((field.name, _default_of(field), encoder))
        else:
            tagged.append((tag, field.name, _tag_default_of(field), encoder))
    tagged.sort(key=lambda row: row[0])

    def encode(out: bytearray, values: Mapping[str, Any]) -> None:
        for name, default, encoder in plain:
            value = values.get(name, default)
            if value is _MISSING:
                raise KeyError(f"{entity.__name__}.{name} has no default and was not given")
            encoder(out, value)
        if not is_flexible:
            return
        present = [row for row in tagged if values.get(row[1], row[2]) != row[2]]
        own: Sequence[tuple[int, bytes]] = values.get(OWN_TAGS, ())
        out += uvarint_bytes(len(present) + len(own))
        for tag, name, _, encoder in present:
            payload = bytearray()
            encoder(payload, values[name])
            out += uvarint_bytes(tag) + uvarint_bytes(len(payload)) + payload
        for tag, data in own:
            out += uvarint_bytes(tag) + uvarint_bytes(len(data)) + data

    return encode


def _field_encoder(field: Any, is_flexible: bool, *, is_tagged: bool) -> Encoder:
    kind, inner, is_optional = shape_of(field.type)
    item: Encoder
    if dataclasses.is_dataclass(inner):
        item = _entity_encoder(inner)  # type: ignore[arg-type]
    else:
        item = _primitive_encoder(field.metadata["kafka_type"], is_flexible)
    if kind == "array":
        return _array_encoder(item, is_flexible)
    if is_optional and dataclasses.is_dataclass(inner) and not is_tagged:
        return _nullable_struct_encoder(item)
    return item


def _array_encoder(item: Encoder, is_flexible: bool) -> Encoder:
    def encode(out: bytearray, values: Any) -> None:
        if type(values) is Packed:
            out += values
            return
        if values is None:
            out += count_bytes(-1, is_flexible)
            return
        out += count_bytes(len(values), is_flexible)
        for value in values:
            item(out, value)

    return encode


def _nullable_struct_encoder(item: Encoder) -> Encoder:
    def encode(out: bytearray, value: Any) -> None:
        if value is None:
            out += b"\xff"
            return
        out += b"\x01"
        item(out, value)

    return encode


def _primitive_encoder(kafka_type: str, is_flexible: bool) -> Encoder:
    packer = _PACKERS.get(kafka_type)
    if packer is not None:
        pack = packer.pack

        def encode_number(out: bytearray, value: int) -> None:
            out += pack(value)

        return encode_number
    if kafka_type == "string":

        def encode_string(out: bytearray, value: str | None) -> None:
            out += string_bytes(value, is_flexible)

        return encode_string
    if kafka_type == "uuid":

        def encode_uuid(out: bytearray, value: bytes | None) -> None:
            out += UUID_ZERO if value is None else value

        return encode_uuid
    if kafka_type in ("bytes", "records"):

        def encode_bytes(out: bytearray, value: bytes | None) -> None:
            out += count_bytes(-1 if value is None else len(value), is_flexible)
            out += value or b""

        return encode_bytes
    raise WireError(f"no encoder for the type {kafka_type}")


def _default_of(field: Any) -> Any:
    if field.default is not dataclasses.MISSING:
        return _plain(field.default)
    kind, inner, is_optional = shape_of(field.type)
    kafka_type = field.metadata.get("kafka_type")
    if kafka_type == "error_code" or (kafka_type or "").startswith("timedelta"):
        return 0
    if kafka_type == "uuid" and kind == "one":
        return None
    if kafka_type == "bool":
        return False
    if is_optional and not dataclasses.is_dataclass(inner) and kind == "one":
        return None
    return _MISSING


def _tag_default_of(field: Any) -> Any:
    if field.default is not dataclasses.MISSING:
        return _plain(field.default)
    kind, _, _ = shape_of(field.type)
    return () if kind == "array" else None


def _plain(value: Any) -> Any:
    return milliseconds(value) if hasattr(value, "total_seconds") else value


class _Missing:
    """Marks a field that every caller must provide."""


_MISSING = _Missing()
_PACKERS = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "uint16": struct.Struct(">H"),
    "uint32": struct.Struct(">I"),
    "float64": struct.Struct(">d"),
    "bool": struct.Struct(">?"),
    "error_code": struct.Struct(">h"),
    "timedelta_i32": struct.Struct(">i"),
    "timedelta_i64": struct.Struct(">q"),
    "datetime_i64": struct.Struct(">q"),
}
