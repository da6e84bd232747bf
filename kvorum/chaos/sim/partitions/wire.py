"""The requests and answers of simulated clients, as bytes of the Kafka protocol."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from kvorum.wire.kio_codec import encode_request, read_response
from kvorum.wire.primitives import Reader, uvarint_bytes

PRODUCE_VERSION = 13
_HEAD = struct.Struct(">ihhih")
_PRODUCE = struct.Struct(">Bhi")
_ANSWER = struct.Struct(">ihqqq")
CLIENT_ID = b"sim"


class Produced(NamedTuple):
    """One partition's answer to a Produce request."""

    correlation_id: int
    error: int
    base_offset: int
    log_start_offset: int


def pack_produce(
    correlation_id: int,
    topic_id: bytes,
    partition_id: int,
    batch: bytes | bytearray,
    *,
    acks: int,
    timeout_ms: int,
) -> bytes:
    """A frame with one batch for one partition (v13)."""
    body = bytearray(_PRODUCE.pack(0, acks, timeout_ms))
    body += uvarint_bytes(2) + topic_id + uvarint_bytes(2) + struct.pack(">i", partition_id)
    body += uvarint_bytes(len(batch) + 1) + batch + b"\x00\x00\x00"
    head_bytes = _HEAD.size - 4 + len(CLIENT_ID) + 1
    head = _HEAD.pack(head_bytes + len(body), 0, PRODUCE_VERSION, correlation_id, len(CLIENT_ID))
    return bytes(head + CLIENT_ID + b"\x00" + body)


def parse_produced(frame: bytes) -> Produced:
    """The answer, which names one partition."""
    reader = Reader(frame, 0, len(frame))
    correlation_id = reader.int32()
    reader.skip_tags()
    reader.array_count(True)
    reader.uuid()
    reader.array_count(True)
    _, error, base_offset, _, log_start_offset = _ANSWER.unpack_from(
        frame, reader.skip(_ANSWER.size)
    )
    return Produced(correlation_id, error, base_offset, log_start_offset)


def pack_request(
    api_key: int, name: str, version: int, correlation_id: int, values: Mapping[str, Any]
) -> bytes:
    """A frame of any API, in a flexible version, by kio's schema."""
    body = encode_request(name, version, values)
    head_bytes = _HEAD.size - 4 + len(CLIENT_ID) + 1
    head = _HEAD.pack(head_bytes + len(body), api_key, version, correlation_id, len(CLIENT_ID))
    return bytes(head + CLIENT_ID + b"\x00" + body)


def parse_answer(api_key: int, name: str, version: int, frame: bytes) -> tuple[int, Any]:
    """The correlation id and the fields of an answer in a flexible version."""
    answer = read_response(name, version, memoryview(frame)[5:])
    return int.from_bytes(frame[:4], "big"), answer


class Frames:
    """Splits received bytes into whole frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are complete now, without their size."""
        buffer = self._buffer
        buffer += data
        frames = []
        while len(buffer) >= 4:
            size = int.from_bytes(buffer[:4], "big")
            if len(buffer) < 4 + size:
                break
            frames.append(bytes(buffer[4 : 4 + size]))
            del buffer[: 4 + size]
        return frames
