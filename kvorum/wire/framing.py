"""Frames and headers of the Kafka protocol (KIP-482), parsed in place.

A frame is an int32 size and that many bytes. A request header has its client id in the OLD int16
form even if the rest is flexible. A response of a flexible version has an empty tagged section
behind the correlation id. ApiVersions is the exception: its response header is always v0, because a
client that does not know the served versions yet must be able to read it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kvorum.runtime.errors import WireError
from kvorum.wire.primitives import REQUEST_ITEMS_MAX, Reader
from kvorum.wire.versions import ServedVersions

FRAME_SIZE_BYTES = 4
API_VERSIONS_KEY = 18

_HEAD = struct.Struct(">hhih")
_SIZE = struct.Struct(">i")
#: The first bytes of peers that have the wrong port or protocol.
_SPOKEN = {
    b"PRI ": "HTTP/2, as nodes do to a controller's listener, and not Kafka's protocol",
    b"GET ": "HTTP, and not Kafka's protocol",
    b"HEAD": "HTTP, and not Kafka's protocol",
    b"POST": "HTTP, and not Kafka's protocol",
}
_TLS_HANDSHAKE = b"\x16\x03"
_RESPONSE_V0 = struct.Struct(">ii")
_RESPONSE_V1 = struct.Struct(">iib")


class BadFrame(WireError):
    """Bytes that begin no frame: the peer speaks another protocol, or has lost its place."""


class RequestHeader(NamedTuple):
    """body_position: start of the request body in the buffer."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def frame_size(buffer: bytes | bytearray | memoryview, position: int, size_max: int) -> int:
    """Size of the frame whose length field is at `position`, without that field.

    Raises BadFrame for a size that is too small or above size_max.
    """
    size: int = _SIZE.unpack_from(buffer, position)[0]
    if size < _HEAD.size or size > size_max:
        spoken = _SPOKEN.get(bytes(buffer[position : position + 4]))
        if spoken is None and bytes(buffer[position : position + 2]) == _TLS_HANDSHAKE:
            spoken = "TLS, and this listener is in clear text"
        said = f"; the peer speaks {spoken}" if spoken else ""
        raise BadFrame(f"a frame of {size} bytes is outside {_HEAD.size}..{size_max}{said}")
    return size


def parse_request_header(
    buffer: bytes | bytearray | memoryview, position: int, end: int, served: ServedVersions
) -> RequestHeader:
    """The header of the request in buffer[position:end].

    Raises WireError for an API that is not served, because the form of its header and body is
    unknown. The caller handles a version that is not served: ApiVersions has a response for it, all
    other APIs close the connection.
    """
    if end - position < _HEAD.size:
        raise WireError("a request is shorter than its header")
    api_key, api_version, correlation_id, client_length = _HEAD.unpack_from(buffer, position)
    position += _HEAD.size
    client_id = None
    if client_length >= 0:
        if position + client_length > end:
            raise WireError("the client id passes the end of the request")
        try:
            client_id = str(buffer[position : position + client_length], "utf-8")
        except UnicodeDecodeError as error:
            raise WireError(f"the client id is not UTF-8: {error}") from error
        position += client_length
    if served.get(api_key) is None:
        raise WireError(f"API key {api_key} is not served here")
    if served.is_served(api_key, api_version) and served.is_flexible(api_key, api_version):
        reader = Reader(buffer, position, end, items_max=REQUEST_ITEMS_MAX)
        reader.skip_tags()
        position = reader.position
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def response_head(correlation_id: int, body_bytes: int, *, is_flexible: bool) -> bytes:
    """Frame size and response header for a body of `body_bytes`.

    Pass is_flexible=False for ApiVersions of any version (KIP-511).
    """
    if is_flexible:
        return _RESPONSE_V1.pack(body_bytes + 5, correlation_id, 0)
    return _RESPONSE_V0.pack(body_bytes + 4, correlation_id)
