"""Hand-written codec of Produce (key 0) v3-13: parses requests in place, packs responses.

It is hand-written because kio copies the record batches and needs some 10 us to write a response.
Tests compare both directions with kio's bytes. v3 magic 2 and transactional id, v5 log start
offset, v8 record errors, v9 flexible, v10 current leader and endpoints, v13 topic ids.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from kvorum.runtime.errors import WireError
from kvorum.runtime.ids import UUID_ZERO
from kvorum.wire.primitives import (
    INT32,
    REQUEST_ITEMS_MAX,
    Reader,
    count_bytes,
    string_bytes,
    uvarint_bytes,
)
from kvorum.wire.versions import Api

FIRST_FLEXIBLE = 9
FIRST_TOPIC_ID = 13
API = Api(
    key=0,
    name="produce",
    min_version=3,
    max_version=13,
    first_flexible=FIRST_FLEXIBLE,
    advertised_min_version=0,
)

_HEAD = struct.Struct(">hi")
_PARTITION_V3 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")
_LEADER_TAG = struct.Struct(">BBiiB")


class ProducePartition(NamedTuple):
    """Records of one partition: buffer[position:position + length]; length -1 means null."""

    partition_id: int
    position: int
    length: int


class ProduceTopic(NamedTuple):
    """name: "" from v13 on.
    topic_id: zero before v13.
    """

    name: str
    topic_id: bytes
    partitions: list[ProducePartition]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class ProducedPartition(NamedTuple):
    """The result for one partition.

    current_leader: (id, epoch), sent with NOT_LEADER_OR_FOLLOWER from v10 on.
    record_errors: (index in the batch, sentence), sent from v8 on.
    """

    partition_id: int
    error: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None
    record_errors: Sequence[tuple[int, str]] = ()


class ProducedTopic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: Sequence[ProducedPartition]


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


def parse_produce_request(
    buffer: bytes | bytearray | memoryview,
    position: int,
    end: int,
    version: int,
    *,
    items_max: int = REQUEST_ITEMS_MAX,
) -> ProduceRequest:
    """Parse the request body in buffer[position:end]; the batches are not copied.

    Remaining bytes are ignored, as in Kafka. Raises WireError if the body is malformed.
    """
    reader = Reader(buffer, position, end, items_max=items_max)
    is_flexible = version >= FIRST_FLEXIBLE
    try:
        transactional_id = reader.nullable_string(is_flexible)
        acks, timeout_ms = _HEAD.unpack_from(buffer, reader.skip(_HEAD.size))
        count = reader.array_count(is_flexible)
        topics = [_parse_topic(reader, version, is_flexible) for _ in range(count)]
        if is_flexible:
            reader.skip_tags()
    except (struct.error, IndexError) as error:
        raise WireError(f"malformed produce v{version} request: {error}") from error
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _parse_topic(reader: Reader, version: int, is_flexible: bool) -> ProduceTopic:
    name, topic_id = "", UUID_ZERO
    if version >= FIRST_TOPIC_ID:
        topic_id = reader.uuid()
    else:
        name = reader.string(is_flexible)
    partitions = []
    for _ in range(reader.array_count(is_flexible)):
        partition_id = reader.int32()
        length = reader.byte_length(is_flexible)
        position = reader.skip(max(length, 0))
        if is_flexible:
            reader.skip_tags()
        partitions.append(ProducePartition(partition_id, position, length))
    if is_flexible:
        reader.skip_tags()
    return ProduceTopic(name, topic_id, partitions)


def pack_produce_response(
    version: int,
    topics: Sequence[ProducedTopic],
    endpoints: Sequence[NodeEndpoint] = (),
    *,
    throttle_ms: int = 0,
) -> bytearray:
    """The response body. endpoints: addresses of the current leaders named in it (v10+)."""
    is_flexible = version >= FIRST_FLEXIBLE
    out = bytearray(count_bytes(len(topics), is_flexible))
    for topic in topics:
        if version >= FIRST_TOPIC_ID:
            out += topic.topic_id
        else:
            out += string_bytes(topic.name, is_flexible)
        out += count_bytes(len(topic.partitions), is_flexible)
        for partition in topic.partitions:
            _pack_partition(out, version, partition)
        if is_flexible:
            out += b"\x00"
    out += INT32.pack(throttle_ms)
    if is_flexible:
        pack_endpoints(out, endpoints if version >= 10 else ())
    return out


def _pack_partition(out: bytearray, version: int, partition: ProducedPartition) -> None:
    if version < 5:
        out += _PARTITION_V3.pack(*partition[:4])
        return
    out += _PARTITION_V5.pack(*partition[:5])
    if version < 8:
        return
    is_flexible = version >= FIRST_FLEXIBLE
    out += count_bytes(len(partition.record_errors), is_flexible)
    for at, sentence in partition.record_errors:
        out += INT32.pack(at) + string_bytes(sentence, is_flexible)
        if is_flexible:
            out += b"\x00"
    out += string_bytes(partition.error_message, is_flexible)
    if not is_flexible:
        return
    if version >= 10 and partition.current_leader is not None:
        out += b"\x01" + _LEADER_TAG.pack(0, 9, *partition.current_leader, 0)
    else:
        out += b"\x00"


def pack_endpoints(out: bytearray, endpoints: Sequence[NodeEndpoint]) -> None:
    """Pack the closing tagged section of a Produce or Fetch response: tag 0, node endpoints."""
    if not endpoints:
        out += b"\x00"
        return
    payload = bytearray(uvarint_bytes(len(endpoints) + 1))
    for node in endpoints:
        payload += INT32.pack(node.node_id) + string_bytes(node.host, True)
        payload += INT32.pack(node.port) + string_bytes(node.rack, True) + b"\x00"
    out += b"\x01\x00" + uvarint_bytes(len(payload)) + payload
