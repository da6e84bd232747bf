"""Calls between runtime.http2 and itself, and grpcio at either end: they behave the same."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.polling import until
from tests.test_runtime.http2_peers import WORDS, method, pair, run

PAIRS = pytest.mark.parametrize(
    ("client", "server"), [("ours", "ours"), ("grpcio", "ours"), ("ours", "grpcio")]
)
Code = grpc.StatusCode
LARGE = bytes(range(256)) * (20 * 4096)


async def failure(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code(), failed.value.details()


@PAIRS
@pytest.mark.parametrize("body", [b"", b"x", b"y" * 300_000, LARGE], ids=["0", "1", "300k", "20M"])
def test_a_unary_call_is_answered(client: str, server: str, body: bytes) -> None:
    async def case() -> None:
        async with pair(client, server) as (channel, _):
            assert await channel.unary_unary(method("echo"))(body) == body

    run(case())


@PAIRS
def test_five_hundred_calls_at_once_are_answered_each_its_own(client: str, server: str) -> None:
    async def case() -> None:
        async with pair(client, server) as (channel, _):
            echo = channel.unary_unary(method("echo"))
            bodies = [b"%d" % i * (i % 90 * 20) for i in range(500)]
            answers = await asyncio.gather(*(echo(body, timeout=20) for body in bodies))
            assert answers == bodies

    run(case())


@PAIRS
def test_a_refusal_brings_its_code_and_words(client: str, server: str) -> None:
    async def case() -> None:
        async with pair(client, server) as (channel, _):
            told = await failure(channel.unary_unary(method("refuse"))(b""))
            assert told == (Code.FAILED_PRECONDITION, WORDS)

    run(case())


@PAIRS
def test_a_handler_that_crashes_is_unknown_to_the_caller(client: str, server: str) -> None:
    async def case() -> None:
        async with pair(client, server) as (channel, _):
            code, _ = await failure(channel.unary_unary(method("crash"))(b""))
            assert code is Code.UNKNOWN

    run(case())


@PAIRS
@pytest.mark.parametrize("kind", ["unary_unary", "stream_stream"])
def test_a_method_that_is_not_there_is_unimplemented(client: str, server: str, kind: str) -> None:
    async def case() -> None:
        async with pair(client, server) as (channel, _):
            call = getattr(channel, kind)(method("nothing"))
            asked = call(b"") if kind == "unary_unary" else call().read()
            assert (await failure(asked))[0] is Code.UNIMPLEMENTED

    run(case())


@PAIRS
def test_a_stream_of_many_small_answers_keeps_their_order(client: str, server: str) -> None:
    async def case() -> None:
        async with pair(client, server) as (channel, _):
            answers = [int(m) async for m in channel.unary_stream(method("count"))(b"3000")]
            assert answers == list(range(3000))

    run(case())


@PAIRS
def test_a_stream_of_no_answers_ends(client: str, server: str) -> None:
    async def case() -> None:
        async with pair(client, server) as (channel, _):
            assert [m async for m in channel.unary_stream(method("count"))(b"0")] == []

    run(case())


@PAIRS
def test_answers_before_an_error_are_read_before_it(client: str, server: str) -> None:
    async def case() -> None:
        async with pair(client, server) as (channel, _):
            answers = []

            async def read() -> None:
                async for message in channel.unary_stream(method("count"))("5 zu spät".encode()):
                    answers.append(message)

            assert await failure(read()) == (Code.ABORTED, "zu spät")
            assert len(answers) == 5

    run(case())


@PAIRS
@pytest.mark.parametrize("sizes", [[0, 1, 0, 7], [20] * 500, [2_000_000, 0, 3_000_000]])
def test_a_conversation_goes_both_ways(client: str, server: str, sizes: list[int]) -> None:
    async def case() -> None:
        async with pair(client, server) as (channel, _):
            talk = channel.stream_stream(method("chat"))()
            for number, size in enumerate(sizes):
                await talk.write(bytes([number % 256]) * size)
                assert await talk.read() == bytes([number % 256]) * size
            await talk.done_writing()
            assert await talk.read() is grpc.aio.EOF
            assert await talk.read() is grpc.aio.EOF

    run(case())


@PAIRS
def test_a_writer_and_a_reader_at_once_on_a_new_stream(client: str, server: str) -> None:
    async def case() -> None:
        async with pair(client, server) as (channel, serving):
            talk = channel.stream_stream(method("chat"))()

            async def write() -> None:
                for i in range(300):
                    await talk.write(b"%d" % i * 3000)
                await talk.done_writing()

            async def read() -> list[bytes]:
                messages = []
                while (message := await talk.read()) is not grpc.aio.EOF:
                    messages.append(message)
                return messages

            _, messages = await asyncio.gather(write(), read())
            assert messages == [b"%d" % i * 3000 for i in range(300)]
            assert serving.service.begun == 1

    run(case())


@PAIRS
def test_a_server_that_has_heard_enough_ends_a_conversation(client: str, server: str) -> None:
    async def case() -> None:
        async with pair(client, server) as (channel, _):
            talk = channel.stream_stream(method("brief"))()
            await talk.write(b"one")
            assert await talk.read() == b"one"
            assert await failure(talk.read()) == (Code.OUT_OF_RANGE, "enough")
            with pytest.raises((grpc.aio.AioRpcError, asyncio.InvalidStateError)):
                await talk.write(b"two")

    run(case())


@PAIRS
@pytest.mark.parametrize("name", ["hang", "chat"])
def test_a_deadline_ends_the_call_at_both_ends(client: str, server: str, name: str) -> None:
    async def case() -> None:
        async with pair(client, server) as (channel, serving):
            if name == "hang":
                call = channel.unary_unary(method(name))(b"", timeout=0.3)
            else:
                call = channel.stream_stream(method(name))(timeout=0.3).read()
            assert (await failure(call))[0] is Code.DEADLINE_EXCEEDED
            await until(lambda: serving.service.ended == serving.service.begun, "it ended")

    run(case())


@PAIRS
def test_a_caller_that_is_cancelled_ends_the_handler(client: str, server: str) -> None:
    async def case() -> None:
        async with pair(client, server) as (channel, serving):

            async def ask() -> bytes:
                return await channel.unary_unary(method("hang"))(b"")

            asked = asyncio.create_task(ask())
            await until(lambda: serving.service.begun == 1, "the handler runs")
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            await until(lambda: serving.service.ended == 1, "the handler ended")

    run(case())


@PAIRS
def test_a_cancelled_conversation_ends_its_handler_and_its_reader(client: str, server: str) -> None:
    async def case() -> None:
        async with pair(client, server) as (channel, serving):
            talk = channel.stream_stream(method("chat"))()
            await talk.write(b"")
            assert await talk.read() == b""
            begun = asyncio.Event()

            async def read() -> bytes:
                begun.set()
                return await talk.read()

            reader = asyncio.create_task(read())
            await begun.wait()
            talk.cancel()
            with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
                await reader
            await until(lambda: serving.service.ended == 1, "the handler ended")

    run(case())


@PAIRS
def test_who_leaves_an_endless_stream_ends_its_handler(client: str, server: str) -> None:
    async def case() -> None:
        async with pair(client, server) as (channel, serving):
            flood = channel.unary_stream(method("flood"))(b"x" * 1000)
            async for message in flood:
                assert message == b"x" * 1000
                break
            await (flood.aclose() if client == "ours" else asyncio.sleep(0))
            if client == "grpcio":
                flood.cancel()
            await until(lambda: serving.service.ended == 1, "the handler ended")

    run(case())


@PAIRS
def test_a_server_that_stops_ends_conversations_and_calls(client: str, server: str) -> None:
    async def case() -> None:
        async with pair(client, server) as (channel, serving):
            talk = channel.stream_stream(method("chat"))()
            await talk.write(b"a")
            assert await talk.read() == b"a"
            asked = channel.unary_unary(method("hang"))(b"")
            waiting = [asyncio.ensure_future(failure(asked)), asyncio.create_task(talk.read())]
            await until(lambda: serving.service.begun == 2, "both run")
            await serving.stop(0.05)
            told, stopped = await asyncio.gather(*waiting, return_exceptions=True)
            assert isinstance(stopped, grpc.aio.AioRpcError)
            assert {told[0], stopped.code()} <= {Code.UNAVAILABLE, Code.CANCELLED}
            await until(lambda: serving.service.ended == 2, "both ended")

    run(case())


@PAIRS
def test_calls_come_through_again_after_a_restart(client: str, server: str) -> None:
    async def case() -> None:
        async with pair(client, server) as (channel, serving):
            echo = channel.unary_unary(method("echo"))
            assert await echo(b"1") == b"1"
            await serving.stop()
            assert (await failure(echo(b"2", timeout=5)))[0] is Code.UNAVAILABLE
            again = type(serving)()
            again.address = serving.address
            await again.start()

            async def answered() -> bytes | None:
                try:
                    return await echo(b"3", timeout=5)
                except grpc.aio.AioRpcError as error:
                    assert error.code() is Code.UNAVAILABLE  # it backs off
                    return None

            assert await until(answered, "the restarted server answers") == b"3"
            await again.stop()

    run(case())


def test_grpcios_blocking_client_is_served() -> None:
    def ask(address: str) -> list[Any]:
        options = [("grpc.enable_http_proxy", 0)]
        with grpc.insecure_channel(address, options=options) as channel:
            told: list[Any] = [channel.unary_unary(method("echo"))(b"x" * 100_000, timeout=10)]
            told += list(channel.unary_stream(method("count"))(b"3", timeout=10))
            chat = channel.stream_stream(method("chat"))(iter([b"a", b"", b"c"]), timeout=10)
            told += list(chat)
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(method("refuse"))(b"", timeout=10)
            return [*told, refused.value.code(), refused.value.details()]

    async def case() -> None:
        async with pair() as (_, serving):
            told = await asyncio.to_thread(ask, serving.address)
            expected = [b"0", b"1", b"2", b"a", b"", b"c", Code.FAILED_PRECONDITION, WORDS]
            assert told == [b"x" * 100_000, *expected]

    run(case())


def test_compressed_messages_of_grpcio_are_refused_by_name() -> None:
    async def case() -> None:
        async with pair("grpcio") as (channel, _):
            call = channel.unary_unary(method("echo"))
            told = await failure(call(b"x" * 5000, compression=grpc.Compression.Gzip))
            assert told == (Code.UNIMPLEMENTED, "compressed messages are not served")

    run(case())
