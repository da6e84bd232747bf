"""Fetches between two nodes over real sockets: the events of the node and the messages to its
peers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from kvorum.raft.model.events import (
    CallerGone,
    Event,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
)
from kvorum.raft.model.messages import FetchRequest, FetchResponse
from kvorum.raft.node import codec
from kvorum.raft.node.servicer import RaftServicer
from kvorum.raft.node.transport import RaftTransport
from kvorum.rpc import raft_pb2 as pb
from kvorum.rpc import raft_pb2_grpc as raft_grpc
from kvorum.runtime.clock import SYSTEM_CLOCK, Clock, SystemClock
from kvorum.runtime.http2.rpc import RpcServer, open_channel
from kvorum.runtime.tasks import TaskGroup
from kvorum.storage.format.batch import build_batch
from tests.polling import until
from tests.test_raft.driver import CLUSTER
from tests.test_runtime.http2_peers import free_port, run

LEADER = 1


def fetch(offset: int) -> FetchRequest:
    return FetchRequest(
        cluster_id=CLUSTER,
        epoch=1,
        replica_id=2,
        fetch_offset=offset,
        last_fetched_epoch=1,
        high_watermark=0,
    )


def answer(records: bytes = b"", *, high_watermark: int = 0) -> FetchResponse:
    return FetchResponse(epoch=1, leader_id=LEADER, high_watermark=high_watermark, records=records)


class Leader:
    """A servicer behind a real server. asked: tokens and offsets; gone: tokens of CallerGone."""

    def __init__(self, clock: Clock) -> None:
        self.asked: list[tuple[int, int]] = []
        self.gone: list[int] = []
        self.answers_at_once = False
        self.address = ("127.0.0.1", free_port())
        self.servicer = RaftServicer(
            self._deliver, peer_address=lambda _: None, note_address=lambda *_: None, clock=clock
        )
        self._server = RpcServer()

    async def start(self) -> None:
        self._server.add_service(raft_grpc.add_RaftServicer_to_server, self.servicer)
        await self._server.listen(f"{self.address[0]}:{self.address[1]}")

    async def stop(self) -> None:
        await self._server.stop(0)

    def hears_no_more(self) -> bool:
        """True if every caller has ended its half of the stream and is still connected."""
        connections = self._server._server.connections
        streams = [stream for connection in connections for stream in connection.streams.values()]
        return bool(streams) and all(stream.is_remote_done for stream in streams)

    def _deliver(self, event: Event) -> None:
        match event:
            case RequestReceived(FetchRequest() as request, token):
                self.asked.append((token, request.fetch_offset))
                if self.answers_at_once:
                    self.servicer.reply(token, answer(high_watermark=request.fetch_offset))
            case CallerGone(token):
                self.gone.append(token)
            case _:
                raise AssertionError(event)


class Follower:
    """A transport. events: those that its node got; next_offset: fetched from within an answer."""

    def __init__(self, leader: tuple[str, int], clock: Clock) -> None:
        self.events: list[Event] = []
        self.failures: list[BaseException] = []
        self.until_offset = -1
        self._tasks = TaskGroup(self.failures.append)
        self.transport = RaftTransport(
            peer_address=lambda _: leader,
            note_address=lambda *_: None,
            own_address=None,
            request_timeout_ms=1_000,
            clock=clock,
            deliver=self._deliver,
            tasks=self._tasks,
        )

    def fetch(self, offset: int) -> None:
        self.transport.send(LEADER, offset, fetch(offset))

    def _deliver(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, ResponseReceived) and event.correlation_id < self.until_offset:
            assert asyncio.current_task() is None, "no task lies between the socket and the node"
            self.fetch(event.correlation_id + 1)

    async def stop(self) -> None:
        await self._tasks.stop()
        await self.transport.stop()
        assert self.failures == []


@asynccontextmanager
async def nodes(
    *, clocks: tuple[Clock, Clock] = (SYSTEM_CLOCK, SYSTEM_CLOCK)
) -> AsyncIterator[tuple[Leader, Follower]]:
    leader = Leader(clocks[0])
    await leader.start()
    follower = Follower(leader.address, clocks[1])
    try:
        yield leader, follower
    finally:
        await follower.stop()
        await leader.stop()


@asynccontextmanager
async def raw_fetches(leader: Leader) -> AsyncIterator[Any]:
    """A stream to the leader on which a test may send fetches without waiting for answers."""
    channel = open_channel("{}:{}".format(*leader.address))
    call = raft_grpc.RaftStub(channel).Fetch()
    try:
        yield call
    finally:
        call.cancel()
        await channel.close()


def message(offset: int) -> Any:
    return codec.encode_request(fetch(offset), offset)


class StoppedClock(SystemClock):
    """Its wall clock shows one time for ever."""

    def __init__(self, wall_ms: int) -> None:
        self._stopped_ms = wall_ms

    def wall_ms(self) -> int:  # type: ignore[override]
        return self._stopped_ms


def test_a_leader_sees_and_tells_how_far_a_followers_clock_is_ahead(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def case() -> None:
        clocks = (StoppedClock(10_000_000), StoppedClock(17_200_000))
        async with nodes(clocks=clocks) as (leader, follower):
            leader.answers_at_once = True
            follower.until_offset = 5
            follower.fetch(1)
            await until(lambda: len(follower.events) == 5, "the answers arrive")
            assert leader.servicer.clocks.ahead_ms == {2: 7_200_000}

    run(case())
    (line,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert line.startswith("the clock of node 2 is 7,200.0 s ahead of this node's")


def test_a_follower_of_an_earlier_build_tells_no_clock() -> None:
    async def case() -> None:
        async with nodes() as (leader, _), raw_fetches(leader) as call:
            leader.answers_at_once = True
            await call.write(message(1))
            await until(lambda: bool(leader.asked), "the fetch arrives")
            assert leader.servicer.clocks.ahead_ms == {}

    run(case())


def test_the_next_fetch_leaves_from_within_the_answer() -> None:
    async def case() -> None:
        async with nodes() as (leader, follower):
            leader.answers_at_once = True
            follower.until_offset = 50
            follower.fetch(1)
            await until(lambda: len(follower.events) == 50, "fifty answers")
            assert [event.correlation_id for event in follower.events] == list(range(1, 51))
            assert [offset for _, offset in leader.asked] == list(range(1, 51))
            assert leader.gone == []

    run(case())


def test_an_answer_of_many_megabytes_arrives_and_the_stream_goes_on() -> None:
    records = bytes(build_batch([(None, b"v" * (6 << 20))], timestamp_ms=1))

    async def case() -> None:
        async with nodes() as (leader, follower):
            follower.fetch(1)
            await until(lambda: leader.asked, "the fetch is there")
            leader.servicer.reply(leader.asked[0][0], answer(records))
            await until(lambda: follower.events, "the answer is there")
            (event,) = follower.events
            assert isinstance(event, ResponseReceived)
            assert event.response.records == records
            follower.fetch(2)
            await until(lambda: len(leader.asked) == 2, "the next fetch is there")
            leader.servicer.reply(leader.asked[1][0], answer())
            await until(lambda: len(follower.events) == 2, "it is answered as well")

    run(case())


def test_a_broken_stream_fails_the_fetch_under_way_and_the_leader_hears_that_the_caller_went() -> (
    None
):
    async def case() -> None:
        async with nodes() as (leader, follower):
            follower.fetch(7)
            await until(lambda: leader.asked, "the fetch is there")
            for connection in list(follower.transport._peers[LEADER].channel.connections):
                connection.abort("pulled")
            await until(lambda: follower.events, "the follower heard")
            assert follower.events == [RequestFailed(LEADER, 7)]
            await until(lambda: leader.gone, "the leader heard")
            assert leader.gone == [leader.asked[0][0]]
            # The next fetch opens another stream.
            follower.fetch(8)
            await until(lambda: len(leader.asked) == 2, "the next fetch is there")

    run(case())


def test_a_fetch_that_was_given_up_has_no_answer_and_takes_its_stream_along() -> None:
    async def case() -> None:
        async with nodes() as (leader, follower):
            follower.fetch(1)
            await until(lambda: leader.asked, "the fetch is there")
            follower.fetch(2)
            await until(lambda: len(leader.asked) == 2, "the next fetch is there")
            await until(lambda: leader.gone, "the leader heard of the first one's end")
            assert leader.gone == [leader.asked[0][0]]
            leader.servicer.reply(leader.asked[0][0], answer())
            leader.servicer.reply(leader.asked[1][0], answer())
            await until(lambda: follower.events, "the second is answered")
            assert [event.correlation_id for event in follower.events] == [2]

    run(case())


def test_what_is_no_answer_fails_the_fetch() -> None:
    async def case() -> None:
        async with nodes() as (leader, follower):
            follower.fetch(1)
            await until(lambda: leader.asked, "the fetch is there")
            leader.servicer.reply(leader.asked[0][0], answer(b"no batch"))
            await until(lambda: follower.events, "the follower heard")
            assert follower.events == [RequestFailed(LEADER, 1)]

    run(case())


def test_a_fetch_that_does_not_wait_for_its_turn_ends_the_stream() -> None:
    async def case() -> None:
        async with nodes() as (leader, _), raw_fetches(leader) as call:
            await call.write(message(1))
            await until(lambda: leader.asked, "the fetch is there")
            await call.write(message(2))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "while the one before it is under way" in str(caught.value.details())
            assert leader.gone == [leader.asked[0][0]]

    run(case())


def test_a_caller_that_has_said_all_still_gets_its_answer() -> None:
    async def case() -> None:
        async with nodes() as (leader, _), raw_fetches(leader) as call:
            await call.write(message(1))
            await call.done_writing()
            await until(lambda: leader.asked, "the fetch is there")
            await until(leader.hears_no_more, "all was said")
            leader.servicer.reply(leader.asked[0][0], answer(high_watermark=5))
            assert isinstance(reply := await call.read(), pb.FetchResponse)
            assert reply.high_watermark == 5
            assert await call.read() is grpc.aio.EOF
            assert leader.gone == []

    run(case())


def test_a_stopping_node_turns_its_callers_away() -> None:
    async def case() -> None:
        async with nodes() as (leader, _), raw_fetches(leader) as call:
            await call.write(message(1))
            await until(lambda: leader.asked, "the fetch is there")
            leader.servicer.stop()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert caught.value.details() == "the node is stopping"
            async with raw_fetches(leader) as late:
                await late.write(message(2))
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await late.read()
                assert caught.value.details() == "the node is stopping"
            assert len(leader.asked) == 1

    run(case())
