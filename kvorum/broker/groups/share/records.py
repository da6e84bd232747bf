"""Records of share groups, in Kafka's formats (KIP-932). Pure.

Types of keys in `__consumer_offsets`, each with the group id, and a member id where it says so:

  10  a member's metadata (member)    13  a member's target (member)
  11  the group epoch                 14  a member's assignment (member)
  12  the assignment epoch            15  the share-partitions that have a state

Values have version 0 and are flexible. A tombstone removes what its key names.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kvorum.broker.groups.consumer.member import NO_PARTITIONS, Partitions
from kvorum.broker.groups.consumer.records import (
    by_topic,
    encode_partitions,
    encode_strings,
    read_partitions,
    read_strings,
)
from kvorum.broker.groups.steps.record_frame import KeyFormat, decode_version_0
from kvorum.wire.primitives import Reader, count_bytes, string_bytes

MEMBER_METADATA = 10
GROUP_EPOCH = 11
TARGET_EPOCH = 12
MEMBER_TARGET = 13
CURRENT_ASSIGNMENT = 14
PARTITION_METADATA = 15

_WITHOUT_MEMBER = (GROUP_EPOCH, TARGET_EPOCH, PARTITION_METADATA)
_WITH_MEMBER = (MEMBER_METADATA, MEMBER_TARGET, CURRENT_ASSIGNMENT)

_INT32 = struct.Struct(">i")
_EPOCH_AND_HASH = struct.Struct(">iq")
_EPOCHS_AND_STATE = struct.Struct(">iib")
_VERSION = b"\x00\x00"
_NO_TAGS = b"\x00"
_STABLE = 0


class ShareGroupKey(NamedTuple):
    """The key of a record. member_id: "" if the type has none."""

    record_type: int
    group_id: str
    member_id: str = ""


_KEYS = KeyFormat(ShareGroupKey, without_item=_WITHOUT_MEMBER, with_item=_WITH_MEMBER)
encode_key, decode_key = _KEYS.encode, _KEYS.decode


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember:
    """One member of a share group.

    subscribed_topic_names: sorted.
    member_epoch: of its assignment, 0 before the first.
    previous_member_epoch: a member that lost the answer with its current epoch may still send this
        one.
    assigned: the partitions that it may fetch now.
    """

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    member_epoch: int = 0
    previous_member_epoch: int = 0
    assigned: Partitions = NO_PARTITIONS


class ShareEpoch(NamedTuple):
    """metadata_hash: of the subscribed topics, 0 if never computed."""

    epoch: int
    metadata_hash: int


class AssignmentEpoch(NamedTuple):
    epoch: int


class MemberAssignment(NamedTuple):
    """See the fields of `ShareMember`."""

    member_epoch: int
    previous_member_epoch: int
    assigned: Partitions


@dataclass(slots=True)
class ShareStates:
    """The share-partitions of a group that have, or are to have, a state in the share coordinator.

    initializing: asked for, and not confirmed. deleting: ids of topics whose states are being
    deleted. names: of all topics here, by id.
    """

    initializing: set[tuple[bytes, int]] = field(default_factory=set)
    initialized: set[tuple[bytes, int]] = field(default_factory=set)
    deleting: set[bytes] = field(default_factory=set)
    names: dict[bytes, str] = field(default_factory=dict)

    @property
    def all_rows(self) -> set[tuple[bytes, int]]:
        """Those that may have a state."""
        return self.initializing | self.initialized

    def doubt_deletions(self) -> None:
        """Count what was being deleted as not confirmed."""
        doubtful = {row for row in self.initialized if row[0] in self.deleting}
        self.initialized -= doubtful
        self.initializing |= doubtful
        self.deleting.clear()

    def forget(self, rows: Collection[tuple[bytes, int]]) -> None:
        self.initializing.difference_update(rows)
        self.initialized.difference_update(rows)

    def forget_topic(self, topic_id: bytes) -> None:
        self.forget([row for row in self.all_rows if row[0] == topic_id])
        self.deleting.discard(topic_id)
        self.names.pop(topic_id, None)

    @property
    def is_empty(self) -> bool:
        return not (self.initializing or self.initialized or self.deleting)


Value = ShareMember | ShareEpoch | AssignmentEpoch | Partitions | MemberAssignment | ShareStates


# --- values --------------------------------------------------------------------------------------


def encode_member(member: ShareMember) -> bytes:
    return (
        _VERSION
        + string_bytes(member.rack_id, True)
        + string_bytes(member.client_id, True)
        + string_bytes(member.client_host, True)
        + encode_strings(member.subscribed_topic_names)
        + _NO_TAGS
    )


def encode_epoch(value: ShareEpoch) -> bytes:
    return _VERSION + _EPOCH_AND_HASH.pack(*value) + _NO_TAGS


def encode_assignment_epoch(epoch: int) -> bytes:
    return _VERSION + _INT32.pack(epoch) + _NO_TAGS


def encode_target(target: Partitions) -> bytes:
    return _VERSION + encode_partitions(target) + _NO_TAGS


def encode_assignment(member: ShareMember) -> bytes:
    head = _EPOCHS_AND_STATE.pack(member.member_epoch, member.previous_member_epoch, _STABLE)
    return _VERSION + head + encode_partitions(member.assigned) + _NO_TAGS


def encode_states(states: ShareStates) -> bytes:
    names = states.names
    deleting = [
        topic_id + string_bytes(names[topic_id], True) + _NO_TAGS
        for topic_id in sorted(states.deleting)
    ]
    return (
        _VERSION
        + _topics(states.initializing, names)
        + _topics(states.initialized, names)
        + count_bytes(len(deleting), True)
        + b"".join(deleting)
        + _NO_TAGS
    )


def _topics(partitions: Iterable[tuple[bytes, int]], names: Mapping[bytes, str]) -> bytes:
    topics = by_topic(partitions)
    out = bytearray(count_bytes(len(topics), True))
    for topic_id, numbers in topics:
        out += topic_id + string_bytes(names[topic_id], True) + count_bytes(len(numbers), True)
        out += struct.pack(f">{len(numbers)}i", *numbers) + _NO_TAGS
    return bytes(out)


def decode_value(key: ShareGroupKey, data: bytes) -> Value:
    """Decode the value of a record with this key. Raises CorruptData."""
    return decode_version_0(key, data, _decoded)


def _decoded(key: ShareGroupKey, reader: Reader, data: bytes) -> Value:
    match key.record_type:
        case 10:
            return ShareMember(
                member_id=key.member_id,
                rack_id=reader.nullable_string(True),
                client_id=reader.string(True),
                client_host=reader.string(True),
                subscribed_topic_names=read_strings(reader),
            )
        case 11:
            return ShareEpoch(reader.int32(), reader.int64())
        case 12:
            return AssignmentEpoch(reader.int32())
        case 13:
            return read_partitions(reader)
        case 14:
            position = reader.skip(_EPOCHS_AND_STATE.size)
            epoch, previous_epoch, _ = _EPOCHS_AND_STATE.unpack_from(data, position)
            return MemberAssignment(epoch, previous_epoch, read_partitions(reader))
        case _:
            return _read_states(reader)


def _read_states(reader: Reader) -> ShareStates:
    states = ShareStates()
    for partitions in (states.initializing, states.initialized):
        for _ in range(reader.array_count(True)):
            topic_id, name = reader.uuid(), reader.string(True)
            states.names[topic_id] = name
            partitions.update((topic_id, reader.int32()) for _ in range(reader.array_count(True)))
            reader.skip_tags()
    for _ in range(reader.array_count(True)):
        topic_id, name = reader.uuid(), reader.string(True)
        states.names[topic_id] = name
        states.deleting.add(topic_id)
        reader.skip_tags()
    return states
