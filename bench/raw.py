"""A Kafka client with one request at a time on a connection, for loads of many clients.

librdkafka has several threads for each consumer, too many for a hundred members of a group.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from kvorum.runtime.errors import WireError
from kvorum.wire.kio_codec import encode_request, message_class, read_response

CLIENT_ID = b"bench"
ANSWER_BYTES_MAX = 64 << 20


class RawClient:
    """One connection. Only non-flexible versions work: their headers have no tagged fields."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    @classmethod
    async def open(cls, address: str) -> RawClient:
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def close(self) -> None:
        self._writer.close()

    async def call(self, name: str, version: int, values: dict[str, Any]) -> Any:
        """Send a request; returns the answer as kio's entity. Raises OSError, EOFError,
        WireError."""
        self.send(request_body(name, version, values))
        return read_response(name, version, memoryview(await self.receive()))

    def send(self, request: tuple[int, int, bytes]) -> None:
        """request: API key, version, body."""
        key, version, body = request
        self._correlation_id += 1
        head = struct.pack(">hhih", key, version, self._correlation_id, len(CLIENT_ID)) + CLIENT_ID
        self._writer.write(struct.pack(">i", len(head) + len(body)) + head + body)

    async def receive(self) -> bytes:
        """The body of the next answer."""
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        if not 4 <= size <= ANSWER_BYTES_MAX:
            raise WireError(f"an answer of {size} bytes")
        return (await self._reader.readexactly(size))[4:]


def request_body(name: str, version: int, values: dict[str, Any]) -> tuple[int, int, bytes]:
    """A request in the form that `RawClient.send` takes."""
    key = message_class(name, version, "request").__api_key__
    return int(key), version, bytes(encode_request(name, version, values))
