"""Valid sessions of both roles, broken at any place and split at any boundary.

The result must be an answer, a status or a closed connection. No exception escapes from
data_received, nothing is left over, and another connection of the server is served as before.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc.aio
import hpack
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.runtime.http2 import frames, headers
from kvorum.runtime.http2.client import Channel
from kvorum.runtime.http2.client_connection import ClientConnection
from kvorum.runtime.http2.connection import Http2Connection
from kvorum.runtime.http2.server import Server
from kvorum.runtime.http2.server_connection import ServerConnection
from kvorum.runtime.http2.status import StreamEnded
from tests.test_runtime.http2_by_hand import ANSWER, OK, REQUEST
from tests.test_runtime.http2_peers import SERVICE, Service, method, run

END_HEADERS, END_STREAM = frames.END_HEADERS, frames.END_STREAM
BOTH_ENDS = END_HEADERS | END_STREAM
EXAMPLES = settings(max_examples=200, deadline=None)
HELLO = frames.message_head(5) + b"hello"
TURNS = 12
"""Turns of the event loop, after which handlers and callers have finished."""


class Socket(asyncio.Transport):
    """A transport that keeps every byte that the connection writes."""

    def __init__(self, connection: Http2Connection) -> None:
        super().__init__()
        self.written = bytearray()
        self._connection = connection
        self._is_closing = False
        connection.connection_made(self)

    def write(self, data: Any) -> None:
        assert not self._is_closing
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)

    abort = close

    def feed(self, data: bytes) -> None:
        """Feed bytes like an event loop: none after the connection is closed."""
        if not self._is_closing:
            self._connection.data_received(data)


def head_of(name: str, *more: tuple[str, str]) -> bytes:
    return headers.encode(((":path", method(name)), *REQUEST, *more))


def packed(name: str) -> bytes:
    """Headers as other clients encode them: with Huffman codes and indexes."""
    return hpack.Encoder().encode([(":path", method(name)), *REQUEST])


def data(stream_id: int, payload: bytes, flags: int = 0) -> bytes:
    return frames.frame(frames.DATA, flags, stream_id, payload)


def head(stream_id: int, block: bytes, flags: int = END_HEADERS) -> bytes:
    return frames.frame(frames.HEADERS, flags, stream_id, block)


SOME_SETTINGS = frames.settings(
    {frames.SETTINGS_INITIAL_WINDOW_SIZE: 40_000, frames.SETTINGS_MAX_CONCURRENT_STREAMS: 9}
)
COMMON = [
    SOME_SETTINGS,
    frames.frame(frames.SETTINGS, frames.ACK, 0),
    frames.window_update(0, 1_000_000),
    frames.frame(frames.PING, 0, 0, b"01234567"),
    frames.frame(frames.PRIORITY, 0, 1, b"\0\0\0\0\1"),
    frames.window_update(1, 70_000),
]
OF_A_CLIENT = [
    frames.PREFACE,
    *COMMON,
    head(1, packed("echo")),
    data(1, HELLO, END_STREAM),
    head(3, head_of("chat", ("grpc-timeout", "5S"))),
    data(3, HELLO * 3),
    data(3, frames.message_head(90_000) + b"x" * 10_000),
    data(3, b"x" * 80_000),
    head(5, head_of("count")[:40], 0),
    frames.frame(frames.CONTINUATION, END_HEADERS, 5, head_of("count")[40:]),
    data(5, frames.message_head(2) + b"20", END_STREAM),
    head(7, head_of("hang"), END_HEADERS),
    data(7, HELLO, END_STREAM),
    frames.window_update(3, 1_000_000),
    frames.settings({frames.SETTINGS_INITIAL_WINDOW_SIZE: 10}),
    frames.rst_stream(7, frames.CANCEL),
    head(9, head_of("flood")),
    data(9, HELLO, END_STREAM),
    data(3, HELLO, END_STREAM),
    head(11, head_of("refuse")),
    frames.frame(frames.DATA, END_STREAM | frames.PADDED, 11, b"\3" + HELLO + b"\0\0\0"),
    frames.goaway(0, 0, "bye"),
]
OF_A_SERVER = [
    *COMMON,
    head(1, ANSWER),
    data(1, HELLO),
    head(1, OK, BOTH_ENDS),
    head(3, hpack.Encoder().encode([(":status", "200"), ("content-type", "application/grpc")])),
    data(3, HELLO * 3 + HELLO[:3]),
    frames.settings({frames.SETTINGS_INITIAL_WINDOW_SIZE: 100}),
    data(3, HELLO[3:]),
    head(5, ANSWER),
    frames.frame(frames.DATA, frames.PADDED, 5, b"\3" + HELLO + b"\0\0\0"),
    data(5, b"".join(frames.message_head(n) + b"y" * n for n in (0, 1, 30_000))),
    head(5, headers.encode((("grpc-status", "9"), ("grpc-message", "%C3%BC"))), BOTH_ENDS),
    head(7, ANSWER + OK, BOTH_ENDS),
    frames.rst_stream(3, frames.NO_ERROR),
    frames.goaway(7, 0, "bye"),
]

NUMBERS = st.integers(0, 1 << 20)
BREAK = st.one_of(
    st.tuples(st.sampled_from(["drop", "repeat", "swap", "cut", "move"]), NUMBERS, NUMBERS),
    st.tuples(st.sampled_from(["flip", "head", "junk"]), NUMBERS, NUMBERS),
)
BREAKS = st.lists(BREAK, max_size=4)
SPLITS = st.lists(NUMBERS, max_size=8)


def broken(session: list[bytes], breaks: list[tuple[str, int, int]]) -> bytes:
    parts = [bytearray(part) for part in session]
    for how, a, b in breaks:
        if not parts:
            break
        i, j = a % len(parts), b % len(parts)
        match how:
            case "drop":
                del parts[i]
            case "repeat":
                parts.insert(j, bytearray(parts[i]))
            case "swap":
                parts[i], parts[j] = parts[j], parts[i]
            case "move":
                parts.insert(j, parts.pop(i))
            case "cut":
                del parts[i][b % (len(parts[i]) or 1) :]
            case "flip" if parts[i]:
                parts[i][b % len(parts[i])] ^= 1 << a % 8
            case "head" if parts[i]:  # where it hurts most
                parts[i][b % min(len(parts[i]), 14)] = a >> 5 & 0xFF
            case "junk":
                parts.insert(i, bytearray(b.to_bytes(3, "big") * (a % 9)))
    return b"".join(parts)


def split(sent: bytes, places: list[int]) -> list[bytes]:
    at = sorted({0, len(sent), *(place % (len(sent) + 1) for place in places)})
    return [sent[a:b] for a, b in itertools.pairwise(at)]


async def turns(number: int = TURNS) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


@contextmanager
def no_error_logged() -> Iterator[None]:
    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            errors.append(record.getMessage())

    errors: list[str] = []
    keep = Keep(logging.ERROR)
    logger = logging.getLogger("kvorum.rpc")
    logger.addHandler(keep)
    try:
        yield
    finally:
        logger.removeHandler(keep)
    assert errors == []


def serving() -> tuple[Server, Service]:
    server, service = Server(), Service()
    server.add_handlers(SERVICE, service.handlers())
    return server, service


async def is_served(server: Server) -> None:
    """Another connection gets its answer."""
    other = Socket(ServerConnection(server))
    other.feed(
        frames.PREFACE + SOME_SETTINGS + head(1, packed("echo")) + data(1, HELLO, END_STREAM)
    )
    await turns()
    assert HELLO in other.written and b"grpc-status\x010" in other.written
    other.close()
    await turns()


async def play_client(chunks: list[bytes], *, turns_between: int = 0) -> bytes:
    """The bytes that a server wrote to a client that sent this and hung up."""
    server, service = serving()
    socket = Socket(ServerConnection(server))
    (connection,) = server.connections
    for chunk in chunks:
        socket.feed(chunk)
        await turns(turns_between)
    await turns()
    await is_served(server)
    written = bytes(socket.written)
    socket.close()
    await turns()
    assert not server._calls and not server._conversations and not server.connections
    assert not connection.streams and connection.calls == 0
    assert service.begun == service.ended
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return written


@EXAMPLES
@given(BREAKS, SPLITS, st.integers(0, 2))
def test_no_client_harms_a_server(
    breaks: list[tuple[str, int, int]], places: list[int], turns_between: int
) -> None:
    async def case() -> None:
        sent = broken(OF_A_CLIENT, breaks)
        await play_client(split(sent, places), turns_between=turns_between)

    with no_error_logged():
        run(case())


@EXAMPLES
@given(BREAKS, SPLITS)
def test_where_the_bytes_of_a_client_are_split_makes_no_difference(
    breaks: list[tuple[str, int, int]], places: list[int]
) -> None:
    async def case() -> None:
        sent = broken(OF_A_CLIENT, breaks)
        assert await play_client(split(sent, places)) == await play_client([sent])

    run(case())


async def play_server(chunks: list[bytes], *, turns_between: int = 0) -> list[str]:
    """The results of four calls at a client whose server sent these bytes and closed the
    connection."""
    channel = Channel("127.0.0.1:1")
    connection = ClientConnection(channel.connections)
    socket = Socket(connection)
    channel._connection = connection

    async def listen(call: Any) -> list[bytes]:
        await call.write(b"z" * 100_000)
        return [m async for m in iter_of(call)]

    async def iter_of(call: Any) -> Any:
        while (message := await call.read()) is not grpc.aio.EOF:
            yield message

    async def collect(call: Any) -> list[bytes]:
        return [m async for m in call]

    talk = channel.stream_stream(method("chat"))()
    calls = [
        asyncio.ensure_future(call)
        for call in (
            channel.unary_unary(method("echo"))(b"hello"),
            listen(talk),
            collect(channel.unary_stream(method("count"))(b"x" * 70_000)),
            channel.unary_unary(method("echo"))(b"y" * 80_000),
        )
    ]
    await turns(4)
    for chunk in chunks:
        socket.feed(chunk)
        await turns(turns_between)
    await turns()
    socket.close()
    _, waiting = await asyncio.wait(calls, timeout=5)
    assert not waiting, "a call that nobody will end"
    await turns()
    talk.cancel()
    assert not connection.streams and not connection._waiting and not channel.connections
    ends = []
    for call in calls:
        error = call.exception()
        assert error is None or isinstance(error, grpc.aio.AioRpcError), error
        ends.append(error.code().name if error else f"{len(call.result())} answers or bytes")
    return ends


@EXAMPLES
@given(BREAKS, SPLITS, st.integers(0, 2))
def test_no_server_leaves_a_caller_waiting(
    breaks: list[tuple[str, int, int]], places: list[int], turns_between: int
) -> None:
    async def case() -> None:
        await play_server(split(broken(OF_A_SERVER, breaks), places), turns_between=turns_between)

    with no_error_logged():
        run(case())


@EXAMPLES
@given(BREAKS, SPLITS)
def test_where_the_bytes_of_a_server_are_split_makes_no_difference(
    breaks: list[tuple[str, int, int]], places: list[int]
) -> None:
    async def case() -> None:
        sent = broken(OF_A_SERVER, breaks)
        assert await play_server(split(sent, places)) == await play_server([sent])

    run(case())


def test_the_sessions_are_valid_before_they_are_broken() -> None:
    async def case() -> None:
        written = await play_client([b"".join(OF_A_CLIENT)])
        kinds, at = [], 0
        while at < len(written):
            length, kind, _, stream_id = frames.parse_head(written, at)
            kinds.append((kind, stream_id))
            at += frames.HEAD_BYTES + length
        assert (frames.GOAWAY, 0) not in kinds
        for stream_id in (1, 3, 5, 9, 11):
            assert (frames.HEADERS, stream_id) in kinds
        ends = await play_server([b"".join(OF_A_SERVER)])
        none, five = "0 answers or bytes", "5 answers or bytes"
        assert ends == [five, "FAILED_PRECONDITION", none, "INTERNAL"]

    run(case())


def test_a_reset_by_any_code_is_a_status() -> None:
    async def case() -> None:
        for code in range(20):
            connection = ClientConnection(set())
            socket = Socket(connection)
            socket.feed(SOME_SETTINGS)
            stream = connection.begin()
            socket.feed(frames.rst_stream(stream.id, code))
            try:
                raise AssertionError(await stream.read())
            except StreamEnded as ended:
                assert f"error {code}" in ended.details

    run(case())
