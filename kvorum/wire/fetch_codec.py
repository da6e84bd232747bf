"""Hand-written codec of Fetch (key 1) v4-18: requests parsed in place, responses with file slices.

v5 log start, v7 sessions (KIP-227), v9 leader epochs, v11 rack, v12 flexible and last fetched epoch
(KIP-595), v13 topic ids, v15 replica state, v16 node endpoints, v17 directory ids and v18
high watermarks of followers (KIP-1166; both skipped: only nodes of Kafka's quorum use them).
Aborted transactions are null unless the client reads committed records only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from kvorum.runtime.errors import WireError
from kvorum.runtime.ids import UUID_ZERO
from kvorum.storage.files.transaction_index import AbortedTransaction
from kvorum.wire.primitives import (
    INT32,
    REQUEST_ITEMS_MAX,
    Reader,
    count_bytes,
    string_bytes,
    uvarint_bytes,
)
from kvorum.wire.produce_codec import NodeEndpoint, pack_endpoints

FIRST_FLEXIBLE = 12
FIRST_TOPIC_ID = 13
NO_REPLICA = -1
"""replica_id of a consumer's request."""

#: Records up to this size are copied into the response, which saves a system call; larger slices
#: are sent with sendfile.
INLINE_BYTES_MAX = 64 * 1024

_HEAD_V4 = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_REPLICA_STATE = struct.Struct(">iq")
_REQUEST_V4 = struct.Struct(">iqi")
_REQUEST_V5 = struct.Struct(">iqqi")
_REQUEST_V9 = struct.Struct(">iiqqi")
_REQUEST_V12 = struct.Struct(">iiqiqi")
_TOP_V7 = struct.Struct(">ihi")
_ANSWER_V4 = struct.Struct(">ihqqii")
_ANSWER_V5 = struct.Struct(">ihqqqii")
_ANSWER_V11 = struct.Struct(">ihqqqiii")
_ANSWER_V12 = struct.Struct(">ihqqqBi")
_HEAD_OF_PARTITION_V4 = struct.Struct(">ihqq")
_HEAD_OF_PARTITION_V5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_DIVERGING_TAG = struct.Struct(">BBiqB")
_LEADER_TAG = struct.Struct(">BBiiB")


class FileSlice(Protocol):
    """Stored batches: `length` bytes at `position` of a file (storage.log.log.LogSlice)."""

    @property
    def length(self) -> int: ...

    def read(self) -> bytes: ...


class FetchPartition(NamedTuple):
    """The request for one partition; -1 for fields that the version lacks."""

    partition_id: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    bytes_max: int


class FetchTopic(NamedTuple):
    """name: "" from v13 on.
    topic_id: zero before v13.
    """

    name: str
    topic_id: bytes
    partitions: list[FetchPartition]


class FetchRequest(NamedTuple):
    """The parsed request.

    forgotten: (name, topic id, partition ids) to remove from the session.
    rack_id: of the consumer, "" if not given; None before v11 (no reads from followers).
    """

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    bytes_max: int
    is_read_committed: bool
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[tuple[str, bytes, list[int]]]
    rack_id: str | None = None


class FetchedPartition(NamedTuple):
    """The response for one partition.

    records: a slice, None for no data.
    preferred_replica: the broker that the consumer should read from instead (v11+), -1 for this
        one.
    aborted: transactions to skip, None if the client also reads uncommitted records.
    """

    partition_id: int
    error: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging: tuple[int, int] | None = None
    current_leader: tuple[int, int] | None = None
    records: FileSlice | None = None
    aborted: Sequence[AbortedTransaction] | None = None
    preferred_replica: int = -1


class FetchedTopic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: Sequence[FetchedPartition]


def parse_fetch_request(
    buffer: bytes | bytearray | memoryview,
    position: int,
    end: int,
    version: int,
    *,
    items_max: int = REQUEST_ITEMS_MAX,
) -> FetchRequest:
    """Parse the request body in buffer[position:end]. Raises WireError if it is malformed."""
    reader = Reader(buffer, position, end, items_max=items_max)
    is_flexible = version >= FIRST_FLEXIBLE
    try:
        replica_id = reader.int32() if version <= 14 else NO_REPLICA
        replica_epoch = -1
        max_wait_ms, min_bytes, bytes_max, isolation = _HEAD_V4.unpack_from(
            buffer, reader.skip(_HEAD_V4.size)
        )
        session_id, session_epoch = 0, -1
        if version >= 7:
            session_id, session_epoch = _SESSION.unpack_from(buffer, reader.skip(8))
        count = reader.array_count(is_flexible)
        topics = [_parse_topic(reader, version, is_flexible) for _ in range(count)]
        forgotten = _parse_forgotten(reader, version, is_flexible) if version >= 7 else []
        rack_id = (reader.nullable_string(is_flexible) or "") if version >= 11 else None
        if is_flexible:
            for tag, tag_position, length in reader.tags():
                if tag == 1 and version >= 15 and length >= _REPLICA_STATE.size:
                    replica_id, replica_epoch = _REPLICA_STATE.unpack_from(buffer, tag_position)
    except (struct.error, IndexError) as error:
        raise WireError(f"malformed fetch v{version} request: {error}") from error
    return FetchRequest(
        replica_id,
        replica_epoch,
        max_wait_ms,
        min_bytes,
        bytes_max,
        isolation == 1,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
    )


def _parse_topic(reader: Reader, version: int, is_flexible: bool) -> FetchTopic:
    name, topic_id = "", UUID_ZERO
    if version >= FIRST_TOPIC_ID:
        topic_id = reader.uuid()
    else:
        name = reader.string(is_flexible)
    buffer = reader.buffer
    partitions = []
    for _ in range(reader.array_count(is_flexible)):
        if version >= 12:
            partition = FetchPartition(*_REQUEST_V12.unpack_from(buffer, reader.skip(32)))
            reader.skip_tags()
        elif version >= 9:
            index, epoch, offset, start, limit = _REQUEST_V9.unpack_from(buffer, reader.skip(28))
            partition = FetchPartition(index, epoch, offset, -1, start, limit)
        elif version >= 5:
            index, offset, start, limit = _REQUEST_V5.unpack_from(buffer, reader.skip(24))
            partition = FetchPartition(index, -1, offset, -1, start, limit)
        else:
            index, offset, limit = _REQUEST_V4.unpack_from(buffer, reader.skip(16))
            partition = FetchPartition(index, -1, offset, -1, -1, limit)
        partitions.append(partition)
    if is_flexible:
        reader.skip_tags()
    return FetchTopic(name, topic_id, partitions)


def _parse_forgotten(
    reader: Reader, version: int, is_flexible: bool
) -> list[tuple[str, bytes, list[int]]]:
    forgotten = []
    for _ in range(reader.array_count(is_flexible)):
        name, topic_id = "", UUID_ZERO
        if version >= FIRST_TOPIC_ID:
            topic_id = reader.uuid()
        else:
            name = reader.string(is_flexible)
        ids = [reader.int32() for _ in range(reader.array_count(is_flexible))]
        if is_flexible:
            reader.skip_tags()
        forgotten.append((name, topic_id, ids))
    return forgotten


def pack_fetch_response(
    version: int,
    topics: Iterable[FetchedTopic],
    *,
    error: int = 0,
    session_id: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
    throttle_ms: int = 0,
) -> tuple[list[bytearray | FileSlice], int]:
    """The response body as parts to send in order, and their total size in bytes.

    A part is a buffer of packed bytes, or a slice of a log file.
    """
    rows = list(topics)
    is_flexible = version >= FIRST_FLEXIBLE
    if version >= 7:
        out = bytearray(_TOP_V7.pack(throttle_ms, error, session_id))
    else:
        out = bytearray(INT32.pack(throttle_ms))
    out += count_bytes(len(rows), is_flexible)
    parts: list[bytearray | FileSlice] = []
    size = 0
    for topic in rows:
        if version >= FIRST_TOPIC_ID:
            out += topic.topic_id
        else:
            out += string_bytes(topic.name, is_flexible)
        out += count_bytes(len(topic.partitions), is_flexible)
        for partition in topic.partitions:
            records = partition.records
            length = 0 if records is None else records.length
            _pack_partition(out, version, partition, length)
            if records is not None and length:
                if length <= INLINE_BYTES_MAX:
                    out += _whole(records, length)
                else:
                    parts += (out, records)
                    size += len(out) + length
                    out = bytearray()
            if is_flexible:
                _pack_partition_tags(out, partition)
        if is_flexible:
            out += b"\x00"
    if is_flexible:
        pack_endpoints(out, endpoints if version >= 16 else ())
    parts.append(out)
    return parts, size + len(out)


def _whole(records: FileSlice, length: int) -> bytes:
    data = records.read()
    if len(data) != length:
        raise WireError(f"a slice of {length} bytes gave {len(data)}")
    return data


def _pack_partition(out: bytearray, version: int, partition: FetchedPartition, length: int) -> None:
    aborted = partition.aborted
    if aborted:
        _pack_with_aborted(out, version, partition, aborted, length)
        return
    # A missing list is sent as null, an empty list as empty.
    count = -1 if aborted is None else 0
    if version >= FIRST_FLEXIBLE:
        out += _ANSWER_V12.pack(*partition[:5], count + 1, partition.preferred_replica)
        out += uvarint_bytes(length + 1)
    elif version >= 11:
        out += _ANSWER_V11.pack(*partition[:5], count, partition.preferred_replica, length)
    elif version >= 5:
        out += _ANSWER_V5.pack(*partition[:5], count, length)
    else:
        out += _ANSWER_V4.pack(*partition[:4], count, length)


def _pack_with_aborted(
    out: bytearray,
    version: int,
    partition: FetchedPartition,
    aborted: Sequence[AbortedTransaction],
    length: int,
) -> None:
    is_flexible = version >= FIRST_FLEXIBLE
    if version >= 5:
        out += _HEAD_OF_PARTITION_V5.pack(*partition[:5])
    else:
        out += _HEAD_OF_PARTITION_V4.pack(*partition[:4])
    out += count_bytes(len(aborted), is_flexible)
    for entry in aborted:
        out += _ABORTED.pack(entry.producer_id, entry.first_offset)
        if is_flexible:
            out += b"\x00"
    if version >= 11:
        out += b"\xff\xff\xff\xff"  # preferred read replica: none
    out += count_bytes(length, is_flexible)


def _pack_partition_tags(out: bytearray, partition: FetchedPartition) -> None:
    diverging, leader = partition.diverging, partition.current_leader
    if diverging is None and leader is None:
        out += b"\x00"
        return
    out.append((diverging is not None) + (leader is not None))
    if diverging is not None:
        out += _DIVERGING_TAG.pack(0, 13, *diverging, 0)
    if leader is not None:
        out += _LEADER_TAG.pack(1, 9, *leader, 0)
