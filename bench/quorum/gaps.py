"""Gaps in writes around a fault of the leader, for store and etcd alike.

The load is an open loop: it sends at a fixed rate even if no answers come, so a request that hangs
hides nothing. A gap is the longest time between two successes from the fault on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import grpc

from bench.cluster import HOST, BenchFailed
from bench.figures import longest_gap
from bench.quorum.members import MEMBERS
from kvorum.chaos.live.host.links import Link, ProxyStream
from kvorum.chaos.live.host.toxiproxy import Toxic
from kvorum.chaos.live.host.toxiproxy_server import ToxiproxyServer
from kvorum.runtime.http2.rpc import open_channel
from kvorum.runtime.tasks import TaskGroup

PUT_EVERY_S = 0.005
STEADY_BEFORE_S = 1.0
#: The load continues at least this long after the fault, so that a second interruption counts too.
WATCHED_S = 3.0
_STEADY_S = 1.0
_SILENCE_S = 0.2
_RECOVERY_TIMEOUT_S = 60.0
_OUTSTANDING_MAX = 5_000
_POLL_S = 0.01

CLIENT = "client"


class PutLoad:
    """Puts a value every `every_s`, and records the times of successes. A put that raises is not a
    success."""

    def __init__(
        self,
        put: Callable[[], Awaitable[object]],
        *,
        errors: tuple[type[Exception], ...] = (),
        every_s: float = PUT_EVERY_S,
    ) -> None:
        """errors: exceptions of a put that do not end the run."""
        self._put = put
        self._errors = errors
        self._every_s = every_s
        self._failures: list[BaseException] = []
        self._tasks = TaskGroup(self._failures.append)
        self._outstanding = 0
        self.successes: list[float] = []
        self.refusals: list[str] = []

    async def __aenter__(self) -> PutLoad:
        self._tasks.spawn(self._run(), "puts")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.stop()

    async def _run(self) -> None:
        due = time.monotonic()
        while True:
            if self._outstanding < _OUTSTANDING_MAX:
                self._outstanding += 1
                self._tasks.spawn(self._ask(), "put")
            due += self._every_s
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _ask(self) -> None:
        try:
            await self._put()
            self.successes.append(time.monotonic())
        except self._errors as error:
            self.refusals.append(str(error))
        finally:
            self._outstanding -= 1

    async def gap_s(self, strike: Callable[[], None]) -> float:
        """Inject the fault once the load is steady; returns the gap.

        Raises BenchFailed if the load never recovers, and a put's unexpected exception.
        """
        await asyncio.sleep(STEADY_BEFORE_S)
        await self._await_steady(time.monotonic())
        struck_at = time.monotonic()
        await asyncio.to_thread(strike)
        await self._await_steady(struck_at)
        await asyncio.sleep(max(0.0, struck_at + WATCHED_S - time.monotonic()))
        return longest_gap(self.successes, struck_at, time.monotonic())

    async def _await_steady(self, since: float) -> None:
        deadline = since + _RECOVERY_TIMEOUT_S
        steady_since = since
        while time.monotonic() - steady_since < _STEADY_S:
            now = time.monotonic()
            if self._failures:
                raise self._failures[0]
            if now > deadline:
                raise BenchFailed(f"no steady flow within {_RECOVERY_TIMEOUT_S:g} s")
            if not self.successes or now - max(self.successes[-1], since) > _SILENCE_S:
                steady_since = now
            await asyncio.sleep(_POLL_S)


class EtcdPutter:
    """Puts to etcd's members in turn, leader or not; followers forward to the leader.

    Encoded by hand: etcdserverpb.PutRequest has key = 1 and value = 2, both bytes.
    """

    _TIMEOUT_S = 10.0

    def __init__(self, addresses: Iterable[str], value: bytes) -> None:
        self._channels = [open_channel(address) for address in addresses]
        self._puts: list[Any] = [
            channel.unary_unary("/etcdserverpb.KV/Put") for channel in self._channels
        ]
        self._value = value
        self._turn = 0

    async def put(self) -> None:
        """Raises grpc.aio.AioRpcError."""
        self._turn += 1
        key = b"%08d" % self._turn
        message = b"\x0a" + _sized(key) + b"\x12" + _sized(self._value)
        await self._puts[self._turn % len(self._puts)](message, timeout=self._TIMEOUT_S)

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()


ETCD_ERRORS: tuple[type[Exception], ...] = (grpc.aio.AioRpcError,)


def _sized(data: bytes) -> bytes:
    """A length-delimited protobuf field's content."""
    length, parts = len(data), bytearray()
    while length > 0x7F:
        parts.append(length & 0x7F | 0x80)
        length >>= 7
    parts.append(length)
    return bytes(parts) + data


class BlackHoles:
    """A proxy on every link between members and from the client to each member."""

    def __init__(self, *, listeners: dict[int, str], port: int, log_file: str) -> None:
        self._server = ToxiproxyServer(port=port, log_file=log_file)
        ends = [(str(source), target) for source in MEMBERS for target in MEMBERS]
        ends += [(CLIENT, target) for target in MEMBERS]
        self._links = [
            Link(
                source=source,
                destination=str(target),
                listen=f"{HOST}:{port + 1 + at}",
                upstream=listeners[target],
            )
            for at, (source, target) in enumerate(e for e in ends if e[0] != str(e[1]))
        ]

    @property
    def peer_links(self) -> dict[tuple[int, int], str]:
        """For StoreCluster: the address at which each member finds each other one."""
        return {
            (int(link.source), int(link.destination)): link.listen
            for link in self._links
            if link.source != CLIENT
        }

    @property
    def client_addresses(self) -> dict[int, str]:
        """The addresses at which the client finds the members."""
        return {int(link.destination): link.listen for link in self._links if link.source == CLIENT}

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with self._server:
            self._server.api.populate(self._links)
            yield

    def swallow(self, member: int) -> None:
        """From now on drop all bytes to and from the member; connections stay open."""
        for link in sorted(self._links, key=lambda link: link.source == CLIENT):
            # The peers' links first: while they are cut, one after the other, the client still sees
            # commits.
            if str(member) in (link.source, link.destination):
                for stream in ProxyStream:
                    toxic = Toxic(
                        name=f"hole-{stream.value}",
                        kind="timeout",
                        stream=stream,
                        attributes={"timeout": 0},
                    )
                    self._server.api.add_toxic(link, toxic)

    def heal(self) -> None:
        self._server.api.reset()
