"""Callers that give up, write too much or too soon, or close: no caller hangs, and nothing is left
behind."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import grpc
import grpc.aio
import pytest

from kvorum.runtime.errors import InvariantViolated
from kvorum.runtime.http2 import frames
from kvorum.runtime.http2.rpc import Channel, open_channel
from tests.polling import until
from tests.test_runtime.http2_by_hand import (
    ANSWER,
    LARGE,
    PATH,
    ByHand,
    greeting,
    play,
    receive,
    silent,
    told,
)
from tests.test_runtime.http2_peers import free_port, run

Code = grpc.StatusCode


def test_a_channel_that_closes_while_it_connects_fails_its_calls_and_cancels_none() -> None:
    async def case(channel: Channel) -> None:
        calls = [told(channel.unary_unary(PATH)(b"")), told(channel.stream_stream(PATH)().read())]
        waiting = [asyncio.create_task(call) for call in calls]
        await until(lambda: channel.connections, "it connects")
        await channel.close()
        assert [code for code, _ in await asyncio.gather(*waiting)] == [Code.UNAVAILABLE] * 2
        with pytest.raises(grpc.aio.UsageError):
            await channel.unary_unary(PATH)(b"")

    play(silent, case)


def test_a_channel_that_closes_fails_its_calls_at_once() -> None:
    async def case(channel: Channel) -> None:
        waiting = asyncio.create_task(told(channel.unary_unary(PATH)(b"")))
        await until(lambda: any(c.streams for c in channel.connections), "it has begun")
        await channel.close()
        assert await waiting == (Code.UNAVAILABLE, "the channel was closed")

    play(greeting, case)


@pytest.mark.parametrize("how", ["cancel", "deadline"])
def test_a_conversation_ends_while_it_waits_for_a_connection(how: str) -> None:
    async def case(channel: Channel) -> None:
        talk = channel.stream_stream(PATH)(timeout=0.02 if how == "deadline" else None)
        waiting = [
            asyncio.create_task(told(talk.read())),
            asyncio.create_task(told(talk.write(b""))),
        ]
        await until(lambda: channel.connections, "it connects")
        if how == "cancel":
            talk.cancel()
        code = Code.CANCELLED if how == "cancel" else Code.DEADLINE_EXCEEDED
        assert [got for got, _ in await asyncio.gather(*waiting)] == [code, code]
        assert (await told(talk.write(b"")))[0] is code

    play(silent, case)


@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream"])
def test_a_deadline_counts_while_it_connects(kind: str) -> None:
    async def case(channel: Channel) -> None:
        call = getattr(channel, kind)(PATH)(b"", timeout=0.02)
        code, _ = await told(call if kind == "unary_unary" else anext(call))
        assert code is Code.DEADLINE_EXCEEDED

    play(silent, case)


def test_a_conversation_that_was_cancelled_first_never_begins() -> None:
    async def case(channel: Channel) -> None:
        talk = channel.stream_stream(PATH)()
        talk.cancel()
        assert (await told(talk.read()))[0] is Code.CANCELLED
        assert not channel.connections

    play(silent, case)


def test_cancel_reaches_a_writer_that_waits_for_room() -> None:
    async def case(channel: Channel) -> None:
        talk = channel.stream_stream(PATH)()
        writer = asyncio.create_task(told(talk.write(LARGE)))
        await until(lambda: any(c.send_window == 0 for c in channel.connections), "it waits")
        talk.cancel()
        assert (await writer)[0] is Code.CANCELLED

    play(greeting, case)


def test_a_lost_connection_reaches_reader_and_writer() -> None:
    async def script(peer: ByHand) -> None:
        peer.settings()
        got = 0
        while got < frames.WINDOW_DEFAULT:
            got += len((await peer.until(frames.DATA)).payload)

    async def case(channel: Channel) -> None:
        talk = channel.stream_stream(PATH)()
        both = [told(talk.write(LARGE)), told(talk.read())]
        assert [code for code, _ in await asyncio.gather(*both)] == [Code.UNAVAILABLE] * 2

    play(script, case)


def test_two_writers_or_readers_at_once_are_a_bug_and_told_so() -> None:
    async def case(channel: Channel) -> None:
        talk = channel.stream_stream(PATH)()
        writer = asyncio.create_task(told(talk.write(LARGE)))
        reader = asyncio.create_task(told(talk.read()))
        await until(lambda: any(c.send_window == 0 for c in channel.connections), "it waits")
        with pytest.raises(InvariantViolated, match="two writers"):
            await talk.write(b"")
        with pytest.raises(InvariantViolated, match="two readers"):
            await talk.read()
        talk.cancel()
        await asyncio.gather(writer, reader)

    play(greeting, case)


def test_no_message_follows_one_that_was_given_up_half_way() -> None:
    async def script(peer: ByHand) -> None:
        peer.settings()
        await peer.until(frames.RST_STREAM)
        sent = [frame for frame in peer.passed if frame.kind == frames.DATA]
        assert sum(len(frame.payload) for frame in sent) == frames.WINDOW_DEFAULT
        peer.send(frames.goaway(0, 0))
        await peer.until_over()

    async def case(channel: Channel) -> None:
        talk = channel.stream_stream(PATH)()
        writer = asyncio.create_task(talk.write(LARGE))
        await until(lambda: any(c.send_window == 0 for c in channel.connections), "it waits")
        writer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writer
        assert "given up half-way" in (await told(talk.write(b"")))[1]
        await talk.done_writing()
        assert (await told(talk.read()))[0] is Code.CANCELLED

    play(script, case)


def test_an_address_that_cannot_be_is_unavailable() -> None:
    async def case() -> None:
        for host in ("x" * 70 + ".example", "127.0.0.1:99999999", "127.0.0.1:x"):
            address = host if ":" in host else f"{host}:{free_port()}"
            channel = open_channel(address)
            code, words = await told(channel.unary_unary(PATH)(b"", timeout=10))
            assert code is Code.UNAVAILABLE
            assert f"failed to connect to {address}" in words
            await channel.close()

    run(case())


def test_a_stream_that_is_dropped_half_read_is_reset() -> None:
    async def script(peer: ByHand) -> None:
        await receive(peer)
        peer.head(1, ANSWER)
        peer.data(1, b"\0\0\0\0\2hi" * 10)
        await peer.until(frames.RST_STREAM)
        await peer.until_over()

    async def case(channel: Channel) -> None:
        async with aclosing(channel.unary_stream(PATH)(b"")) as answers:
            async for answer in answers:
                assert answer == b"hi"
                break

    play(script, case)


def test_a_message_too_large_is_refused_before_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvorum.runtime.http2.stream.MESSAGE_BYTES_MAX", 100_000)

    async def case(channel: Channel) -> None:
        code, words = await told(channel.unary_unary(PATH)(LARGE))
        assert code is Code.RESOURCE_EXHAUSTED
        assert "300000 bytes is over 100000" in words

    play(greeting, case)
