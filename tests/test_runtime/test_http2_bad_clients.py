"""A server and callers that break the rules; all other callers are served as before."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio
import pytest

from kvorum.runtime.http2 import connection as connection_module
from kvorum.runtime.http2 import frames, headers, server_connection
from kvorum.runtime.http2.connection import STREAMS_MAX
from kvorum.runtime.http2.stream import MESSAGE_BYTES_MAX, STREAM_WINDOW
from tests.polling import until
from tests.test_runtime.http2_by_hand import (
    END_HEADERS,
    END_STREAM,
    REQUEST,
    ByHand,
    client_by_hand,
)
from tests.test_runtime.http2_peers import OurServer, channel_of, method, run

Code = grpc.StatusCode
HELLO = b"\0\0\0\0\5hello"


def play(case: Callable[[ByHand, OurServer], Awaitable[None]]) -> None:
    """Run `case`; the server must serve others before, meanwhile and after, and keep nothing."""

    async def whole() -> None:
        server = OurServer()
        await server.start()
        other = channel_of("ours", server.address)
        echo, talk = other.unary_unary(method("echo")), other.stream_stream(method("chat"))()
        await talk.write(b"a")
        async with client_by_hand(server.address) as client:
            await case(client, server)
        assert await talk.read() == b"a"
        assert await echo(b"served", timeout=10) == b"served"
        talk.cancel()
        await until(server.is_empty, "the server has no calls")
        await until(lambda: server.service.ended == server.service.begun, "no handler runs")
        await other.close()
        await server.stop()

    run(whole())


async def closed_for(client: ByHand, code: int, words: str) -> None:
    """The server says goodbye with this error and closes."""
    farewell = await client.until(frames.GOAWAY)
    assert int.from_bytes(farewell.payload[4:8], "big") == code
    assert words in farewell.payload[8:].decode()
    assert await client.until_over() == []


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    "line", [b"hello, is this Kafka?\r\n", b"\x00" * 100, b"GET / HTTP/1.0\r\n"]
)
def test_a_garbage_line_is_one_warning_with_the_peer(
    line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def case(_: ByHand, server: OurServer) -> None:
        host, _, port = server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(line)
        await reader.read(-1)
        name = ":".join(map(str, writer.get_extra_info("sockname")))
        writer.close()
        (said,) = warnings(caplog)
        assert said == (
            f"connection closed: peer={name} reason=it does not speak gRPC "
            f"(began with {line[:24]!r})"
        )

    play(case)


def test_a_connection_that_says_nothing_is_closed_with_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_connection, "PREFACE_TIMEOUT_MS", 30)

    async def case(_: ByHand, server: OurServer) -> None:
        host, _, port = server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        await reader.read(-1)
        writer.close()
        (said,) = warnings(caplog)
        assert "began with b''" in said

    play(case)


def test_a_broken_rule_is_one_warning_with_the_peer(caplog: pytest.LogCaptureFixture) -> None:
    async def case(client: ByHand, _: OurServer) -> None:
        client.send(frames.frame(frames.PING, 0, 0, b"short"))
        await closed_for(client, frames.FRAME_SIZE_ERROR, "PING")
        (said,) = warnings(caplog)
        assert "127.0.0.1:" in said and "broke HTTP/2: a PING of broken length" in said

    play(case)


HEADERS_BLOCK = headers.encode(((":path", method("echo")), *REQUEST))


@pytest.mark.parametrize(
    ("sent", "code", "words"),
    [
        (frames.frame(frames.SETTINGS, 0, 0, b"12345"), 6, "SETTINGS"),
        (frames.frame(frames.SETTINGS, 0, 0, b"\0\0\0\0\0\0" * 101), 6, "SETTINGS"),
        (frames.settings({frames.SETTINGS_INITIAL_WINDOW_SIZE: 1 << 31}), 3, "window"),
        (frames.settings({frames.SETTINGS_MAX_FRAME_SIZE: 1}), 1, "frames of 1 bytes"),
        (frames.frame(frames.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"), 3, "overflows"),
        (frames.frame(frames.WINDOW_UPDATE, 0, 0, b"\0\0\0\0"), 1, "nothing"),
        (frames.frame(frames.WINDOW_UPDATE, 0, 0, b"\0"), 6, "WINDOW_UPDATE"),
        (frames.frame(frames.GOAWAY, 0, 0, b"\0"), 6, "GOAWAY"),
        (frames.frame(frames.PUSH_PROMISE, 0, 1), 1, "PUSH_PROMISE"),
        (frames.frame(frames.DATA, 0, 0, b"hello"), 1, "stream 0"),
        (frames.frame(frames.CONTINUATION, END_HEADERS, 1), 1, "CONTINUATION of nothing"),
        (frames.frame(frames.HEADERS, END_HEADERS, 2, HEADERS_BLOCK), 1, "not a client's"),
        (frames.frame(frames.HEADERS, END_HEADERS, 0, HEADERS_BLOCK), 1, "not a client's"),
        (frames.frame(frames.HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff"), 9, "unreadable"),
        (
            frames.frame(frames.HEADERS, 0, 1) + frames.frame(frames.PING, 0, 0, b"8" * 8),
            1,
            "inter",
        ),
        (
            frames.frame(frames.HEADERS, 0, 1) + frames.frame(frames.CONTINUATION, 0, 1),
            11,
            "no byt",
        ),
        (
            frames.frame(frames.HEADERS, 0, 1)
            + frames.frame(frames.CONTINUATION, 0, 1, b"\0" * 1000) * 17,
            11,
            "too large",
        ),
        (
            frames.frame(frames.HEADERS, END_HEADERS | frames.PADDED, 1, b"\x09hi"),
            1,
            "more padding",
        ),
        (frames.frame(frames.HEADERS, END_HEADERS, 1, HEADERS_BLOCK) * 2, 1, "middle of a stream"),
        (b"\xff" * 9, 6, "frame of"),
    ],
)
def test_a_broken_rule_closes_the_connection(sent: bytes, code: int, words: str) -> None:
    async def case(client: ByHand, _: OurServer) -> None:
        if sent.count(HEADERS_BLOCK) == 2:
            client.call(1, method("deaf"))
            client.call(1, method("deaf"))
        else:
            client.send(sent)
        await closed_for(client, code, words)

    play(case)


def test_frames_before_the_settings_close_the_connection() -> None:
    async def case(_: ByHand, server: OurServer) -> None:
        host, _, port = server.address.rpartition(":")
        early = ByHand(*await asyncio.open_connection(host, int(port)))
        early.send(frames.PREFACE)
        early.call(1, method("echo"))
        await closed_for(early, frames.PROTOCOL_ERROR, "does not begin with SETTINGS")
        early.writer.close()

    play(case)


@pytest.mark.parametrize(
    ("payload", "more", "code", "words"),
    [
        (b"", (), Code.INTERNAL, "without a whole request"),
        (b"\0\0\0\0\5hel", (), Code.INTERNAL, "without a whole request"),
        (b"\1\0\0\0\5hello", (), Code.UNIMPLEMENTED, "compressed"),
        (b"\0\xff\0\0\0hello", (), Code.RESOURCE_EXHAUSTED, str(MESSAGE_BYTES_MAX)),
        (HELLO, (("grpc-timeout", "soon"),), Code.INVALID_ARGUMENT, "'soon' is no time"),
        (HELLO, (("grpc-timeout", "\xb2S"),), Code.INVALID_ARGUMENT, "is no time"),
        (HELLO, (("content-type", "text/html"),), Code.UNIMPLEMENTED, "no gRPC call"),
        (HELLO, (("content-type", "application/grpc-web"),), Code.UNIMPLEMENTED, "no gRPC call"),
        (HELLO, ((":method", "GET"),), Code.UNIMPLEMENTED, "not served"),
        (HELLO, ((":path", "/ü"),), Code.UNIMPLEMENTED, "/ü"),
        (HELLO, (("grpc-timeout", "99999999H"),), Code.OK, ""),
    ],
)
def test_a_broken_call_has_its_own_status_and_the_connection_goes_on(
    payload: bytes, more: tuple[tuple[str, str], ...], code: grpc.StatusCode, words: str
) -> None:
    async def case(client: ByHand, _: OurServer) -> None:
        client.call(1, method("echo"), *more)
        client.data(1, payload, END_STREAM)
        number, said = await client.status()
        assert (number, words in said) == (code.value[0], True)
        client.call(3, method("echo"))
        client.data(3, HELLO, END_STREAM)
        assert await client.status() == (0, "")

    play(case)


def test_headers_alone_are_no_call() -> None:
    async def case(client: ByHand, _: OurServer) -> None:
        client.call(1, method("echo"), flags=END_STREAM)
        assert await client.status() == (Code.INTERNAL.value[0], "a call without a whole request")

    play(case)


def test_a_conversation_that_ends_inside_a_message_is_an_error() -> None:
    async def case(client: ByHand, _: OurServer) -> None:
        client.call(1, method("chat"))
        client.data(1, HELLO + HELLO[:7], END_STREAM)
        assert (await client.status())[0] == Code.INTERNAL.value[0]

    play(case)


def test_a_status_after_answers_is_plain_trailers() -> None:
    async def case(client: ByHand, _: OurServer) -> None:
        client.call(1, method("chat"))
        client.data(1, HELLO)
        assert (await client.until(frames.DATA)).payload == HELLO
        client.data(1, b"\1\0\0\0\0")
        last = client.fields(await client.until(frames.HEADERS))
        assert set(last) == {"grpc-status", "grpc-message"}

    play(case)


def test_a_caller_that_never_ends_its_request_is_answered_and_forgotten() -> None:
    async def case(client: ByHand, server: OurServer) -> None:
        for stream_id in range(1, 200, 2):
            client.call(stream_id, method("echo"))
            client.data(stream_id, HELLO)
            assert (await client.status())[0] == 0
            assert (await client.until(frames.RST_STREAM)).payload == b"\0\0\0\0"
        assert sum(len(c.streams) for c in server.server.connections) == 1  # of the other

    play(case)


def test_calls_over_the_limit_are_refused_and_the_rest_served() -> None:
    async def case(client: ByHand, server: OurServer) -> None:
        for number in range(STREAMS_MAX + 1):
            client.call(2 * number + 1, method("deaf"))
        refused = await client.until(frames.RST_STREAM)
        assert refused.stream_id == 2 * STREAMS_MAX + 1
        assert int.from_bytes(refused.payload, "big") == frames.REFUSED_STREAM
        await until(lambda: server.service.begun == STREAMS_MAX + 1, "all others run")

    play(case)


def test_streams_opened_and_reset_at_once_pile_nothing_up() -> None:
    async def case(client: ByHand, server: OurServer) -> None:
        for number in range(5 * STREAMS_MAX):
            client.call(2 * number + 1, method("hang"), flags=END_STREAM)
            client.send(frames.rst_stream(2 * number + 1, frames.CANCEL))
        client.send(frames.frame(frames.PING, 0, 0, b"are you "))
        most = 0
        pong = asyncio.create_task(client.until(frames.PING, flags=frames.ACK))
        while not pong.done():
            most = max(most, len(server.server._calls))
            await asyncio.sleep(0)
        assert most <= STREAMS_MAX + 1
        await pong

    play(case)


def test_a_caller_that_says_goodbye_still_hears_its_answers() -> None:
    async def case(client: ByHand, _: OurServer) -> None:
        client.call(1, method("chat"))
        client.send(frames.goaway(0, frames.NO_ERROR))
        client.data(1, HELLO, END_STREAM)
        assert (await client.until(frames.DATA)).payload == HELLO
        assert (await client.status())[0] == 0

    play(case)


def test_a_caller_that_hangs_up_ends_its_handlers() -> None:
    async def case(client: ByHand, server: OurServer) -> None:
        for stream_id in (1, 3, 5):
            client.call(stream_id, method("chat" if stream_id == 1 else "deaf"))
        await until(lambda: server.service.begun == 4, "they run")
        client.writer.close()
        await until(lambda: server.service.ended == 3, "they ended")

    play(case)


@pytest.mark.parametrize("size", [0, 1, 1000, 60_000])
def test_a_stream_that_nobody_reads_holds_no_more_than_its_window(size: int) -> None:
    message = frames.message_head(size) + b"x" * size

    async def case(client: ByHand, _: OurServer) -> None:
        client.call(1, method("deaf"))
        many = message * (60_000 // len(message) or 1)
        sent = 0
        while sent <= STREAM_WINDOW:
            client.data(1, many)
            sent += len(many)
        await closed_for(client, frames.FLOW_CONTROL_ERROR, "that nobody reads")
        assert not [f for f in client.passed if f.kind == frames.WINDOW_UPDATE and f.stream_id]

    play(case)


def test_padding_is_given_back_to_the_window() -> None:
    async def case(client: ByHand, _: OurServer) -> None:
        client.call(1, method("deaf"))
        padded = frames.frame(frames.DATA, frames.PADDED, 1, b"\xff" + b"\0" * 255)
        client.send(padded * (STREAM_WINDOW // 256 * 3 // 4))
        while (await client.until(frames.WINDOW_UPDATE)).stream_id != 1:
            pass

    play(case)


def test_a_peer_that_asks_and_reads_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "UNSENT_BYTES_MAX", 100_000)

    async def case(client: ByHand, server: OurServer) -> None:
        client.writer.transport.pause_reading()
        pings = frames.frame(frames.PING, 0, 0, b"answer!!") * 1000
        before = len(server.server.connections)
        while len(server.server.connections) == before:
            client.send(pings)
            await asyncio.sleep(0)

    play(case)


def test_an_answer_waits_for_the_callers_window() -> None:
    async def case(client: ByHand, server: OurServer) -> None:
        client.settings(initial_window_size=3)
        client.call(1, method("flood"))
        client.data(1, HELLO, END_STREAM)
        got = b""
        while len(got) < 100:
            got += (await client.until(frames.DATA)).payload
            client.send(frames.window_update(1, 3))
        assert got[:100] == (HELLO * 10)[:100]
        assert server.service.written <= 10
        client.send(frames.rst_stream(1, frames.CANCEL))
        await until(lambda: server.service.ended == 1, "the handler ended")

    play(case)


def test_a_window_that_overflows_ends_its_stream_only() -> None:
    async def case(client: ByHand, _: OurServer) -> None:
        client.call(1, method("deaf"))
        client.send(frames.window_update(1, frames.WINDOW_MAX))
        reset = await client.until(frames.RST_STREAM)
        assert int.from_bytes(reset.payload, "big") == frames.FLOW_CONTROL_ERROR
        client.call(3, method("echo"))
        client.data(3, HELLO, END_STREAM)
        assert (await client.status())[0] == 0

    play(case)


def test_a_message_in_pieces_of_any_size_is_one_message() -> None:
    async def case(client: ByHand, _: OurServer) -> None:
        client.call(1, method("chat"))
        for i in range(len(HELLO)):
            client.data(1, HELLO[i : i + 1])
            client.data(1, b"")
        assert (await client.until(frames.DATA)).payload == HELLO
        client.data(1, HELLO * 3 + HELLO[:3])
        for _ in range(3):
            assert (await client.until(frames.DATA)).payload == HELLO
        client.data(1, HELLO[3:], END_STREAM)
        assert (await client.until(frames.DATA)).payload == HELLO
        assert (await client.status())[0] == 0

    play(case)


def test_a_handler_that_ignores_its_end_can_send_nothing_more() -> None:
    async def stubborn(_: bytes, context: object) -> bytes:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return b"too late"
        return b""

    async def case(client: ByHand, server: OurServer) -> None:
        handler = grpc.unary_unary_rpc_method_handler(stubborn)
        server.server.add_handlers("test.Peer", {"stubborn": handler})
        client.call(1, method("stubborn"), ("grpc-timeout", "10m"))
        client.data(1, HELLO, END_STREAM)
        assert (await client.status())[0] == Code.DEADLINE_EXCEEDED.value[0]
        client.send(frames.frame(frames.PING, 0, 0, b"is there"))
        await until(lambda: len(server.server._calls) == 1, "it ended")
        client.passed.clear()
        await client.until(frames.PING, flags=frames.ACK)
        assert not [frame for frame in client.passed if frame.stream_id == 1]

    play(case)


def test_words_of_a_status_are_cut_to_what_a_peer_takes() -> None:
    async def wordy(_: bytes, context: grpc.aio.ServicerContext) -> bytes:
        await context.abort(Code.ABORTED, "ü\udc80" * 20_000)
        return b""

    async def case(client: ByHand, server: OurServer) -> None:
        handler = grpc.unary_unary_rpc_method_handler(wordy)
        server.server.add_handlers("test.Peer", {"wordy": handler})
        client.call(1, method("wordy"))
        client.data(1, HELLO, END_STREAM)
        code, words = await client.status()
        assert code == Code.ABORTED.value[0]
        assert words.startswith("ü?ü?") and "\ufffd" not in words
        assert len(headers.encode_message(words)) <= headers.MESSAGE_BYTES_MAX

    play(case)


def test_a_server_that_stops_waits_no_longer_than_its_limit_for_a_stubborn_handler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kvorum.runtime.http2.server.CUT_TIMEOUT_MS", 10)
    release = asyncio.Event()

    async def stubborn(_: bytes, context: object) -> bytes:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return b""

    async def whole() -> None:
        server = OurServer()
        handler = grpc.unary_unary_rpc_method_handler(stubborn)
        server.server.add_handlers("test.Peer", {"stubborn": handler})
        await server.start()
        async with client_by_hand(server.address) as client:
            client.call(1, method("stubborn"))
            client.data(1, HELLO, END_STREAM)
            await until(lambda: server.server._calls, "it runs")
            await server.stop()
            assert warnings(caplog) == ["1 calls go on although they were cancelled"]
            release.set()
            await until(server.is_empty, "it ended")

    run(whole())
