"""Encoding of metadata records: msgpack arrays `[type, version, field, field, ...]`.

Fields have the order of the dataclass. A record of an unknown type, or of a newer version than this
build knows, is refused by name and never skipped: a node that skipped a fact would have another
image than its peers.

The directory fields of KIP-858, and the newer version with them, are written only if they have a
value. So a broker with one directory adds no bytes, and older builds can read its records.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import msgpack

from kvorum.metadata.image.acl import AclOperation, PatternType, Permission, ResourceType
from kvorum.metadata.image.features import REASSIGNMENT_LEVEL, RELEASES, FeatureRange
from kvorum.metadata.image.records import (
    RECORD_CLASSES,
    AccessControlEntry,
    BrokerRegistrationChange,
    Endpoint,
    Partition,
    PartitionChange,
    Record,
    RegisterBroker,
    RegisterController,
)
from kvorum.runtime.errors import InvariantViolated, KvorumError

LATEST = max(RELEASES)


class UnreadableRecord(KvorumError):
    """A record that this build cannot read; the message names it and says what to do."""


def encode_record(record: Record, metadata_version: int = LATEST) -> bytes:
    """The bytes of one record, in the version that the metadata.version level allows."""
    encoders = _ENCODERS if metadata_version >= REASSIGNMENT_LEVEL else _OLD_ENCODERS
    encoded: bytes = _PACK(encoders[type(record)](record))
    return encoded


def encode_records(records: Iterable[Record], metadata_version: int = LATEST) -> list[bytes]:
    """The bytes of each record, in order."""
    encoders = _ENCODERS if metadata_version >= REASSIGNMENT_LEVEL else _OLD_ENCODERS
    return [_PACK(encoders[type(record)](record)) for record in records]


def decode_record(value: bytes | memoryview) -> Record:
    """One record from its bytes.

    Raises UnreadableRecord for unknown types, newer versions and malformed values.
    """
    try:
        fields = msgpack.unpackb(value, use_list=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise UnreadableRecord(f"a metadata record is not msgpack: {error}") from error
    if not isinstance(fields, tuple) or len(fields) < 2:
        raise UnreadableRecord("a metadata record is not an array of type, version and fields")
    record_class = _CLASSES.get(fields[0])
    if record_class is None:
        raise UnreadableRecord(
            f"metadata record type {fields[0]} is unknown to this build; run a newer Kvorum"
        )
    if fields[1] > record_class.VERSION:
        raise UnreadableRecord(
            f"{record_class.__name__} version {fields[1]} is newer than version "
            f"{record_class.VERSION} of this build; run a newer Kvorum"
        )
    try:
        if record_class is RegisterBroker:
            return _decode_register_broker(fields)
        if record_class is RegisterController:
            return _decode_register_controller(fields)
        if record_class is AccessControlEntry:
            return _decode_access_control_entry(fields)
        return record_class(*fields[2:])
    except (TypeError, ValueError) as error:
        raise UnreadableRecord(f"malformed {record_class.__name__}: {error}") from error


def _decode_register_broker(fields: tuple[Any, ...]) -> RegisterBroker:
    broker_id, broker_epoch, incarnation_id, endpoints, rack, is_fenced, *rest = fields[2:]
    features, log_dirs = (*rest, (), ())[:2]
    return RegisterBroker(
        broker_id,
        broker_epoch,
        incarnation_id,
        _endpoints_of(endpoints),
        rack,
        is_fenced,
        tuple(FeatureRange(*f) for f in features),
        log_dirs,
    )


def _decode_register_controller(fields: tuple[Any, ...]) -> RegisterController:
    controller_id, incarnation_id, endpoints, features = fields[2:]
    ranges = tuple(FeatureRange(*f) for f in features)
    return RegisterController(controller_id, incarnation_id, _endpoints_of(endpoints), ranges)


def _decode_access_control_entry(fields: tuple[Any, ...]) -> AccessControlEntry:
    # Raises ValueError for a number that this build has no meaning for: an authorizer that skipped
    # a DENY of an unknown operation would be open.
    acl_id, resource_type, name, pattern_type, principal, host, operation, permission = fields[2:]
    return AccessControlEntry(
        acl_id,
        ResourceType(resource_type),
        name,
        PatternType(pattern_type),
        principal,
        host,
        AclOperation(operation),
        Permission(permission),
    )


def _endpoints_of(values: tuple[Any, ...]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(*value) for value in values)


def _values_of(endpoints: tuple[Endpoint, ...]) -> tuple[Any, ...]:
    return tuple((e.name, e.host, e.port, e.security_protocol) for e in endpoints)


def _encode_register_broker(record: RegisterBroker) -> tuple[Any, ...]:
    return (
        record.TYPE,
        record.VERSION if record.log_dirs else 0,
        record.broker_id,
        record.broker_epoch,
        record.incarnation_id,
        _values_of(record.endpoints),
        record.rack,
        record.is_fenced,
        record.features,
        *((record.log_dirs,) if record.log_dirs else ()),
    )


def _encode_register_controller(record: RegisterController) -> tuple[Any, ...]:
    return (
        record.TYPE,
        record.VERSION,
        record.controller_id,
        record.incarnation_id,
        _values_of(record.endpoints),
        record.features,
    )


def _old_encoder(record_class: type[Record], field_count: int) -> Callable[[Any], tuple[Any, ...]]:
    """An encoder for version 0, the first field_count fields; all others must be defaults."""
    encode_all = _plain_encoder(record_class)
    silence = tuple(field.default for field in dataclasses.fields(record_class)[field_count:])

    def encode(record: Any) -> tuple[Any, ...]:
        values = encode_all(record)
        if values[2 + field_count :] != silence:
            raise InvariantViolated(f"version 0 of {record_class.__name__} cannot say {record}")
        return (record.TYPE, 0, *values[2 : 2 + field_count])

    return encode


def _plain_encoder(record_class: type[Record]) -> Callable[[Any], tuple[Any, ...]]:
    names = [field.name for field in dataclasses.fields(record_class)]
    head = (record_class.TYPE, record_class.VERSION)

    def encode(record: Any) -> tuple[Any, ...]:
        return (*head, *[getattr(record, name) for name in names])

    return encode


def _short_encoder(record_class: type[Record]) -> Callable[[Any], tuple[Any, ...]]:
    """An encoder that, if the last field is the default, omits it and uses the version before."""
    encode_all = _plain_encoder(record_class)
    *names, last = [field.name for field in dataclasses.fields(record_class)]
    silence = dataclasses.fields(record_class)[-1].default
    head = (record_class.TYPE, record_class.VERSION - 1)

    def encode(record: Any) -> tuple[Any, ...]:
        if getattr(record, last) == silence:
            return (*head, *[getattr(record, name) for name in names])
        return encode_all(record)

    return encode


def _encode_lowest_register_broker(record: RegisterBroker) -> tuple[Any, ...]:
    if record.log_dirs:
        raise InvariantViolated(f"version 0 of RegisterBroker cannot say {record}")
    return _encode_register_broker(record)


_PACK = msgpack.Packer(use_bin_type=True).pack
_CLASSES: dict[int, type[Record]] = {c.TYPE: c for c in RECORD_CLASSES}
_ENCODERS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    c: _plain_encoder(c) for c in RECORD_CLASSES
}
for _class in (Partition, PartitionChange, BrokerRegistrationChange):
    _ENCODERS[_class] = _short_encoder(_class)
_ENCODERS[RegisterBroker] = _encode_register_broker
_ENCODERS[RegisterController] = _encode_register_controller
#: Encoders for levels of metadata.version below REASSIGNMENT_LEVEL.
_OLD_ENCODERS = {
    **_ENCODERS,
    RegisterBroker: _encode_lowest_register_broker,
    BrokerRegistrationChange: _old_encoder(BrokerRegistrationChange, 4),
    Partition: _old_encoder(Partition, 7),
    PartitionChange: _old_encoder(PartitionChange, 5),
}
