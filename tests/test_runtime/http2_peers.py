"""One little service, served and called by runtime.http2 and by grpcio alike."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from kvorum.runtime.http2.rpc import USUAL_PATIENCE, Patience, RpcServer, open_channel
from kvorum.runtime.http2.server import Server
from tests.polling import until

SERVICE = "test.Peer"
CASE_TIMEOUT_S = 30
GRPCIO_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
)
WORDS = "nicht möglich: 100 % ✓\n\x7f"


def run(case: Coroutine[Any, Any, None]) -> None:
    """Run one case; an error that the event loop reports (a fatal error, a lost exception) fails
    it."""
    complaints: list[dict[str, Any]] = []

    async def guarded() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
        async with asyncio.timeout(CASE_TIMEOUT_S):
            await case

    asyncio.run(guarded())
    ours = [told for told in complaints if not _is_of_an_earlier_loop(told)]
    assert not ours, ours


def _is_of_an_earlier_loop(told: dict[str, Any]) -> bool:
    """grpcio's poller serves all event loops of the process, and may have an event of a closed
    one."""
    return (
        "PollerCompletionQueue" in told["message"]
        and isinstance(told.get("exception"), RuntimeError)
        and str(told["exception"]) == "Event loop is closed"
    )


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Service:
    """begun, ended: calls of `hang` and of endless streams whose handlers started, and finished.

    written: messages that `flood` could write.
    """

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0
        self.written = 0

    async def echo(self, request: bytes, _: Any) -> bytes:
        return request

    async def refuse(self, _: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, WORDS)
        raise AssertionError("abort returns")

    async def crash(self, _: bytes, __: Any) -> bytes:
        raise ValueError("on purpose")

    async def hang(self, _: bytes, __: Any) -> bytes:
        self.begun += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1
        return b""

    async def count(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        """This number of messages, then an error if requested."""
        number, _, last = request.decode(errors="replace").partition(" ")
        if not (number.isascii() and number.isdigit() and len(number) < 5):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no number")
        for i in range(int(number)):
            yield b"%d" % i
        if last:
            await context.abort(grpc.StatusCode.ABORTED, last)

    async def flood(self, request: bytes, _: Any) -> AsyncIterator[bytes]:
        """The request again and again."""
        self.begun += 1
        try:
            while True:
                yield request
                self.written += 1
        finally:
            self.ended += 1

    async def chat(self, _: Any, context: Any) -> None:
        self.begun += 1
        try:
            while (message := await context.read()) is not grpc.aio.EOF:
                await context.write(message)
        finally:
            self.ended += 1

    async def deaf(self, _: Any, __: Any) -> None:
        """A bidirectional stream whose handler reads nothing."""
        self.begun += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1

    async def brief(self, _: Any, context: Any) -> None:
        """A bidirectional stream that its handler ends after one message."""
        await context.write(await context.read())
        await context.abort(grpc.StatusCode.OUT_OF_RANGE, "enough")

    def handlers(self) -> dict[str, Any]:
        unary = grpc.unary_unary_rpc_method_handler
        down = grpc.unary_stream_rpc_method_handler
        both = grpc.stream_stream_rpc_method_handler
        made = {name: unary(getattr(self, name)) for name in ("echo", "refuse", "crash", "hang")}
        made |= {name: down(getattr(self, name)) for name in ("count", "flood")}
        return made | {name: both(getattr(self, name)) for name in ("chat", "deaf", "brief")}


def method(name: str) -> str:
    return f"/{SERVICE}/{name}"


class OurServer:
    """RpcServer with the service. server: its internal state."""

    def __init__(self, patience: Patience = USUAL_PATIENCE) -> None:
        self.service = Service()
        self.address = f"127.0.0.1:{free_port()}"
        self._rpc = RpcServer(patience)
        self._rpc.add_registered_method_handlers(SERVICE, self.service.handlers())
        self.server: Server = self._rpc._server

    async def start(self) -> None:
        await self._rpc.listen(self.address)

    async def stop(self, grace_s: float = 0.0) -> None:
        await self._rpc.stop(grace_s)

    def is_empty(self) -> bool:
        """True if no call and no stream is left."""
        return not self.server._calls and not any(c.streams for c in self.server.connections)


class GrpcioServer:
    def __init__(self) -> None:
        self.service = Service()
        self.address = f"127.0.0.1:{free_port()}"
        self._server: Any = None

    async def start(self) -> None:
        self._server = grpc.aio.server(options=GRPCIO_OPTIONS)
        handlers = self.service.handlers()
        generic = grpc.method_handlers_generic_handler(SERVICE, handlers)
        self._server.add_generic_rpc_handlers((generic,))
        self._server.add_insecure_port(self.address)
        await self._server.start()

    async def stop(self, grace_s: float = 0.0) -> None:
        await self._server.stop(grace_s)

    def is_empty(self) -> bool:
        return self.service.begun == self.service.ended


SERVERS: dict[str, type[OurServer] | type[GrpcioServer]] = {
    "ours": OurServer,
    "grpcio": GrpcioServer,
}


def channel_of(kind: str, address: str) -> Any:
    if kind == "ours":
        return open_channel(address)
    return grpc.aio.insecure_channel(address, options=GRPCIO_OPTIONS)


@asynccontextmanager
async def pair(client: str = "ours", server: str = "ours") -> AsyncIterator[tuple[Any, Any]]:
    """(channel, server); afterwards no call may be left on either side."""
    serving = SERVERS[server]()
    await serving.start()
    channel = channel_of(client, serving.address)
    try:
        yield channel, serving
        await until(serving.is_empty, "the server has no calls")
        if client == "ours":
            await until(lambda: not any(c.streams for c in channel.connections), "no streams")
    finally:
        await channel.close()
        await serving.stop()
    if client == "ours":
        await until(lambda: not channel.connections, "the channel has no connections")
    if server == "ours":
        # A socket that is still open when the loop ends is a warning in a later test.
        await until(lambda: not serving.server.connections, "the server has no connections")
