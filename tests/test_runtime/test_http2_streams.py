"""Flow control, keep-alive, back-off: one slow or silent peer does not harm the others."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from kvorum.runtime.http2 import client as client_module
from kvorum.runtime.http2 import frames, keepalive
from kvorum.runtime.http2.connection import FRAME_BYTES_MAX, UNSENT_BYTES_MAX
from kvorum.runtime.http2.keepalive import (
    KEEPALIVE_TIME_MS,
    KEEPALIVE_TIMEOUT_MS,
    STALL_MS,
    KeepAlive,
)
from kvorum.runtime.http2.rpc import open_channel
from kvorum.runtime.http2.stream import STREAM_WINDOW, Stream
from tests.polling import until
from tests.test_runtime.http2_by_hand import ByHand, client_by_hand, server_by_hand
from tests.test_runtime.http2_peers import OurServer, method, pair, run

MESSAGE = b"m" * 10_000


def streams_of(peers: Any) -> list[Stream]:
    return [stream for peer in peers.connections for stream in peer.streams.values()]


def test_a_slow_reader_slows_the_writer_and_bounds_memory() -> None:
    async def case() -> None:
        async with pair() as (channel, serving):
            flood = channel.unary_stream(method("flood"))(MESSAGE)
            assert await anext(flood) == MESSAGE
            await until(
                lambda: (
                    any(s._writer is not None for s in streams_of(serving.server))
                    and streams_of(serving.server)[0].room() < len(MESSAGE)
                ),
                "the writer waits for the reader",
            )
            (held,) = streams_of(channel)
            most = STREAM_WINDOW // len(MESSAGE) + 2
            assert len(held._messages) <= most
            assert serving.service.written <= most
            # The sender goes on once the receiver reads again.
            for _ in range(3 * most):
                assert await anext(flood) == MESSAGE
            await flood.aclose()

    run(case())


def test_a_handler_that_does_not_read_slows_the_caller_and_others_go_on() -> None:
    async def case() -> None:
        async with pair() as (channel, serving):
            talk = channel.stream_stream(method("deaf"))()
            sent = 0

            async def write() -> None:
                nonlocal sent
                while True:
                    await talk.write(MESSAGE)
                    sent += len(MESSAGE)

            writer = asyncio.create_task(write())
            await until(lambda: any(s._writer for s in streams_of(channel)), "it waits")
            assert sent <= STREAM_WINDOW
            # On the same connection, meanwhile:
            assert len(channel.connections) == 1
            echo = channel.unary_unary(method("echo"))
            answers = await asyncio.gather(*(echo(MESSAGE * i, timeout=10) for i in range(50)))
            assert answers == [MESSAGE * i for i in range(50)]
            talk.cancel()
            with pytest.raises(grpc.aio.AioRpcError):
                await writer
            await until(lambda: serving.service.ended == 1, "the handler ended")

    run(case())


@pytest.mark.parametrize("name", ["flood", "echo"])
def test_a_socket_that_takes_no_more_bounds_what_waits_for_it(name: str) -> None:
    """The bound holds however large a window the peer opens."""
    calls = 60

    async def case() -> None:
        server = OurServer()
        await server.start()
        async with client_by_hand(server.address) as client:
            client.settings(initial_window_size=frames.WINDOW_MAX, max_frame_size=1 << 24 - 1)
            client.send(frames.window_update(0, frames.WINDOW_MAX - frames.WINDOW_DEFAULT))
            client.writer.transport.pause_reading()
            body = b"b" * 300_000
            for number in range(calls):
                client.call(2 * number + 1, method(name))
                request = frames.message_head(len(body)) + body
                client.data(2 * number + 1, request, frames.END_STREAM)
            await until(
                lambda: (
                    sum(s._writer is not None for s in streams_of(server.server)) > calls // 2
                    and len(streams_of(server.server)) + server.service.ended <= calls
                ),
                "they wait",
            )
            (peer,) = server.server.connections
            assert peer.is_congested
            assert peer._transport is not None
            size = peer._transport.get_write_buffer_size()
            assert size < FRAME_BYTES_MAX + 200_000 < UNSENT_BYTES_MAX
            client.writer.transport.resume_reading()
            heard = set()
            while len(heard) < calls:
                heard.add((await client.until(frames.DATA)).stream_id)
        await until(server.is_empty, "nothing is left")
        await server.stop()

    run(case())


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(keepalive, "monotonic_ms", made)
    monkeypatch.setattr("kvorum.runtime.http2.connection.monotonic_ms", made)
    return made


def keep(clock: Clock, *steps: tuple[str, int]) -> list[str]:
    """The actions of the keep-alive. Steps: "wait" lets time pass, "hear" is a frame from the
    peer."""
    did: list[str] = []

    async def case() -> None:
        alive = KeepAlive(lambda: did.append("ping"), lambda why: did.append(why))
        alive.start()
        for what, delay_ms in steps:
            clock.now_ms += delay_ms
            if what == "hear":
                alive.heard_ms = clock.now_ms
            else:
                assert alive._timer is not None
                alive._timer.cancel()
                alive.on_timer()
        alive.stop()

    run(case())
    return did


def test_who_is_heard_is_not_pinged(clock: Clock) -> None:
    half = KEEPALIVE_TIME_MS // 2
    assert keep(clock, *[("hear", half), ("wait", half)] * 5) == []


def test_silence_is_pinged_and_an_answer_saves_the_connection(clock: Clock) -> None:
    steps = [("wait", KEEPALIVE_TIME_MS), ("hear", 10), ("wait", KEEPALIVE_TIMEOUT_MS - 10)]
    assert keep(clock, *steps) == ["ping"]


def test_silence_after_a_ping_ends_the_connection(clock: Clock) -> None:
    steps = [("wait", KEEPALIVE_TIME_MS), ("wait", KEEPALIVE_TIMEOUT_MS)]
    assert keep(clock, *steps) == ["ping", "nothing came for 2000 ms"]


def test_a_stall_of_ours_is_not_the_peers_silence(clock: Clock) -> None:
    stall = KEEPALIVE_TIMEOUT_MS + STALL_MS + 1
    steps = [("wait", KEEPALIVE_TIME_MS), ("wait", stall), ("wait", KEEPALIVE_TIMEOUT_MS)]
    assert keep(clock, *steps) == ["ping", "ping", f"nothing came for {stall + 2000} ms"]


def test_a_healthy_connection_outlives_a_stall_of_a_minute(clock: Clock) -> None:
    async def case() -> None:
        async with pair() as (channel, serving):
            talk = channel.stream_stream(method("chat"))()
            await talk.write(b"a")
            assert await talk.read() == b"a"
            clock.now_ms += 60_000
            for peer in (*channel.connections, *serving.server.connections):
                timer = peer._keepalive._timer
                assert timer is not None
                timer.cancel()
                peer._keepalive.on_timer()
            await talk.write(b"b")
            assert await talk.read() == b"b"
            assert len(channel.connections) == 1
            talk.cancel()

    run(case())


def test_a_silent_client_is_given_up_by_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepalive, "LOOK_MS", 5)

    async def case() -> None:
        server = OurServer(keepalive.Patience(time_ms=20, timeout_ms=20))
        await server.start()
        async with client_by_hand(server.address) as client:
            client.call(1, method("deaf"))
            assert any(f.kind == frames.PING for f in await client.until_over())
            await until(lambda: server.service.begun == server.service.ended == 1, "it ended")
            assert not server.server.connections
        await server.stop()

    run(case())


def test_calls_in_the_back_off_fail_without_another_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "RECONNECT_BACKOFF_MIN_MS", 100_000)
    monkeypatch.setattr(client_module, "RECONNECT_BACKOFF_MAX_MS", 100_000)
    attempts = 0

    async def script(_: ByHand) -> None:
        nonlocal attempts
        attempts += 1

    async def case() -> None:
        async with server_by_hand(script, preface=False) as address:
            channel = open_channel(address)
            for _ in range(50):
                with pytest.raises(grpc.aio.AioRpcError, match=f"failed to connect to {address}"):
                    await channel.unary_unary(method("echo"))(b"")
            assert attempts == 1
            await channel.close()

    run(case())


def test_calls_that_come_while_it_connects_share_one_connection() -> None:
    async def case() -> None:
        async with pair() as (channel, serving):
            echo = channel.unary_unary(method("echo"))
            await asyncio.gather(*(echo(b"") for _ in range(50)))
            assert len(serving.server.connections) == 1

    run(case())


def test_a_connection_that_comes_while_the_server_stops_is_not_taken() -> None:
    async def case() -> None:
        server = OurServer()
        await server.start()
        async with client_by_hand(server.address) as client:
            client.call(1, method("hang"))
            client.data(1, frames.message_head(0), frames.END_STREAM)
            await until(lambda: server.service.begun, "a call runs")
            stopping = asyncio.create_task(server.stop(0.05))
            await client.until(frames.GOAWAY)
            client.call(3, method("hang"))
            assert (await client.until(frames.RST_STREAM)).stream_id == 3
            code, words = await client.status()
            assert (code, words) == (14, "the server is stopping")
            await stopping
            assert await client.until_over() == []
        await until(server.is_empty, "nothing is left")

    run(case())
