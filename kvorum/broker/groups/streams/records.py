"""Records of Streams groups, in Kafka's formats (KIP-1071). Pure.

Types of keys in `__consumer_offsets`, each with the group id, and a member id where `*` stands:

  17  the group epoch        20  the assignment epoch    22* a member's assignment
  19* a member's metadata    21* a member's target       23  the topology

Values have version 0 and are flexible. A tombstone removes what its key names. Type 18 (topics of a
group, before Kafka 4.1) is ignored. Type 1000, the topology's description, is Kvorum's own. The
values' parts are in `record_parts`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kvorum.broker.groups.steps.record_frame import KeyFormat, decode_version_0
from kvorum.broker.groups.streams.description import TopologyDescription, decode_description
from kvorum.broker.groups.streams.member import Endpoint, StreamsMember
from kvorum.broker.groups.streams.record_parts import (
    NO_TAGS,
    encode_pairs,
    encode_tasks,
    encode_topology,
    read_pairs,
    read_tasks,
    read_topology,
    tagged,
)
from kvorum.broker.groups.streams.states import StreamsMemberState
from kvorum.broker.groups.streams.tasks import AssignedTasks, Tasks
from kvorum.broker.groups.streams.topology import NO_TOPOLOGY_EPOCH, Topology
from kvorum.wire.primitives import Reader, string_bytes

GROUP_EPOCH = 17
MEMBER_METADATA = 19
TARGET_EPOCH = 20
MEMBER_TARGET = 21
CURRENT_ASSIGNMENT = 22
TOPOLOGY = 23
TOPOLOGY_DESCRIPTION = 1_000
"""Kvorum's own: Apache Kafka gives descriptions to a plug-in, and has no record of them."""

_OBSOLETE_PARTITION_METADATA = 18
_WITHOUT_MEMBER = (
    GROUP_EPOCH,
    _OBSOLETE_PARTITION_METADATA,
    TARGET_EPOCH,
    TOPOLOGY,
    TOPOLOGY_DESCRIPTION,
)
_WITH_MEMBER = (MEMBER_METADATA, MEMBER_TARGET, CURRENT_ASSIGNMENT)
_VALIDATED_EPOCH_TAG, _CONFIGS_TAG, _STORED_EPOCH_TAG, _FAILED_EPOCH_TAG = range(4)
_TIMESTAMP_TAG = 0

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_EPOCH_AND_HASH = struct.Struct(">iq")
_EPOCHS_AND_STATE = struct.Struct(">iib")
_UINT16 = struct.Struct(">H")
_VERSION = b"\x00\x00"
_NULL, _PRESENT = b"\xff", b"\x01"


class StreamsKey(NamedTuple):
    """The key of a record. member_id: "" if the type has none."""

    record_type: int
    group_id: str
    member_id: str = ""


_KEYS = KeyFormat(StreamsKey, without_item=_WITHOUT_MEMBER, with_item=_WITH_MEMBER)
encode_key, decode_key = _KEYS.encode, _KEYS.decode


class StreamsEpoch(NamedTuple):
    """The group epoch, and what it was decided by.

    metadata_hash: hash of the required topics, 0 if never computed.
    validated_topology_epoch: the topology's, if its topics are all there; else -1.
    assignment_configs: of the last assignment; sorted by name. None: an older version's record.
    stored_description_epoch, failed_description_epoch: topology epochs of the description that a
        plug-in of Kafka's brokers keeps (KIP-1331), -1 if none.
    """

    epoch: int
    metadata_hash: int = 0
    validated_topology_epoch: int = NO_TOPOLOGY_EPOCH
    assignment_configs: tuple[tuple[str, str], ...] | None = None
    stored_description_epoch: int = NO_TOPOLOGY_EPOCH
    failed_description_epoch: int = NO_TOPOLOGY_EPOCH


class TargetEpoch(NamedTuple):
    """timestamp_ms: when the target was made, 0 if unknown or without members."""

    epoch: int
    timestamp_ms: int = 0


class CurrentAssignment(NamedTuple):
    """See the fields of `StreamsMember`."""

    member_epoch: int
    previous_member_epoch: int
    state: StreamsMemberState
    assigned: AssignedTasks
    pending_revocation: AssignedTasks


Value = (
    StreamsEpoch
    | StreamsMember
    | TargetEpoch
    | Tasks
    | CurrentAssignment
    | Topology
    | TopologyDescription
    | None
)
"""A decoded value, in the order of the types above; None: the obsolete type 18."""


# --- values --------------------------------------------------------------------------------------


def encode_epoch(value: StreamsEpoch) -> bytes:
    fields = []
    if value.validated_topology_epoch != NO_TOPOLOGY_EPOCH:
        fields.append((_VALIDATED_EPOCH_TAG, _INT32.pack(value.validated_topology_epoch)))
    if value.assignment_configs is not None:
        fields.append((_CONFIGS_TAG, encode_pairs(value.assignment_configs)))
    for tag, epoch in (
        (_STORED_EPOCH_TAG, value.stored_description_epoch),
        (_FAILED_EPOCH_TAG, value.failed_description_epoch),
    ):
        if epoch != NO_TOPOLOGY_EPOCH:
            fields.append((tag, _INT32.pack(epoch)))
    return _VERSION + _EPOCH_AND_HASH.pack(value.epoch, value.metadata_hash) + tagged(fields)


def encode_member(member: StreamsMember) -> bytes:
    """Encode the member's metadata; its assignment has a record of its own."""
    endpoint = _NULL
    if member.user_endpoint is not None:
        host, port = member.user_endpoint
        endpoint = _PRESENT + string_bytes(host, True) + _UINT16.pack(port) + NO_TAGS
    return b"".join(
        (
            _VERSION,
            string_bytes(member.instance_id, True),
            string_bytes(member.rack_id, True),
            string_bytes(member.client_id, True),
            string_bytes(member.client_host, True),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.topology_epoch),
            string_bytes(member.process_id, True),
            endpoint,
            encode_pairs(member.client_tags),
            NO_TAGS,
        )
    )


def encode_target_epoch(value: TargetEpoch) -> bytes:
    fields = [(_TIMESTAMP_TAG, _INT64.pack(value.timestamp_ms))] if value.timestamp_ms else []
    return _VERSION + _INT32.pack(value.epoch) + tagged(fields)


def encode_target(tasks: Tasks) -> bytes:
    return _VERSION + b"".join(encode_tasks(role) for role in tasks) + NO_TAGS


def encode_current_assignment(member: StreamsMember) -> bytes:
    head = _EPOCHS_AND_STATE.pack(member.member_epoch, member.previous_member_epoch, member.state)
    held = b"".join(
        encode_tasks(tasks.active, tasks.active)
        + encode_tasks(tasks.standby)
        + encode_tasks(tasks.warmup)
        for tasks in (member.assigned, member.pending_revocation)
    )
    return _VERSION + head + held + NO_TAGS


def encode_topology_value(topology: Topology) -> bytes:
    return _VERSION + encode_topology(topology)


def decode_value(key: StreamsKey, data: bytes) -> Value:
    """Decode the value of a record with this key. Raises CorruptData."""
    return decode_version_0(key, data, _decoded)


def _decoded(key: StreamsKey, reader: Reader, data: bytes) -> Value:
    match key.record_type:
        case 17:
            return _read_epoch(reader, data)
        case 19:
            return _read_member(reader, key.member_id)
        case 20:
            return _read_target_epoch(reader, data)
        case 21:
            active, standby, warmup = (frozenset(read_tasks(reader, 0)) for _ in range(3))
            return Tasks(active, standby, warmup)
        case 22:
            return _read_current(reader, data)
        case 23:
            return read_topology(reader)
        case 1_000:
            return decode_description(data)
        case _:
            return None


def _read_epoch(reader: Reader, data: bytes) -> StreamsEpoch:
    value = StreamsEpoch(reader.int32(), reader.int64())
    for tag, position, length in reader.tags():
        part = Reader(data, position, position + length)
        match tag:
            case 0:
                value = value._replace(validated_topology_epoch=part.int32())
            case 1:
                value = value._replace(assignment_configs=read_pairs(part))
            case 2:
                value = value._replace(stored_description_epoch=part.int32())
            case 3:
                value = value._replace(failed_description_epoch=part.int32())
    return value


def _read_member(reader: Reader, member_id: str) -> StreamsMember:
    return StreamsMember(
        member_id=member_id,
        instance_id=reader.nullable_string(True),
        rack_id=reader.nullable_string(True),
        client_id=reader.string(True),
        client_host=reader.string(True),
        rebalance_timeout_ms=reader.int32(),
        topology_epoch=reader.int32(),
        process_id=reader.string(True),
        user_endpoint=_read_endpoint(reader),
        client_tags=read_pairs(reader),
    )


def _read_endpoint(reader: Reader) -> Endpoint | None:
    if reader.buffer[reader.skip(1)] != _PRESENT[0]:
        return None
    host, port = reader.string(True), reader.int16() & 0xFFFF
    reader.skip_tags()
    return Endpoint(host, port)


def _read_target_epoch(reader: Reader, data: bytes) -> TargetEpoch:
    value = TargetEpoch(reader.int32())
    for tag, position, length in reader.tags():
        if tag == _TIMESTAMP_TAG and length == _INT64.size:
            value = value._replace(timestamp_ms=_INT64.unpack_from(data, position)[0])
    return value


def _read_current(reader: Reader, data: bytes) -> CurrentAssignment:
    position = reader.skip(_EPOCHS_AND_STATE.size)
    epoch, previous_epoch, number = _EPOCHS_AND_STATE.unpack_from(data, position)
    known = {state.value for state in StreamsMemberState}
    state = StreamsMemberState(number if number in known else StreamsMemberState.UNKNOWN)
    assigned, pending = (
        AssignedTasks(
            # A record of an older version has no epochs of single tasks.
            active=read_tasks(reader, epoch),
            standby=frozenset(read_tasks(reader, epoch)),
            warmup=frozenset(read_tasks(reader, epoch)),
        )
        for _ in range(2)
    )
    return CurrentAssignment(epoch, previous_epoch, state, assigned, pending)
