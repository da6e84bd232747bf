"""Keys and values of `__consumer_offsets`, in Kafka's formats (OffsetCommitKey and others). Pure.

A key starts with the int16 of its record type and is never flexible:

  0, 1  an offset: group, topic, partition    2  a group: group id

Values start with an int16 version. Kvorum writes the versions that Kafka 4.4 writes: offsets v4 (v1
if the client gave a retention time), group metadata v3. Kvorum reads all older versions, and v4 of
the group metadata. Other record types belong to other types of groups and are returned as
`UnknownKey`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kvorum.runtime.errors import CorruptData, WireError
from kvorum.runtime.ids import UUID_ZERO
from kvorum.wire.primitives import Reader, string_bytes, uvarint_bytes

TOPIC = "__consumer_offsets"

NO_EPOCH = -1
NO_TIMESTAMP = -1

_OFFSET_KEY_TYPES = (0, 1)
_GROUP_KEY_TYPE = 2
_OFFSET_VALUE_VERSION = 4
_OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
_OFFSET_VALUE_FIRST_FLEXIBLE = 4
_GROUP_VALUE_VERSION = 3
_GROUP_VALUE_FIRST_FLEXIBLE = 4
_GROUP_VALUE_VERSION_MAX = 4
_TOPIC_ID_TAG = 0

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_OFFSET_HEAD = struct.Struct(">hqi")
_TIMESTAMP = struct.Struct(">q")
_TWO_TIMESTAMPS = struct.Struct(">qq")
_VERSION_AND_OFFSET = struct.Struct(">hq")


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    group_id: str


class UnknownKey(NamedTuple):
    """The key of a record type that is not in this module: of another type of group."""

    record_type: int


class OffsetValue(NamedTuple):
    """A committed offset.

    leader_epoch: -1 if unknown.
    expire_timestamp_ms: -1, the usual case, means the broker's retention.
    topic_id: 16 bytes, zero if an earlier version or another tool wrote the record, or the record
        has an expiry.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: bytes = UUID_ZERO


class MemberValue(NamedTuple):
    """subscription: the member's metadata for the group's protocol.
    assignment: the leader's.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    """A generation of a group. protocol_type: "" for a group that never had a member.

    protocol, leader: None without members.
    current_state_timestamp_ms: when the group entered its state; -1 in old versions.
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int
    members: tuple[MemberValue, ...]


# --- keys ----------------------------------------------------------------------------------------


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of one committed offset."""
    return b"\x00\x01" + _string(group_id) + _string(topic) + _INT32.pack(partition)


def group_key(group_id: str) -> bytes:
    """The key of one group's metadata."""
    return b"\x00\x02" + _string(group_id)


def decode_key(key: bytes) -> OffsetKey | GroupKey | UnknownKey:
    """Decode a key. Raises CorruptData."""
    reader = Reader(key, 0, len(key))
    try:
        record_type = reader.int16()
        if record_type in _OFFSET_KEY_TYPES:
            return OffsetKey(reader.string(False), reader.string(False), reader.int32())
        if record_type == _GROUP_KEY_TYPE:
            return GroupKey(reader.string(False))
    except WireError as error:
        raise CorruptData(TOPIC, reader.position, f"the key {key!r} is cut off: {error}") from error
    return UnknownKey(record_type)


# --- offsets -------------------------------------------------------------------------------------


def encode_offset(value: OffsetValue) -> bytes:
    """Encode in the newest version that has all fields; an offset with an expiry needs v1, which
    has no leader epoch."""
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        return (
            _VERSION_AND_OFFSET.pack(_OFFSET_VALUE_VERSION_WITH_EXPIRY, value.offset)
            + _string(value.metadata)
            + _TWO_TIMESTAMPS.pack(value.commit_timestamp_ms, value.expire_timestamp_ms)
        )
    tags = b"\x00"
    if value.topic_id != UUID_ZERO:
        tags = b"\x01" + uvarint_bytes(_TOPIC_ID_TAG) + uvarint_bytes(16) + value.topic_id
    return (
        _OFFSET_HEAD.pack(_OFFSET_VALUE_VERSION, value.offset, value.leader_epoch)
        + string_bytes(value.metadata, True)
        + _TIMESTAMP.pack(value.commit_timestamp_ms)
        + tags
    )


def decode_offset(data: bytes) -> OffsetValue:
    """Decode any version of a committed offset. Raises CorruptData."""
    reader = Reader(data, 0, len(data))
    try:
        version = reader.int16()
        if not 0 <= version <= _OFFSET_VALUE_VERSION:
            raise CorruptData(TOPIC, 0, f"a committed offset of version {version} is not known")
        is_flexible = version >= _OFFSET_VALUE_FIRST_FLEXIBLE
        offset = reader.int64()
        leader_epoch = reader.int32() if version >= 3 else NO_EPOCH
        metadata = reader.string(is_flexible)
        commit_timestamp_ms = reader.int64()
        expire_timestamp_ms = reader.int64() if version == 1 else NO_TIMESTAMP
        topic_id = UUID_ZERO
        if is_flexible:
            for tag, position, length in reader.tags():
                if tag == _TOPIC_ID_TAG and length == 16:
                    topic_id = bytes(data[position : position + 16])
    except WireError as error:
        reason = f"a committed offset is cut off: {error}"
        raise CorruptData(TOPIC, reader.position, reason) from error
    return OffsetValue(
        offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id
    )


# --- groups --------------------------------------------------------------------------------------


def encode_group(value: GroupValue) -> bytes:
    """Group metadata as Kafka 4.4 writes it (v3)."""
    out = bytearray(_INT16.pack(_GROUP_VALUE_VERSION))
    out += _string(value.protocol_type)
    out += _INT32.pack(value.generation)
    out += _string(value.protocol)
    out += _string(value.leader)
    out += _TIMESTAMP.pack(value.current_state_timestamp_ms)
    out += _INT32.pack(len(value.members))
    for member in value.members:
        out += _string(member.member_id)
        out += _string(member.group_instance_id)
        out += _string(member.client_id)
        out += _string(member.client_host)
        out += _INT32.pack(member.rebalance_timeout_ms)
        out += _INT32.pack(member.session_timeout_ms)
        out += _INT32.pack(len(member.subscription)) + member.subscription
        out += _INT32.pack(len(member.assignment)) + member.assignment
    return bytes(out)


def decode_group(data: bytes) -> GroupValue:
    """Decode any version of a group's metadata. Raises CorruptData."""
    reader = Reader(data, 0, len(data))
    try:
        version = reader.int16()
        if not 0 <= version <= _GROUP_VALUE_VERSION_MAX:
            raise CorruptData(TOPIC, 0, f"group metadata of version {version} is not known")
        is_flexible = version >= _GROUP_VALUE_FIRST_FLEXIBLE
        protocol_type = reader.string(is_flexible)
        generation = reader.int32()
        protocol = reader.nullable_string(is_flexible)
        leader = reader.nullable_string(is_flexible)
        state_timestamp_ms = reader.int64() if version >= 2 else NO_TIMESTAMP
        count = reader.array_count(is_flexible)
        members = tuple(_read_member(reader, version, is_flexible) for _ in range(count))
    except WireError as error:
        reason = f"group metadata is cut off: {error}"
        raise CorruptData(TOPIC, reader.position, reason) from error
    return GroupValue(protocol_type, generation, protocol, leader, state_timestamp_ms, members)


def _read_member(reader: Reader, version: int, is_flexible: bool) -> MemberValue:
    member_id = reader.string(is_flexible)
    group_instance_id = reader.nullable_string(is_flexible) if version >= 3 else None
    client_id = reader.string(is_flexible)
    client_host = reader.string(is_flexible)
    # Before v1 a member had one time-out for session and rebalance.
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    if version < 1:
        rebalance_timeout_ms = session_timeout_ms
    subscription = _read_bytes(reader, is_flexible)
    assignment = _read_bytes(reader, is_flexible)
    if is_flexible:
        reader.skip_tags()
    return MemberValue(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )


def _read_bytes(reader: Reader, is_flexible: bool) -> bytes:
    length = max(reader.byte_length(is_flexible), 0)
    position = reader.skip(length)
    return bytes(reader.buffer[position : position + length])


def _string(text: str | None) -> bytes:
    """A (nullable) string with an int16 length."""
    if text is None:
        return b"\xff\xff"
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded
