"""The follower's side of Fetch v17: packs requests and parses responses in place.

Brokers use only this version among themselves. It has topic ids, leader epochs, replica state and
sessions, and every broker of a cluster serves it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvorum.runtime.errors import WireError
from kvorum.wire.fetch_codec import FetchPartition
from kvorum.wire.primitives import Reader, uvarint_bytes

FETCH_KEY = 1
VERSION = 17

_REQUEST_HEAD = struct.Struct(">hhih")
_BODY_HEAD = struct.Struct(">iiibii")
_PARTITION = struct.Struct(">iiqiqiB")
_REPLICA_STATE = struct.Struct(">BBBiqB")
_ANSWER = struct.Struct(">ihqqq")
_TOP = struct.Struct(">ihi")
_DIVERGING = struct.Struct(">iq")


class ReplicaAnswer(NamedTuple):
    """The response for one partition; its batches are buffer[position:position + length]."""

    topic_id: bytes
    partition_id: int
    error: int
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None
    position: int
    length: int


class ReplicaFetchAnswer(NamedTuple):
    correlation_id: int
    error: int
    session_id: int
    partitions: list[ReplicaAnswer]


def pack_replica_fetch(
    *,
    correlation_id: int,
    client_id: bytes,
    replica_id: int,
    replica_epoch: int,
    max_wait_ms: int,
    min_bytes: int,
    bytes_max: int,
    session_id: int,
    session_epoch: int,
    topics: Iterable[tuple[bytes, Sequence[FetchPartition]]],
    forgotten: Iterable[tuple[bytes, Sequence[int]]] = (),
) -> bytes:
    """A whole frame: size, request header v2, Fetch v17 body."""
    out = bytearray(4)
    out += _REQUEST_HEAD.pack(FETCH_KEY, VERSION, correlation_id, len(client_id)) + client_id
    out += b"\x00"
    out += _BODY_HEAD.pack(max_wait_ms, min_bytes, bytes_max, 0, session_id, session_epoch)
    rows = list(topics)
    out += uvarint_bytes(len(rows) + 1)
    for topic_id, partitions in rows:
        out += topic_id + uvarint_bytes(len(partitions) + 1)
        for partition in partitions:
            out += _PARTITION.pack(*partition, 0)
        out += b"\x00"
    dropped = list(forgotten)
    out += uvarint_bytes(len(dropped) + 1)
    for topic_id, ids in dropped:
        out += topic_id + uvarint_bytes(len(ids) + 1)
        out += struct.pack(f">{len(ids)}iB", *ids, 0)
    out += b"\x01"  # rack: empty
    # One tagged field: 1 (replica state), 13 bytes.
    out += _REPLICA_STATE.pack(1, 1, 13, replica_id, replica_epoch, 0)
    struct.pack_into(">i", out, 0, len(out) - 4)
    return bytes(out)


def parse_replica_answer(
    buffer: bytes | bytearray | memoryview, position: int, end: int
) -> ReplicaFetchAnswer:
    """Parse the response frame (without its size) in buffer[position:end].

    Raises WireError if it is malformed.
    """
    reader = Reader(buffer, position, end)
    try:
        correlation_id = reader.int32()
        reader.skip_tags()
        _, error, session_id = _TOP.unpack_from(buffer, reader.skip(_TOP.size))
        partitions: list[ReplicaAnswer] = []
        for _ in range(reader.array_count(True)):
            topic_id = reader.uuid()
            for _ in range(reader.array_count(True)):
                partitions.append(_parse_partition(reader, topic_id))
            reader.skip_tags()
        reader.skip_tags()
    except (struct.error, IndexError) as failure:
        raise WireError(f"malformed fetch v{VERSION} answer: {failure}") from failure
    return ReplicaFetchAnswer(correlation_id, error, session_id, partitions)


def _parse_partition(reader: Reader, topic_id: bytes) -> ReplicaAnswer:
    buffer = reader.buffer
    index, error, high_watermark, _, log_start = _ANSWER.unpack_from(
        buffer, reader.skip(_ANSWER.size)
    )
    for _ in range(reader.array_count(True)):  # aborted transactions
        reader.skip(16)
        reader.skip_tags()
    reader.skip(4)  # preferred read replica
    length = max(reader.uvarint() - 1, 0)
    position = reader.skip(length)
    diverging = None
    for tag, tag_position, _ in reader.tags():
        if tag == 0:
            diverging = _DIVERGING.unpack_from(buffer, tag_position)
    return ReplicaAnswer(
        topic_id, index, error, high_watermark, log_start, diverging, position, length
    )
