"""Records of groups of the consumer protocol, in Kafka's formats (KIP-848). Pure.

Types of keys in `__consumer_offsets`, each with the group id, and a member id or expression:

  3  the group epoch          6  the assignment epoch    8  a member's assignment
  5  a member's metadata      7  a member's target      16  the topics of an expression

Values have version 0 and are flexible. A tombstone removes what its key names. Type 4 (topics of a
group, before Kafka 4.1) is ignored. Tag 0 of the member metadata is for members that use the
classic protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from kvorum.broker.groups.consumer.member import ClassicMember, ConsumerMember, Partitions
from kvorum.broker.groups.consumer.states import MemberState
from kvorum.broker.groups.steps.record_frame import KeyFormat, decode_version_0
from kvorum.broker.groups.steps.requests import ProtocolMetadata
from kvorum.wire.primitives import Reader, count_bytes, string_bytes, uvarint_bytes

GROUP_EPOCH = 3
MEMBER_METADATA = 5
TARGET_EPOCH = 6
MEMBER_TARGET = 7
CURRENT_ASSIGNMENT = 8
REGULAR_EXPRESSION = 16

_OBSOLETE_PARTITION_METADATA = 4
_WITHOUT_ITEM = (GROUP_EPOCH, _OBSOLETE_PARTITION_METADATA, TARGET_EPOCH)
_WITH_ITEM = (MEMBER_METADATA, MEMBER_TARGET, CURRENT_ASSIGNMENT, REGULAR_EXPRESSION)
_METADATA_HASH_TAG = 0
_CLASSIC_METADATA_TAG = 0

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_TWO_INT64 = struct.Struct(">qq")
_EPOCHS_AND_STATE = struct.Struct(">iib")
_VERSION = b"\x00\x00"
_NO_TAGS = b"\x00"
_NO_CLASSIC_METADATA = b"\x01\x00\x01\x00"
"""Kafka writes tag 0 of member metadata even if it is null."""
_CLASSIC_METADATA_FOLLOWS = b"\x01"


class ConsumerKey(NamedTuple):
    """The key of a record. item: the member id or the regular expression; "" if the type has
    neither."""

    record_type: int
    group_id: str
    item: str = ""


_KEYS = KeyFormat(ConsumerKey, without_item=_WITHOUT_ITEM, with_item=_WITH_ITEM)
encode_key, decode_key = _KEYS.encode, _KEYS.decode


class GroupEpoch(NamedTuple):
    """metadata_hash: hash of the subscribed topics, 0 if never computed."""

    epoch: int
    metadata_hash: int


class ResolvedExpression(NamedTuple):
    """topics: sorted.
    version: of the metadata in which they were looked up.
    timestamp_ms: of that look-up.
    """

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


class CurrentAssignment(NamedTuple):
    """See the fields of `ConsumerMember`."""

    member_epoch: int
    previous_member_epoch: int
    state: MemberState
    assigned: Partitions
    pending_revocation: Partitions


# --- values --------------------------------------------------------------------------------------


def encode_group_epoch(value: GroupEpoch) -> bytes:
    tags = _NO_TAGS
    if value.metadata_hash:
        head = b"\x01" + uvarint_bytes(_METADATA_HASH_TAG) + uvarint_bytes(_INT64.size)
        tags = head + _INT64.pack(value.metadata_hash)
    return _VERSION + _INT32.pack(value.epoch) + tags


def encode_member_metadata(member: ConsumerMember) -> bytes:
    """Encode the member's metadata; its assignment has a record of its own."""
    return b"".join(
        (
            _VERSION,
            string_bytes(member.instance_id, True),
            string_bytes(member.rack_id, True),
            string_bytes(member.client_id, True),
            string_bytes(member.client_host, True),
            encode_strings(member.subscribed_topic_names),
            string_bytes(member.subscribed_topic_regex, True),
            _INT32.pack(member.rebalance_timeout_ms),
            string_bytes(member.server_assignor, True),
            _classic_metadata(member.classic),
        )
    )


def encode_target_epoch(assignment_epoch: int) -> bytes:
    return _VERSION + _INT32.pack(assignment_epoch) + _NO_TAGS


def encode_member_target(partitions: Partitions) -> bytes:
    return _VERSION + encode_partitions(partitions) + _NO_TAGS


def encode_current_assignment(member: ConsumerMember) -> bytes:
    head = _EPOCHS_AND_STATE.pack(member.member_epoch, member.previous_member_epoch, member.state)
    held = encode_partitions(member.assigned) + encode_partitions(member.pending_revocation)
    return _VERSION + head + held + _NO_TAGS


def encode_expression(value: ResolvedExpression) -> bytes:
    times = _TWO_INT64.pack(value.version, value.timestamp_ms)
    return _VERSION + encode_strings(value.topics) + times + _NO_TAGS


Value = (
    GroupEpoch | ConsumerMember | int | Partitions | CurrentAssignment | ResolvedExpression | None
)
"""A decoded value, in the order of the types above. int: an assignment epoch; None: the obsolete
type 4."""


def decode_value(key: ConsumerKey, data: bytes) -> Value:
    """Decode the value of a record with this key. Raises CorruptData."""
    return decode_version_0(key, data, _decoded)


def _decoded(key: ConsumerKey, reader: Reader, data: bytes) -> Value:
    match key.record_type:
        case 3:
            return _read_group_epoch(reader, data)
        case 5:
            return _read_member(reader, key.item)
        case 6:
            return reader.int32()
        case 7:
            return read_partitions(reader)
        case 8:
            return _read_current(reader, data)
        case 16:
            topics = read_strings(reader)
            return ResolvedExpression(topics, reader.int64(), reader.int64())
    return None


def _read_group_epoch(reader: Reader, data: bytes) -> GroupEpoch:
    epoch, metadata_hash = reader.int32(), 0
    for tag, position, length in reader.tags():
        if tag == _METADATA_HASH_TAG and length == _INT64.size:
            (metadata_hash,) = _INT64.unpack_from(data, position)
    return GroupEpoch(epoch, metadata_hash)


def _read_member(reader: Reader, member_id: str) -> ConsumerMember:
    member = ConsumerMember(
        member_id=member_id,
        instance_id=reader.nullable_string(True),
        rack_id=reader.nullable_string(True),
        client_id=reader.string(True),
        client_host=reader.string(True),
        subscribed_topic_names=read_strings(reader),
        subscribed_topic_regex=reader.nullable_string(True) or None,
        rebalance_timeout_ms=reader.int32(),
        server_assignor=reader.nullable_string(True),
    )
    for tag, position, length in reader.tags():
        if tag == _CLASSIC_METADATA_TAG:
            found = _read_classic_metadata(Reader(reader.buffer, position, position + length))
            member = replace(member, classic=found)
    return member


def _classic_metadata(classic: ClassicMember | None) -> bytes:
    if classic is None:
        return _NO_CLASSIC_METADATA
    out = bytearray(_CLASSIC_METADATA_FOLLOWS + _INT32.pack(classic.session_timeout_ms))
    out += count_bytes(len(classic.protocols), True)
    for name, metadata in classic.protocols:
        out += string_bytes(name, True) + count_bytes(len(metadata), True) + metadata + _NO_TAGS
    out += _NO_TAGS
    head = b"\x01" + uvarint_bytes(_CLASSIC_METADATA_TAG) + uvarint_bytes(len(out))
    return head + bytes(out)


def _read_classic_metadata(reader: Reader) -> ClassicMember | None:
    if reader.uvarint() == 0:
        return None
    session_timeout_ms = reader.int32()
    protocols = []
    for _ in range(reader.array_count(True)):
        name = reader.string(True)
        length = max(reader.byte_length(True), 0)
        position = reader.skip(length)
        protocols.append(ProtocolMetadata(name, bytes(reader.buffer[position : position + length])))
        reader.skip_tags()
    # The rest of the field, tags of later versions, is ignored.
    return ClassicMember(session_timeout_ms=session_timeout_ms, protocols=tuple(protocols))


def _read_current(reader: Reader, data: bytes) -> CurrentAssignment:
    position = reader.skip(_EPOCHS_AND_STATE.size)
    epoch, previous_epoch, state = _EPOCHS_AND_STATE.unpack_from(data, position)
    known = state if state in (0, 1, 2) else MemberState.UNKNOWN
    assigned, pending = read_partitions(reader), read_partitions(reader)
    return CurrentAssignment(epoch, previous_epoch, MemberState(known), assigned, pending)


# --- parts ---------------------------------------------------------------------------------------


def encode_strings(texts: Iterable[str]) -> bytes:
    encoded = [string_bytes(text, True) for text in texts]
    return count_bytes(len(encoded), True) + b"".join(encoded)


def read_strings(reader: Reader) -> tuple[str, ...]:
    return tuple(reader.string(True) for _ in range(reader.array_count(True)))


def by_topic(partitions: Iterable[tuple[bytes, int]]) -> list[tuple[bytes, list[int]]]:
    """The partitions by topic, sorted, as records and answers list them."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        topics.setdefault(topic_id, []).append(partition)
    return list(topics.items())


def encode_partitions(partitions: Partitions) -> bytes:
    topics = by_topic(partitions)
    out = bytearray(count_bytes(len(topics), True))
    for topic_id, numbers in topics:
        out += topic_id + count_bytes(len(numbers), True)
        out += struct.pack(f">{len(numbers)}i", *numbers) + _NO_TAGS
    return bytes(out)


def read_partitions(reader: Reader) -> Partitions:
    found = []
    for _ in range(reader.array_count(True)):
        topic_id = reader.uuid()
        found += [(topic_id, reader.int32()) for _ in range(reader.array_count(True))]
        reader.skip_tags()
    return frozenset(found)
