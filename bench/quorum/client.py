"""Writers over one stream: the next message takes all values that are ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc

from bench.cluster import BenchFailed
from bench.quorum import protocol
from kvorum.runtime.http2.rpc import open_channel
from kvorum.runtime.tasks import TaskGroup

VALUE_BYTES = 200
_RECONNECT_S = 0.02
_LEADER_TIMEOUT_S = 15.0
_WRITERS_TIMEOUT_S = 60.0
_EQUAL_TIMEOUT_S = 30.0
_STATUS_TIMEOUT_S = 1.0
_POLL_S = 0.05


@dataclass(slots=True)
class _Member:
    """The client's state of one member. ready: ids that wait for the next message."""

    node_id: int
    channel: Any
    stream: Any = None
    ready: list[int] = field(default_factory=list)
    is_writing: bool = False


class StoreClient:
    """Streams to every member; values go to the leader of the highest known epoch.

    A value without an outcome is sent again to the next leader, so it may be committed twice. Use
    as an asynchronous context manager.
    """

    def __init__(self, addresses: Mapping[int, str]) -> None:
        self._members = {
            node_id: _Member(node_id, open_channel(address))
            for node_id, address in addresses.items()
        }
        self._failures: list[BaseException] = []
        self._tasks = TaskGroup(self._failures.append)
        self._epoch = -1
        self._leader: _Member | None = None
        self._has_leader = asyncio.Event()
        self._next_id = 0
        self._waiting: dict[int, tuple[bytes, asyncio.Future[int]]] = {}

    async def __aenter__(self) -> StoreClient:
        for member in self._members.values():
            self._tasks.spawn(self._listen(member), f"listen-{member.node_id}")
        try:
            async with asyncio.timeout(_LEADER_TIMEOUT_S):
                await self._has_leader.wait()
        except TimeoutError as error:
            await self._close()
            raise BenchFailed(f"no leader within {_LEADER_TIMEOUT_S:g} s") from error
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()
        if self._failures:
            raise BenchFailed("the client failed") from self._failures[0]

    async def _close(self) -> None:
        await self._tasks.stop()
        for member in self._members.values():
            await member.channel.close()

    @property
    def leader_id(self) -> int:
        """The last known leader, -1 for none."""
        return -1 if self._leader is None else self._leader.node_id

    async def append(self, value: bytes) -> int:
        """Commit a value; returns its offset. Waits for ever while there is no leader."""
        self._next_id += 1
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[self._next_id] = (value, future)
        if self._leader is not None:
            self._send(self._leader, self._next_id)
        return await future

    def _send(self, member: _Member, *ids: int) -> None:
        member.ready += ids
        if not member.is_writing and member.stream is not None and member.ready:
            # There is only one writer, so no other value could share the message.
            if len(self._waiting) == len(member.ready) == 1 and self._is_sent_at_once(member):
                return
            member.is_writing = True
            self._tasks.spawn(self._write(member), f"write-{member.node_id}")

    def _is_sent_at_once(self, member: _Member) -> bool:
        """True if the value was sent without a task, since no other value waits."""
        (value_id,) = member.ready
        if value_id in self._waiting:
            message = protocol.encode_values([value_id], [self._waiting[value_id][0]])
            try:
                if not member.stream.try_write(message):
                    return False
            except grpc.aio.AioRpcError:
                return True  # the listener sees the same break, and sends all waiting values again
        member.ready.clear()
        return True

    async def _write(self, member: _Member) -> None:
        stream = member.stream
        try:
            while member.ready and member.stream is stream:
                ids = member.ready[: protocol.VALUES_PER_MESSAGE_MAX]
                del member.ready[: protocol.VALUES_PER_MESSAGE_MAX]
                ids = [i for i in ids if i in self._waiting]
                values = [self._waiting[i][0] for i in ids]
                await stream.write(protocol.encode_values(ids, values))
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            # The listener sees the same break and opens another stream.
            stream.cancel()
        finally:
            member.is_writing = False
            # A stream that was opened while this write still hung could not use the writer.
            if member.stream is not stream:
                self._send(member)

    async def _listen(self, member: _Member) -> None:
        open_stream = member.channel.stream_stream(protocol.METHOD)
        while True:
            stream = open_stream()
            try:
                member.stream = stream
                await stream.listen(partial(self._on_message, member))
            except (grpc.aio.AioRpcError, grpc.aio.UsageError):
                pass
            finally:
                stream.cancel()
                member.stream = None
                member.ready.clear()
            if self._leader is member:
                self._leader = None
            await asyncio.sleep(_RECONNECT_S)

    def _on_message(self, member: _Member, message: bytes) -> None:
        self._note_outcomes(member, protocol.decode_answer(message))

    def _note_outcomes(self, member: _Member, answer: protocol.Answer) -> None:
        for outcome in answer.outcomes:
            offset = outcome.base_offset
            if offset == protocol.NO_OFFSET:
                continue  # the values still wait, and go to the next leader
            for value_id in outcome.ids:
                waiting = self._waiting.pop(value_id, None)
                if waiting is not None and not waiting[1].done():
                    waiting[1].set_result(offset)
                offset += 1
        is_news = answer.epoch > self._epoch or self._leader is None
        if answer.leader_id >= 0 and answer.epoch >= self._epoch and is_news:
            self._follow(answer.epoch, self._members[answer.leader_id])

    def _follow(self, epoch: int, leader: _Member) -> None:
        if leader.stream is None:
            return
        self._epoch = epoch
        self._leader = leader
        self._has_leader.set()
        leader.ready.clear()
        self._send(leader, *self._waiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """The commits of all writers in `seconds`; latencies_ms of every commit."""

    seconds: float
    latencies_ms: list[float]

    @property
    def per_second(self) -> float:
        return len(self.latencies_ms) / self.seconds


async def run_writers(clients: Sequence[StoreClient], *, writers: int, commits: int) -> Commits:
    """Run `writers` writers, each with one value under way, until `commits` are made in total.

    The writers are spread over the clients, which have connections of their own. Raises
    TimeoutError, an OSError, if that takes too long for a useful figure.
    """
    value = b"k" * VALUE_BYTES
    latencies_ms: list[float] = []
    left = commits

    async def write(client: StoreClient) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            began = time.perf_counter()
            await client.append(value)
            latencies_ms.append((time.perf_counter() - began) * 1000)

    began = time.perf_counter()
    async with asyncio.timeout(_WRITERS_TIMEOUT_S):
        await asyncio.gather(*(write(clients[i % len(clients)]) for i in range(writers)))
    return Commits(seconds=time.perf_counter() - began, latencies_ms=latencies_ms)


async def await_equal(addresses: Mapping[int, str], *, acknowledged: int) -> None:
    """Return when every member has applied the same values, and all acknowledged ones.

    No client may write meanwhile. Raises BenchFailed if values are missing or members stay
    different.
    """
    channels = [open_channel(address) for address in addresses.values()]
    statuses: list[protocol.Status] = []
    deadline = time.monotonic() + _EQUAL_TIMEOUT_S
    try:
        while time.monotonic() < deadline:
            try:
                statuses = [await _status(channel) for channel in channels]
            except grpc.aio.AioRpcError:
                statuses = []  # a member is still starting
            counts = {(status.count, status.end_offset) for status in statuses}
            if len(counts) == 1 and statuses[0].count >= acknowledged:
                return
            await asyncio.sleep(_POLL_S)
    finally:
        for channel in channels:
            await channel.close()
    raise BenchFailed(f"{acknowledged} values were acknowledged, the members have {statuses}")


async def _status(channel: Any) -> protocol.Status:
    ask = channel.unary_unary(protocol.STATUS_METHOD)
    return protocol.decode_status(await ask(b"", timeout=_STATUS_TIMEOUT_S))
