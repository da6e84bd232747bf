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

import functools
import importlib
import importlib.util
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from typing import Any

from kvorum.runtime.errors import WireError
from kvorum.runtime.ids import UUID_ZERO
from kvorum.wire.length_check import check_lengths, without_unknown_tags
from kvorum.wire.null_check import Check, null_check
from kvorum.wire.primitives import REQUEST_ITEMS_MAX, count_bytes, string_bytes, uvarint_bytes
from kvorum.wire.schema import Field, SchemaWalk

Encoder = Callable[[bytearray, Any], None]

OWN_TAGS = "own tagged fields"
"""Key in a response's mapping: (tag, bytes) pairs, ascending, written after Kafka's own tags."""


class Packed(bytes):
    """A value in a response's mapping: an array that is already packed, with its count."""

    __slots__ = ()


def read_request(
    name: str, version: int, body: memoryview, *, items_max: int = REQUEST_ITEMS_MAX
) -> Any:
    """The kio entity of a request body (its type depends on name and version).

    Bytes after the last field are ignored, as in Kafka: librdkafka's Metadata v13 request has three
    of them. Raises WireError if the body is malformed, or has more than `items_max` items.
    """
    return _read(name, version, "request", body, items_max)


def _read(name: str, version: int, kind: str, body: memoryview, items_max: int | None) -> Any:
    read, decode_error, check_nulls = _reader(name, version, kind)
    # kio refuses writable buffers.
    readable = bytes(body)
    entity_class = message_class(name, version, kind)
    check_lengths(entity_class, readable, items_max=items_max)
    for is_cleaned in (False, True):
        try:
            entity, _ = read(readable, 0)
        except KeyError as error:
            # kio raises KeyError for a tagged field that is newer than its schemas.
            if is_cleaned:
                raise WireError(f"malformed {name} v{version} {kind}: {error!r}") from error
            readable = without_unknown_tags(entity_class, readable)
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
    return _read(name, version, "response", body, None)


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
    """The class of one message: ours where kio has none (`kvorum/wire/schemas`), else kio's.

    kind: "request" or "response".
    """
    ours = f"kvorum.wire.schemas.{name}_v{version}_{kind}"
    is_ours = importlib.util.find_spec(ours) is not None
    module = importlib.import_module(ours if is_ours else f"kio.schema.{name}.v{version}.{kind}")
    wanted = (name.replace("_", "") + kind).lower()
    for attribute, value in vars(module).items():
        if attribute.lower() == wanted:
            return value
    raise WireError(f"{module.__name__} has no {kind} {name} v{version}")


@functools.cache
def _reader(name: str, version: int, kind: str) -> tuple[Any, type[Exception], Check]:
    from kio.serial import entity_reader
    from kio.serial.errors import SerialError

    cls = message_class(name, version, kind)
    return entity_reader(cls), SerialError, null_check(cls)


@functools.cache
def _message_encoder(name: str, version: int, kind: str) -> Encoder:
    return _ENCODERS.of(message_class(name, version, kind))


class _Encoders(SchemaWalk[Encoder]):
    def of_struct(self, entity: Any, fields: Sequence[tuple[Field, Encoder]]) -> Encoder:
        is_flexible = bool(entity.__flexible__)
        plain = [
            (one.name, _default_of(one), encoder) for one, encoder in fields if one.tag is None
        ]
        tagged = [
            (one.tag, one.name, _tag_default_of(one), encoder)
            for one, encoder in sorted(fields, key=lambda pair: pair[0].tag or 0)
            if one.tag is not None
        ]

        def encode(out: bytearray, values: Mapping[str, Any]) -> None:
            for name, default, encoder in plain:
                value = values.get(name, default)
                if value is MISSING:
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

    def of_array(self, item: Encoder, field: Field) -> Encoder:
        is_flexible = field.is_flexible

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

    def of_nullable(self, one: Encoder) -> Encoder:
        def encode(out: bytearray, value: Any) -> None:
            if value is None:
                out += b"\xff"
                return
            out += b"\x01"
            one(out, value)

        return encode

    def of_primitive(self, field: Field) -> Encoder:
        return _primitive_encoder(field.kafka_type, field.is_flexible)


_ENCODERS = _Encoders()


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


def _default_of(field: Field) -> Any:
    """The value of a field that the mapping does not have; MISSING if it must have the field."""
    if field.default is not MISSING:
        return _plain(field.default)
    if field.kafka_type == "error_code" or field.kafka_type.startswith("timedelta"):
        return 0
    if field.kafka_type == "bool":
        return False
    if field.is_array or field.struct is not None:
        return MISSING
    return None if field.is_optional or field.kafka_type == "uuid" else MISSING


def _tag_default_of(field: Field) -> Any:
    if field.default is not MISSING:
        return _plain(field.default)
    return () if field.is_array else None


def _plain(value: Any) -> Any:
    return milliseconds(value) if hasattr(value, "total_seconds") else value


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
