"""Keys and values of `__share_group_state`, in Kafka's formats (ShareSnapshotKey and others). Pure.

  0  a snapshot: the whole state of one share-partition    1  an update: what has changed since

Keys have the group id, the topic id and the partition, and are not flexible. Values have version 0
and are flexible. Tag 0 is the delivery complete count. A tombstone of a snapshot's key ends the
share-partition's state.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kvorum.broker.share_state.batches import StateBatch
from kvorum.runtime.errors import CorruptData, WireError
from kvorum.runtime.ids import uuid_text
from kvorum.wire.primitives import Reader, count_bytes, string_bytes, uvarint_bytes

TOPIC = "__share_group_state"

_SNAPSHOT, _UPDATE = 0, 1
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_SNAPSHOT_HEAD = struct.Struct(">hiiiq")
_UPDATE_HEAD = struct.Struct(">hiiq")
_TIMES = struct.Struct(">qq")
_BATCH = struct.Struct(">qqbh")
_NO_TAGS = b"\x00"
_COUNT_TAG = 0
UNKNOWN_COUNT = -1


class ShareKey(NamedTuple):
    """A share-partition. topic_id: 16 bytes."""

    group_id: str
    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        """Kafka's form, `group:topicId:partition`."""
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareState:
    """The state of a share-partition that the share coordinator keeps.

    snapshot_epoch: rises with each snapshot.
    state_epoch: of the share-partition's initialisation.
    leader_epoch: the highest one that a leader of the partition has named.
    start_offset: -1 while no leader has chosen one.
    delivery_complete_count: records from there on that need no delivery; -1 if unknown.
    """

    snapshot_epoch: int = 0
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = UNKNOWN_COUNT
    create_timestamp_ms: int
    write_timestamp_ms: int
    batches: tuple[StateBatch, ...] = ()


class ShareUpdate(NamedTuple):
    """start_offset: -1 if it has not changed."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


def snapshot_key(key: ShareKey) -> bytes:
    return _key(_SNAPSHOT, key)


def update_key(key: ShareKey) -> bytes:
    return _key(_UPDATE, key)


def _key(record_type: int, key: ShareKey) -> bytes:
    return (
        _INT16.pack(record_type)
        + string_bytes(key.group_id, False)
        + key.topic_id
        + _INT32.pack(key.partition)
    )


def decode_key(data: bytes) -> tuple[bool, ShareKey] | None:
    """(True for a snapshot and False for an update, the share-partition); None for a type that is
    not known. Raises CorruptData."""
    reader = Reader(data, 0, len(data))
    try:
        record_type = reader.int16()
        if record_type not in (_SNAPSHOT, _UPDATE):
            return None
        key = ShareKey(reader.string(False), reader.uuid(), reader.int32())
    except WireError as error:
        reason = f"the key {data!r} is cut off: {error}"
        raise CorruptData(TOPIC, reader.position, reason) from error
    return record_type == _SNAPSHOT, key


def encode_snapshot(state: ShareState) -> bytes:
    head = _SNAPSHOT_HEAD.pack(
        0, state.snapshot_epoch, state.state_epoch, state.leader_epoch, state.start_offset
    )
    times = _TIMES.pack(state.create_timestamp_ms, state.write_timestamp_ms)
    return head + times + _batches(state.batches) + _count(state.delivery_complete_count)


def encode_update(update: ShareUpdate) -> bytes:
    head = _UPDATE_HEAD.pack(0, update.snapshot_epoch, update.leader_epoch, update.start_offset)
    return head + _batches(update.batches) + _count(update.delivery_complete_count)


def _batches(batches: Iterable[StateBatch]) -> bytes:
    packed = [_BATCH.pack(*batch) + _NO_TAGS for batch in batches]
    return count_bytes(len(packed), True) + b"".join(packed)


def _count(delivery_complete_count: int) -> bytes:
    if delivery_complete_count == UNKNOWN_COUNT:
        return _NO_TAGS
    value = _INT32.pack(delivery_complete_count)
    return b"\x01" + uvarint_bytes(_COUNT_TAG) + uvarint_bytes(len(value)) + value


def decode_snapshot(data: bytes) -> ShareState:
    """Raises CorruptData."""
    reader = Reader(data, 0, len(data))
    try:
        _check_version(reader.int16())
        epochs = reader.int32(), reader.int32(), reader.int32()
        start_offset, created_ms, written_ms = reader.int64(), reader.int64(), reader.int64()
        batches = _read_batches(reader, data)
        count = _read_count(reader, data)
    except WireError as error:
        raise CorruptData(TOPIC, reader.position, f"a snapshot is cut off: {error}") from error
    return ShareState(
        snapshot_epoch=epochs[0],
        state_epoch=epochs[1],
        leader_epoch=epochs[2],
        start_offset=start_offset,
        delivery_complete_count=count,
        create_timestamp_ms=created_ms,
        write_timestamp_ms=written_ms,
        batches=batches,
    )


def decode_update(data: bytes) -> ShareUpdate:
    """Raises CorruptData."""
    reader = Reader(data, 0, len(data))
    try:
        _check_version(reader.int16())
        snapshot_epoch, leader_epoch = reader.int32(), reader.int32()
        start_offset = reader.int64()
        batches = _read_batches(reader, data)
        count = _read_count(reader, data)
    except WireError as error:
        raise CorruptData(TOPIC, reader.position, f"an update is cut off: {error}") from error
    return ShareUpdate(snapshot_epoch, leader_epoch, start_offset, count, batches)


def _check_version(version: int) -> None:
    if version != 0:
        raise CorruptData(TOPIC, 0, f"a record of version {version} is not known")


def _read_batches(reader: Reader, data: bytes) -> tuple[StateBatch, ...]:
    batches = []
    for _ in range(reader.array_count(True)):
        position = reader.skip(_BATCH.size)
        batches.append(StateBatch(*_BATCH.unpack_from(data, position)))
        reader.skip_tags()
    return tuple(batches)


def _read_count(reader: Reader, data: bytes) -> int:
    count = UNKNOWN_COUNT
    for tag, position, length in reader.tags():
        if tag == _COUNT_TAG and length == _INT32.size:
            (count,) = _INT32.unpack_from(data, position)
    return count
