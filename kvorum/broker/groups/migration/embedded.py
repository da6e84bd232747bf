"""The embedded consumer protocol: the bytes of classic consumers in JoinGroup and SyncGroup. Pure.

In a group with members of both protocols, the coordinator reads subscriptions itself, and writes
the assignments that the leader of a classic group writes.

  subscription   int16 version, [topic], user data, v1+ [topic, [partition]] owned,
                 v2+ int32 generation, v3+ rack
  assignment     int16 version, [topic, [partition]], user data

Later versions only append fields, so they are read as the last known one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from kvorum.broker.groups.consumer.member import Partitions
from kvorum.broker.groups.consumer.records import by_topic
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.errors import WireError
from kvorum.wire.primitives import Reader, string_bytes

VERSION_MAX = 3

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_NO_USER_DATA = _INT32.pack(-1)

NamedPartitions = tuple[tuple[str, int], ...]
"""(topic name, partition)."""


class Subscription(NamedTuple):
    """owned: partitions that the member has not given up when it joins; empty for eager rebalances,
        which give up all first.
    rack_id: None if not given.
    """

    version: int
    topics: tuple[str, ...]
    owned: NamedPartitions = ()
    rack_id: str | None = None


class EmbeddedAssignment(NamedTuple):
    """user_data: for the client's own assignor."""

    partitions: NamedPartitions
    user_data: bytes


def read_subscription(metadata: bytes) -> Subscription | None:
    """Decode a subscription; None if it does not parse."""
    reader = Reader(metadata, 0, len(metadata))
    try:
        version = reader.int16()
        if version < 0:
            return None
        topics = tuple(reader.string(False) for _ in range(reader.array_count(False)))
        _read_user_data(reader)
        owned = _read_partitions(reader) if version >= 1 else ()
        if version >= 2:
            reader.int32()
        rack_id = reader.nullable_string(False) if version >= 3 else None
    except WireError:
        return None
    return Subscription(version, topics, owned, rack_id or None)


def read_assignment(data: bytes) -> EmbeddedAssignment | None:
    """Decode an assignment; None if it does not parse. No bytes mean no partitions."""
    if not data:
        return EmbeddedAssignment((), b"")
    reader = Reader(data, 0, len(data))
    try:
        if reader.int16() < 0:
            return None
        return EmbeddedAssignment(_read_partitions(reader), _read_user_data(reader))
    except WireError:
        return None


def encode_assignment(partitions: Partitions, image: ClusterImage, version: int) -> bytes:
    """Encode an assignment for the member. Deleted topics are left out, since they have no name."""
    topics = [
        (topic.name, numbers)
        for topic_id, numbers in by_topic(partitions)
        if (topic := image.topics.get(topic_id)) is not None
    ]
    out = bytearray(_INT16.pack(min(version, VERSION_MAX)) + _INT32.pack(len(topics)))
    for name, numbers in topics:
        out += string_bytes(name, False) + _INT32.pack(len(numbers))
        out += struct.pack(f">{len(numbers)}i", *numbers)
    return bytes(out + _NO_USER_DATA)


def resolved(named: Iterable[tuple[str, int]], image: ClusterImage) -> Partitions:
    """Partitions by topic id; those that do not exist are left out."""
    return frozenset(
        (topic.topic_id, partition)
        for name, partition in named
        if (topic := image.topic(name)) is not None and partition in topic.partitions
    )


def _read_partitions(reader: Reader) -> NamedPartitions:
    rows: list[tuple[str, int]] = []
    for _ in range(reader.array_count(False)):
        name = reader.string(False)
        rows += [(name, reader.int32()) for _ in range(reader.array_count(False))]
    return tuple(rows)


def _read_user_data(reader: Reader) -> bytes:
    length = max(reader.byte_length(False), 0)
    position = reader.skip(length)
    return bytes(reader.buffer[position : position + length])
