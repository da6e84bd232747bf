"""Errors that a caller gets from servers that break the rules; none leaves anything behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio
import pytest

from kvorum.runtime.http2 import client_connection, frames, headers, keepalive
from kvorum.runtime.http2.client_connection import ClientConnection
from kvorum.runtime.http2.connection import Http2Connection
from kvorum.runtime.http2.keepalive import USUAL_PATIENCE, Patience
from kvorum.runtime.http2.rpc import Channel
from kvorum.runtime.http2.stream import MESSAGE_BYTES_MAX, Stream
from tests.polling import until
from tests.test_runtime.http2_by_hand import (
    ANSWER,
    END_HEADERS,
    END_STREAM,
    LARGE,
    PATH,
    ByHand,
    play,
    receive,
    told,
)

Code = grpc.StatusCode


def expect(
    script: Callable[[ByHand], Awaitable[None]],
    code: grpc.StatusCode,
    words: str,
    *,
    patience: Patience = USUAL_PATIENCE,
) -> None:
    async def case(channel: Channel) -> None:
        got, details = await told(channel.unary_unary(PATH)(b"hello", timeout=10))
        assert got is code
        assert words in details

    play(script, case, patience=patience)


def answering(*parts: tuple[bytes, int, int]) -> Callable[[ByHand], Awaitable[None]]:
    """A script that sends these frames on the call's stream: (payload, kind, flags)."""

    async def script(peer: ByHand) -> None:
        await receive(peer)
        for payload, kind, flags in parts:
            peer.send(frames.frame(kind, flags, 1, payload))
        await peer.until_over()

    return script


HEAD = (ANSWER, frames.HEADERS, END_HEADERS)
MESSAGE = (b"\0\0\0\0\2hi", frames.DATA, 0)


def block(*pairs: tuple[str, str]) -> bytes:
    return headers.encode(pairs)


def ending(*pairs: tuple[str, str]) -> tuple[bytes, int, int]:
    return block(*pairs), frames.HEADERS, END_HEADERS | END_STREAM


OK = ending(("grpc-status", "0"))
HTML = block((":status", "200"), ("content-type", "text/html"))


@pytest.mark.parametrize(
    ("parts", "code", "words"),
    [
        ([(HTML, frames.HEADERS, END_HEADERS), (b"<html>", 0, END_STREAM)], Code.UNKNOWN, "html"),
        ([ending((":status", "404"))], Code.UNIMPLEMENTED, "HTTP status 404"),
        ([ending((":status", "503"))], Code.UNAVAILABLE, "HTTP status 503"),
        ([HEAD, MESSAGE, ending(("x", "y"))], Code.UNKNOWN, "without a gRPC status"),
        ([HEAD, (MESSAGE[0], frames.DATA, END_STREAM)], Code.UNKNOWN, "without a gRPC status"),
        ([HEAD, MESSAGE, ending(("grpc-status", "\xb2"))], Code.UNKNOWN, "\xb2"),
        ([HEAD, MESSAGE, ending(("grpc-status", "9" * 5000))], Code.UNKNOWN, "999"),
        ([HEAD, MESSAGE, ending(("grpc-status", "77"))], Code.UNKNOWN, "77"),
        ([HEAD, (b"\1\0\0\0\2hi", 0, 0), OK], Code.UNIMPLEMENTED, "compressed"),
        ([HEAD, (b"\0\5\0\0\0hi", 0, 0), OK], Code.RESOURCE_EXHAUSTED, str(MESSAGE_BYTES_MAX)),
        ([HEAD, (b"\0\0\0\0\3hi", 0, 0), OK], Code.INTERNAL, "middle of a message"),
        ([HEAD, MESSAGE, (b"\0\0", 0, 0), OK], Code.INTERNAL, "middle of a message"),
        ([HEAD, OK], Code.INTERNAL, "without a message"),
        ([HEAD, MESSAGE, MESSAGE, OK], Code.INTERNAL, "more than one"),
        ([HEAD, MESSAGE, HEAD], Code.UNAVAILABLE, "middle of a stream"),
        ([MESSAGE, OK], Code.UNAVAILABLE, "DATA before HEADERS"),
        ([HEAD, (b"\0\0\0\7", frames.RST_STREAM, 0)], Code.UNAVAILABLE, "error 7"),
        ([HEAD, (b"\0\0\0\x0b", frames.RST_STREAM, 0)], Code.RESOURCE_EXHAUSTED, "error 11"),
        ([HEAD, MESSAGE, (b"\0\0\0\2", frames.RST_STREAM, 0)], Code.INTERNAL, "error 2"),
        ([(b"\0\0", frames.RST_STREAM, 0)], Code.UNAVAILABLE, "RST_STREAM frame of broken"),
        ([(b"\0\0", frames.PUSH_PROMISE, 0)], Code.UNAVAILABLE, "PUSH_PROMISE"),
        ([(b"\x7f\xff\xff\xff", frames.WINDOW_UPDATE, 0)], Code.INTERNAL, "overflows"),
        ([HEAD, (b"\0" * 5, frames.CONTINUATION, 0)], Code.UNAVAILABLE, "CONTINUATION"),
        ([(b"\xff\xff\xff\xff\xff", frames.HEADERS, END_HEADERS)], Code.UNAVAILABLE, "header"),
    ],
)
def test_a_broken_answer_is_a_status(
    parts: list[tuple[bytes, int, int]], code: grpc.StatusCode, words: str
) -> None:
    expect(answering(*parts), code, words)


def test_an_interim_answer_is_passed_over() -> None:
    early = (block((":status", "103")), frames.HEADERS, END_HEADERS)

    async def case(channel: Channel) -> None:
        assert await channel.unary_unary(PATH)(b"hello") == b"hi"

    play(answering(early, HEAD, MESSAGE, OK), case)


def test_a_server_of_http_1_is_unavailable_in_words() -> None:
    async def script(peer: ByHand) -> None:
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await peer.until_over()

    expect(script, Code.UNAVAILABLE, "does not begin with SETTINGS, but with b'HTTP/1.1 '")


def test_a_server_that_says_nothing_is_unavailable() -> None:
    async def script(peer: ByHand) -> None:
        await peer.until_over()

    words = "nothing answered within 30 ms"
    expect(script, Code.UNAVAILABLE, words, patience=Patience(connect_ms=30))


@pytest.mark.parametrize("goodbye", [b"", frames.goaway(0, 0)])
def test_a_server_that_greets_and_leaves_is_unavailable(goodbye: bytes) -> None:
    async def script(peer: ByHand) -> None:
        peer.send(frames.settings({}), goodbye)

    async def case(channel: Channel) -> None:
        for _ in range(20):
            assert (await told(channel.unary_unary(PATH)(b"")))[0] is Code.UNAVAILABLE

    play(script, case)


def test_a_server_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepalive, "KEEPALIVE_TIME_MS", 20)
    monkeypatch.setattr(keepalive, "KEEPALIVE_TIMEOUT_MS", 20)
    monkeypatch.setattr(keepalive, "LOOK_MS", 5)

    async def script(peer: ByHand) -> None:
        peer.settings()
        await peer.until_over()

    expect(script, Code.UNAVAILABLE, "nothing came for")


@pytest.fixture
def closings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The reasons for which callers closed their connections."""
    reasons: list[str] = []

    def close(self: ClientConnection, reason: str) -> None:
        reasons.append(reason)
        Http2Connection.close(self, reason)

    monkeypatch.setattr(ClientConnection, "close", close)
    return reasons


def test_a_call_above_the_last_of_a_goaway_is_unavailable_and_the_other_ends_well(
    closings: list[str],
) -> None:
    seen: list[ByHand] = []

    async def script(peer: ByHand) -> None:
        seen.append(peer)
        peer.settings()
        for _ in range(2):
            await peer.until(frames.DATA)
        peer.send(frames.goaway(1, frames.NO_ERROR))
        await asyncio.sleep(0)
        peer.answer(1, b"first")
        assert await peer.until_over() == []

    async def case(channel: Channel) -> None:
        echo = channel.unary_unary(PATH)
        first, second = await asyncio.gather(echo(b""), echo(b""), return_exceptions=True)
        assert first == b"first"
        assert isinstance(second, grpc.aio.AioRpcError)
        assert second.code() is Code.UNAVAILABLE
        # The old connection has no call left: the client closes it.
        await until(lambda: not channel.connections, "it is closed")
        assert closings == ["its last call has ended"]

    play(script, case)


def test_calls_wait_while_the_server_takes_no_more() -> None:
    most = 0

    async def script(peer: ByHand) -> None:
        nonlocal most
        peer.settings(max_concurrent_streams=2)
        under_way: list[int] = []
        for left in range(10, 0, -1):
            while len(under_way) < min(2, left):
                under_way.append((await peer.until(frames.DATA)).stream_id)
            most = max(most, len(under_way))
            peer.answer(under_way.pop(0), b"yes")
        await peer.until_over()

    async def case(channel: Channel) -> None:
        echo = channel.unary_unary(PATH)
        assert await asyncio.gather(*(echo(b"") for _ in range(10))) == [b"yes"] * 10
        assert most == 2

    play(script, case)


def test_a_waiting_call_that_gives_up_leaves_its_turn_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def case(channel: Channel) -> None:
        echo = channel.unary_unary(PATH)
        first = asyncio.create_task(echo(b""))
        await until(lambda: any(c.streams for c in channel.connections), "the first is under way")
        second, third = asyncio.create_task(echo(b"")), asyncio.create_task(echo(b""))
        (connection,) = channel.connections
        await until(lambda: len(connection._waiting) == 2, "two wait")

        def forget(stream: Stream) -> None:
            ClientConnection.forget(connection, stream)
            second.cancel()  # in the very moment it could go on

        monkeypatch.setattr(connection, "forget", forget)
        go_on.set()
        assert [await first, await third] == [b"yes", b"yes"]
        assert second.cancelled()

    async def script(peer: ByHand) -> None:
        peer.settings(max_concurrent_streams=1)
        await go_on.wait()
        while (frame := await peer.next()) is not None:
            if frame.kind == frames.DATA:
                peer.answer(frame.stream_id, b"yes")

    go_on = asyncio.Event()
    play(script, case)


def test_waiting_calls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_connection, "WAITING_CALLS_MAX", 1)

    async def script(peer: ByHand) -> None:
        peer.settings(max_concurrent_streams=0)
        await peer.until_over()

    async def case(channel: Channel) -> None:
        echo = channel.unary_unary(PATH)
        waiting = asyncio.create_task(told(echo(b"", timeout=0.3)))
        code = None
        while code is not Code.RESOURCE_EXHAUSTED:
            code, _ = await told(echo(b"", timeout=0.01))
        assert (await waiting)[0] in (Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED)

    play(script, case)


@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream"])
def test_a_status_that_comes_before_the_request_has_gone_ends_the_call(kind: str) -> None:
    """The flow-control window for the rest of the request never comes."""

    async def script(peer: ByHand) -> None:
        peer.settings()
        while sum(len(frame.payload) for frame in peer.passed) < frames.WINDOW_DEFAULT:
            peer.passed.append(await peer.until(frames.DATA))
        peer.head(1, ANSWER + block(("grpc-status", "9")), END_HEADERS | END_STREAM)
        assert (await peer.until(frames.RST_STREAM)).stream_id == 1
        await peer.until_over()

    async def case(channel: Channel) -> None:
        call = getattr(channel, kind)(PATH)(LARGE)
        code, _ = await told(call if kind == "unary_unary" else anext(call))
        assert code is Code.FAILED_PRECONDITION

    play(script, case)


def test_a_large_request_that_is_given_up_leaves_no_stream() -> None:
    resets: list[int] = []

    async def script(peer: ByHand) -> None:
        peer.settings()
        resets.append((await peer.until(frames.RST_STREAM)).stream_id)
        await peer.until_over()

    async def case(channel: Channel) -> None:
        code, _ = await told(channel.unary_unary(PATH)(LARGE, timeout=0.05))
        assert code is Code.DEADLINE_EXCEEDED
        await until(lambda: resets == [1], "the server was told")

    play(script, case)


def test_a_window_that_shrinks_below_zero_is_waited_for() -> None:
    body = bytes(range(256)) * 800

    async def script(peer: ByHand) -> None:
        peer.settings()
        got = b""
        while len(got) < frames.WINDOW_DEFAULT:
            got += (await peer.until(frames.DATA)).payload
        peer.settings(initial_window_size=0)  # what was sent is over it now
        await peer.until(frames.SETTINGS, flags=frames.ACK)
        peer.send(frames.window_update(0, 1 << 20))
        peer.send(frames.window_update(1, frames.WINDOW_DEFAULT))  # zero now, and no more
        peer.send(frames.frame(frames.PING, 0, 0, b"12345678"))
        await peer.until(frames.PING, flags=frames.ACK)
        assert not [frame for frame in peer.passed if frame.kind == frames.DATA]
        while len(got) < len(body) + frames.MESSAGE_HEAD_BYTES:
            peer.send(frames.window_update(1, 7_777))
            got += (await peer.until(frames.DATA)).payload
        peer.answer(1, b"whole" if got[frames.MESSAGE_HEAD_BYTES :] == body else b"torn")
        await peer.until_over()

    async def case(channel: Channel) -> None:
        assert await channel.unary_unary(PATH)(body) == b"whole"

    play(script, case)


def test_a_connection_whose_stream_ids_are_used_up_is_replaced(
    monkeypatch: pytest.MonkeyPatch, closings: list[str]
) -> None:
    monkeypatch.setattr(client_connection, "STREAM_ID_MAX", 4)
    ids: list[int] = []

    async def script(peer: ByHand) -> None:
        peer.settings()
        while (frame := await peer.next()) is not None:
            if frame.kind == frames.DATA:
                ids.append(frame.stream_id)
                peer.answer(frame.stream_id, b"")

    async def case(channel: Channel) -> None:
        for _ in range(4):
            await channel.unary_unary(PATH)(b"")
        assert ids == [1, 3, 1, 3]
        await until(lambda: not channel.connections, "both are closed")
        assert closings == ["its last call has ended"] * 2

    play(script, case)
