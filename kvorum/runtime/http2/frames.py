"""Frames of HTTP/2 as gRPC uses them. Pure: bytes in, bytes out.

Source: RFC 9113, sections 4 and 6. A frame is a head of nine bytes (length, type, flags, stream)
and a payload.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from kvorum.runtime.errors import WireError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 5, 6, 7, 8, 9

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20

NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR = 0, 1, 3
FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR = 6, 7, 8, 9
ENHANCE_YOUR_CALM = 11

SETTINGS_ENABLE_PUSH = 2
SETTINGS_MAX_CONCURRENT_STREAMS = 3
SETTINGS_INITIAL_WINDOW_SIZE = 4
SETTINGS_MAX_FRAME_SIZE = 5
SETTINGS_MAX_HEADER_LIST_SIZE = 6

SETTINGS_MAX = 100
"""Limit of values in one frame; RFC 9113 defines six."""

WINDOW_DEFAULT = 65_535
WINDOW_MAX = (1 << 31) - 1
FRAME_BYTES_DEFAULT = 16_384
FRAME_BYTES_LIMIT = (1 << 24) - 1

MESSAGE_HEAD_BYTES = 5
"""Bytes before each gRPC message: the compression flag and the length."""

MESSAGE_BYTES_MAX = 64 << 20
"""Above any batch of the quorum (8 MiB per fetch), with room for reads of the metadata."""

_HEAD = struct.Struct(">HBBBL")
_SETTING = struct.Struct(">HL")
_MESSAGE_FRAME = struct.Struct(">HBBBLBL")
_TLS_RECORDS = (0x15, 0x16)
"""Types of TLS records: an alert, a handshake."""
_TLS_MAJOR = 3


class ProtocolError(WireError):
    """The peer broke a rule of HTTP/2. code: the error code to send to it."""

    def __init__(self, message: str, code: int = PROTOCOL_ERROR) -> None:
        super().__init__(message)
        self.code = code


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """One whole frame."""
    length = len(payload)
    return _HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream_id) + payload


def parse_head(data: bytes | bytearray, at: int) -> tuple[int, int, int, int]:
    """(payload length, type, flags, stream id) of the frame whose head begins at `at`."""
    high, low, kind, flags, stream_id = _HEAD.unpack_from(data, at)
    return high << 8 | low, kind, flags, stream_id & WINDOW_MAX


def message_frame(stream_id: int, message: bytes, *, ends_stream: bool) -> bytes:
    """One DATA frame that holds one whole gRPC message."""
    size = len(message)
    length = size + MESSAGE_HEAD_BYTES
    head = _MESSAGE_FRAME.pack(
        length >> 8, length & 0xFF, DATA, END_STREAM if ends_stream else 0, stream_id, 0, size
    )
    return head + message


def message_head(size: int) -> bytes:
    """The bytes before a message of this size."""
    return b"\0" + size.to_bytes(4, "big")


def settings(values: Mapping[int, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*item) for item in values.items()))


def is_tls(began: bytes | bytearray) -> bool:
    """True if the first bytes of a connection are TLS's: of a handshake, or of an alert."""
    return len(began) > 1 and began[0] in _TLS_RECORDS and began[1] == _TLS_MAJOR


def require_settings(data: bytes) -> None:
    """Raise ProtocolError unless data, at least a frame head long, begins with SETTINGS."""
    _, kind, flags, stream_id = parse_head(data, 0)
    if is_tls(data):
        raise ProtocolError("it speaks TLS")
    if kind != SETTINGS or flags & ACK or stream_id:
        raise ProtocolError(f"it does not begin with SETTINGS, but with {data[:HEAD_BYTES]!r}")


def parse_settings(payload: bytes) -> dict[int, int]:
    """The values of a SETTINGS frame. Raises ProtocolError."""
    if len(payload) % _SETTING.size or len(payload) > _SETTING.size * SETTINGS_MAX:
        raise ProtocolError("a SETTINGS frame of broken length", FRAME_SIZE_ERROR)
    return dict(_SETTING.iter_unpack(payload))


def window_update(stream_id: int, increment: int) -> bytes:
    """A WINDOW_UPDATE frame; stream 0 is the connection."""
    return frame(WINDOW_UPDATE, 0, stream_id, increment.to_bytes(4, "big"))


def parse_window_update(payload: bytes) -> int:
    """The increment in a WINDOW_UPDATE frame. Raises ProtocolError."""
    if len(payload) != 4:
        raise ProtocolError("a WINDOW_UPDATE frame of broken length", FRAME_SIZE_ERROR)
    increment = int.from_bytes(payload, "big") & WINDOW_MAX
    if increment == 0:
        raise ProtocolError("a WINDOW_UPDATE of nothing")
    return increment


def rst_stream(stream_id: int, code: int) -> bytes:
    """A RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream_id, code.to_bytes(4, "big"))


def parse_rst_stream(payload: bytes) -> int:
    """The error code in a RST_STREAM frame. Raises ProtocolError."""
    if len(payload) != 4:
        raise ProtocolError("a RST_STREAM frame of broken length", FRAME_SIZE_ERROR)
    return int.from_bytes(payload, "big")


def goaway(last_stream_id: int, code: int, reason: str = "") -> bytes:
    """A GOAWAY frame."""
    head = last_stream_id.to_bytes(4, "big") + code.to_bytes(4, "big")
    return frame(GOAWAY, 0, 0, head + reason.encode())


def parse_goaway(payload: bytes) -> tuple[int, int, str]:
    """(last stream id, error code, reason). Raises ProtocolError."""
    if len(payload) < 8:
        raise ProtocolError("a GOAWAY of broken length", FRAME_SIZE_ERROR)
    last = int.from_bytes(payload[:4], "big") & WINDOW_MAX
    return last, int.from_bytes(payload[4:8], "big"), payload[8:264].decode("latin-1")


def without_padding(payload: bytes, flags: int) -> bytes:
    """The content of a DATA or HEADERS frame. Raises ProtocolError."""
    start, end = 0, len(payload)
    if flags & PADDED:
        if not payload or payload[0] >= end:
            raise ProtocolError("a frame with more padding than content")
        start, end = 1, end - payload[0]
    if flags & HAS_PRIORITY:
        start += 5
        if start > end:
            raise ProtocolError("a HEADERS frame too short for its priority", FRAME_SIZE_ERROR)
    return payload[start:end] if (start, end) != (0, len(payload)) else payload
