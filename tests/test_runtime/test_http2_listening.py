"""Messages that are passed to a callback as soon as they arrive, without a task or another turn of
the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from kvorum.runtime.errors import WireError
from kvorum.runtime.http2.rpc import RpcServer, open_channel
from kvorum.runtime.http2.stream import STREAM_WINDOW
from tests.polling import until
from tests.test_runtime.http2_peers import free_port, method, pair, run

LARGE = b"m" * (STREAM_WINDOW // 2)


class Listener:
    """A handler that listens. told: the messages that it got. failures: how its listening ended."""

    def __init__(self, on_message: Callable[[Any, Any], None]) -> None:
        self.told: list[Any] = []
        self.failures: list[BaseException] = []
        self.contexts: list[Any] = []
        self._on_message = on_message

    async def __call__(self, _: Any, context: Any) -> None:
        self.contexts.append(context)

        def on_message(message: Any) -> None:
            self.told.append(message)
            self._on_message(context, message)

        try:
            await context.listen(on_message)
        except BaseException as error:
            self.failures.append(error)
            raise


@asynccontextmanager
async def listening(
    on_message: Callable[[Any, Any], None], parse: Callable[[bytes], Any] = bytes
) -> AsyncIterator[tuple[Any, Listener]]:
    """(call, handler) of a conversation whose server listens."""
    handler = Listener(on_message)
    server = RpcServer()
    made = grpc.stream_stream_rpc_method_handler(handler, request_deserializer=parse)
    server.add_registered_method_handlers("test.Listening", {"talk": made})
    address = f"127.0.0.1:{free_port()}"
    await server.listen(address)
    channel = open_channel(address)
    try:
        yield channel.stream_stream("/test.Listening/talk")(), handler
    finally:
        await channel.close()
        await server.stop(0)


def echo(context: Any, message: Any) -> None:
    assert context.try_write(message)


async def failure_of(call: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


def test_both_ends_talk_from_within_their_callbacks() -> None:
    async def case() -> None:
        async with listening(echo) as (call, handler):
            heard: list[bytes] = []

            def on_message(message: bytes) -> None:
                heard.append(message)
                # The callback runs outside of any task, and sends the next request itself.
                assert asyncio.current_task() is None
                if len(heard) < 50:
                    assert call.try_write(b"%d" % len(heard))
                else:
                    call.cancel()

            await call.write(b"0")
            assert await failure_of(call.listen(on_message)) == (
                grpc.StatusCode.CANCELLED,
                "cancelled by the caller",
            )
            assert heard == handler.told == [b"%d" % i for i in range(50)]

    run(case())


def test_what_came_before_is_heard_first_and_in_order() -> None:
    async def case() -> None:
        async with pair() as (channel, _):
            count = channel.unary_stream(method("count"))(b"100")
            assert await anext(count) == b"0"
            await count.aclose()
            talk = channel.stream_stream(method("chat"))()
            for i in range(20):
                await talk.write(b"%d" % i)
            await until(lambda: len(talk._stream._messages) == 20, "all have come")
            heard: list[bytes] = []
            listener = asyncio.create_task(talk.listen(heard.append))
            await until(lambda: len(heard) == 20, "all are heard")
            await talk.write(b"20")
            await until(lambda: len(heard) == 21, "the next one too")
            await talk.done_writing()
            await listener
            assert heard == [b"%d" % i for i in range(21)]

    run(case())


def test_the_status_is_heard_at_the_end() -> None:
    async def case() -> None:
        async with pair() as (channel, _):
            talk = channel.stream_stream(method("brief"))()
            heard: list[bytes] = []
            await talk.write(b"one")
            assert await failure_of(talk.listen(heard.append)) == (
                grpc.StatusCode.OUT_OF_RANGE,
                "enough",
            )
            assert heard == [b"one"]

    run(case())


def test_an_error_of_the_listener_is_raised_where_it_listens_and_it_hears_no_more() -> None:
    async def case() -> None:
        async with pair() as (channel, _):
            talk = channel.stream_stream(method("chat"))()
            heard: list[bytes] = []

            def on_message(message: bytes) -> None:
                heard.append(message)
                raise ValueError("on purpose")

            for message in (b"a", b"b", b"c"):
                await talk.write(message)
            with pytest.raises(ValueError, match="on purpose"):
                await talk.listen(on_message)
            assert heard == [b"a"]
            # The other messages can still be read.
            assert [await talk.read(), await talk.read()] == [b"b", b"c"]
            talk.cancel()

    run(case())


def test_a_lost_connection_ends_the_listening() -> None:
    async def case() -> None:
        async with pair() as (channel, serving):
            talk = channel.stream_stream(method("deaf"))()
            await talk.write(b"x")
            listener = asyncio.create_task(talk.listen(lambda _: None))
            await until(lambda: serving.service.begun == 1, "the call is there")
            for connection in list(channel.connections):
                connection.abort("pulled")
            code, _ = await failure_of(listener)
            assert code is grpc.StatusCode.UNAVAILABLE

    run(case())


def test_what_is_heard_makes_room_for_more() -> None:
    async def case() -> None:
        async with listening(lambda *_: None) as (call, handler):
            for _ in range(10):
                await call.write(LARGE)
            await until(lambda: len(handler.told) == 10, "all of it came")
            call.cancel()

    run(case())


def test_a_message_that_does_not_fit_is_not_sent_in_part() -> None:
    async def case() -> None:
        async with pair() as (channel, serving):
            talk = channel.stream_stream(method("deaf"))()
            assert not talk.try_write(b"x"), "the call has not begun"
            await talk.write(b"x")
            await until(lambda: serving.service.begun == 1, "the call is there")
            (connection,) = channel.connections
            while talk._stream.send_window > 100_005:
                talk.try_write(b"m" * 100_000)
                await until(lambda: not connection.is_congested, "the socket has room")
            room = talk._stream.room()
            assert 5 < room == talk._stream.send_window
            assert not talk.try_write(b"m" * room), "five bytes of head do not fit any more"
            assert talk.try_write(b"m" * (room - 5))
            talk.cancel()
            with pytest.raises(grpc.aio.AioRpcError):
                talk.try_write(b"x")

    run(case())


def test_a_request_that_the_listening_handler_refuses_ends_in_words() -> None:
    def parse(message: bytes) -> bytes:
        if message == b"garbage":
            raise WireError("no such message")
        return message

    async def case() -> None:
        async with listening(echo, parse) as (call, handler):
            await call.write(b"fine")
            assert await call.read() == b"fine"
            await call.write(b"garbage")
            assert await failure_of(call.read()) == (
                grpc.StatusCode.INVALID_ARGUMENT,
                "test.Listening/talk: no such message",
            )
            assert handler.told == [b"fine"]

    run(case())


def test_who_listens_can_be_interrupted() -> None:
    async def case() -> None:
        async with listening(echo) as (call, handler):
            await call.write(b"fine")
            assert await call.read() == b"fine"
            handler.contexts[0].interrupt(WireError("that is all"))
            code, details = await failure_of(call.read())
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert details.endswith("that is all")
            assert [type(error) for error in handler.failures] == [WireError]

    run(case())


@pytest.mark.parametrize("how", ["interrupted", "cancelled"])
def test_who_listens_no_more_hears_no_more_even_before_it_has_noticed(how: str) -> None:
    async def case() -> None:
        async with pair() as (channel, _):
            talk = channel.stream_stream(method("chat"))()
            heard: list[bytes] = []
            await talk.write(b"a")
            listener = asyncio.create_task(talk.listen(heard.append))
            await until(lambda: heard, "it listens")
            stream = talk._stream
            if how == "interrupted":
                stream.interrupt(ValueError("enough"))
            else:
                listener.cancel()
            message = (1).to_bytes(5, "big") + b"b"
            stream.on_data(message, len(message))
            assert heard == [b"a"]
            with pytest.raises((ValueError, asyncio.CancelledError)):
                await listener
            assert await talk.read() == b"b"
            talk.cancel()

    run(case())


def test_a_caller_that_hangs_up_ends_the_listening_handler() -> None:
    async def case() -> None:
        async with listening(echo) as (call, handler):
            await call.write(b"fine")
            assert await call.read() == b"fine"
            call.cancel()
            await until(lambda: handler.failures, "the handler heard")
            assert [type(error) for error in handler.failures] == [asyncio.CancelledError]
            with pytest.raises(grpc.aio.UsageError):
                handler.contexts[0].try_write(b"late")

    run(case())
