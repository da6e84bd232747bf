"""The other end of a connection, written frame by frame."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
import grpc.aio
import hpack
import pytest

from kvorum.runtime.http2 import frames, headers
from kvorum.runtime.http2.rpc import USUAL_PATIENCE, Channel, Patience, open_channel
from tests.polling import until
from tests.test_runtime.http2_peers import free_port, run

REQUEST = (
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", "test"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
)
ANSWER = headers.encode(((":status", "200"), ("content-type", "application/grpc")))
PATH = "/test.Peer/echo"
LARGE = b"x" * 300_000
OK = headers.encode((("grpc-status", "0"),))
END_HEADERS, END_STREAM = frames.END_HEADERS, frames.END_STREAM


@dataclass(frozen=True, slots=True)
class Frame:
    kind: int
    flags: int
    stream_id: int
    payload: bytes

    @property
    def ends_stream(self) -> bool:
        return self.kind in (frames.DATA, frames.HEADERS) and bool(self.flags & END_STREAM)


class ByHand:
    """Frames over a socket. `passed` keeps the frames that `until` passes over."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.passed: list[Frame] = []
        self._hpack = hpack.Decoder()

    def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    def settings(self, **values: int) -> None:
        """Send SETTINGS. values: by the lower-case names of the constants `SETTINGS_...` in
        `frames`."""
        numbers = {getattr(frames, f"SETTINGS_{k.upper()}"): v for k, v in values.items()}
        self.send(frames.settings(numbers))

    def head(self, stream_id: int, block: bytes, flags: int = END_HEADERS) -> None:
        self.send(frames.frame(frames.HEADERS, flags, stream_id, block))

    def data(self, stream_id: int, payload: bytes, flags: int = 0) -> None:
        self.send(frames.frame(frames.DATA, flags, stream_id, payload))

    def call(self, stream_id: int, path: str, *more: tuple[str, str], flags: int = 0) -> None:
        block = headers.encode(((":path", path), *REQUEST, *more))
        self.head(stream_id, block, END_HEADERS | flags)

    def answer(self, stream_id: int, *messages: bytes, last: bytes = OK) -> None:
        self.head(stream_id, ANSWER)
        for message in messages:
            self.data(stream_id, frames.message_head(len(message)) + message)
        self.head(stream_id, last, END_HEADERS | END_STREAM)

    async def next(self) -> Frame | None:
        """None when the connection is over."""
        try:
            head = await self._reader.readexactly(frames.HEAD_BYTES)
            length, kind, flags, stream_id = frames.parse_head(head, 0)
            payload = await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return Frame(kind, flags, stream_id, payload)

    async def until(self, kind: int, *, flags: int = 0) -> Frame:
        """The next frame of this kind that has these flags set."""
        while (frame := await self.next()) is not None:
            if frame.kind == kind and frame.flags & flags == flags:
                return frame
            self.passed.append(frame)
        raise AssertionError(f"the connection ended before a frame of kind {kind}")

    async def until_over(self) -> list[Frame]:
        """All frames until the connection ends."""
        came = []
        while (frame := await self.next()) is not None:
            came.append(frame)
        return came

    def fields(self, frame: Frame) -> dict[str, str]:
        return dict(self._hpack.decode(frame.payload))

    async def status(self) -> tuple[int, str]:
        """(code, words) of the next call that ends."""
        last = self.fields(await self.until(frames.HEADERS, flags=END_STREAM))
        return int(last["grpc-status"]), headers.parse_message(last.get("grpc-message", ""))


@asynccontextmanager
async def client_by_hand(address: str) -> AsyncIterator[ByHand]:
    """A client of one of our servers that has sent the preface and its settings."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        client = ByHand(reader, writer)
        client.send(frames.PREFACE)
        client.settings()
        yield client
    finally:
        writer.transport.abort()


@asynccontextmanager
async def server_by_hand(
    script: Callable[[ByHand], Awaitable[None]], *, preface: bool = True
) -> AsyncIterator[str]:
    """The address of a server that plays `script` with each connection, then hangs up."""
    playing: set[asyncio.Task[None] | None] = set()

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        playing.add(asyncio.current_task())
        try:
            if preface:
                assert await reader.readexactly(len(frames.PREFACE)) == frames.PREFACE
            await script(ByHand(reader, writer))
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    port = free_port()
    server = await asyncio.start_server(play, "127.0.0.1", port)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.close()
        for task in playing:
            if task is not None:
                task.cancel()
        if playing:
            await asyncio.wait([task for task in playing if task is not None])


async def told(call: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code(), failed.value.details()


def play(
    script: Callable[[ByHand], Awaitable[None]],
    case: Callable[[Channel], Awaitable[None]],
    *,
    preface: bool = True,
    patience: Patience = USUAL_PATIENCE,
) -> None:
    """Run `case` against a server that plays `script`; no stream may be left."""

    async def both() -> None:
        async with server_by_hand(script, preface=preface) as address:
            channel = open_channel(address, patience)
            await case(channel)
            assert not any(connection.streams for connection in channel.connections)
            await channel.close()
            await until(lambda: not channel.connections, "the connections are closed")

    run(both())


async def receive(peer: ByHand) -> None:
    """Settings, and the whole of one request."""
    peer.settings()
    while not (await peer.until(frames.DATA)).ends_stream:
        pass


async def silent(peer: ByHand) -> None:
    await peer.until_over()


async def greeting(peer: ByHand) -> None:
    peer.settings()
    await peer.until_over()
