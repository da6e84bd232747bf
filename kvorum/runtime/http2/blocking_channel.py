"""Blocking gRPC calls over TLS: a channel of `runtime.http2` on an event loop in a thread.

grpcio's own TLS has no switch for the check of names, no encrypted keys, and no words for failures.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import grpc.aio

from kvorum.runtime.http2.client import Channel

CLOSE_TIMEOUT_S = 1.0


class _LoopThread:
    """The event loop of all such channels of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name="kvorum-calls", daemon=True
                ).start()
            return self._loop


_thread = _LoopThread()


class BlockingCall:
    """A call under way; failures are `grpc.RpcError`."""

    def __init__(self, future: concurrent.futures.Future[Any]) -> None:
        self._future = future

    def result(self) -> Any:
        """The answer. Raises grpc.RpcError."""
        return self._future.result()

    def code(self) -> grpc.StatusCode:
        """The status of a call that is over."""
        if self._future.cancelled():
            return grpc.StatusCode.CANCELLED
        error = self._future.exception()
        return error.code() if isinstance(error, grpc.aio.AioRpcError) else grpc.StatusCode.OK

    def add_done_callback(self, on_done: Callable[[BlockingCall], Any]) -> None:
        """Call on_done from another thread once the call is over."""
        self._future.add_done_callback(lambda _: on_done(self))

    def cancel(self) -> None:
        """Give the call up."""
        self._future.cancel()


class _UnaryCalls:
    def __init__(self, begin: Callable[[Any, float | None], Any]) -> None:
        self._begin = begin

    def __call__(self, request: Any, timeout: float | None = None) -> Any:
        return self.future(request, timeout).result()

    def future(self, request: Any, timeout: float | None = None) -> BlockingCall:
        coroutine = self._begin(request, timeout)
        return BlockingCall(asyncio.run_coroutine_threadsafe(coroutine, _thread.loop))


class BlockingChannel:
    """A channel as generated stubs expect it of `grpc.Channel`, without streams of requests."""

    def __init__(self, open_channel: Callable[[], Channel]) -> None:
        """open_channel: is called in the thread of the event loop."""
        self._open = open_channel
        self._channel: Channel | None = None

    def __enter__(self) -> BlockingChannel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _current(self) -> Channel:
        if self._channel is None:
            self._channel = self._open()
        return self._channel

    def unary_unary(self, method: str, *coders: Any, **named: Any) -> Any:
        """A call with one request and one response."""

        async def ask(request: Any, timeout: float | None) -> Any:
            call = self._current().unary_unary(method, *coders, **_known(named))
            return await call(request, timeout=timeout)

        return _UnaryCalls(ask)

    def unary_stream(self, method: str, *coders: Any, **named: Any) -> Any:
        """A call with one request and many responses, to iterate over."""

        def call(request: Any, timeout: float | None = None) -> Iterator[Any]:
            arrived: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

            async def read() -> None:
                try:
                    stream = self._current().unary_stream(method, *coders, **_known(named))
                    async for message in stream(request, timeout=timeout):
                        arrived.put((message, None))
                except BaseException as error:
                    arrived.put((None, error))
                    raise
                arrived.put((None, StopIteration()))

            reading = asyncio.run_coroutine_threadsafe(read(), _thread.loop)
            try:
                while True:
                    message, error = arrived.get()
                    if isinstance(error, StopIteration):
                        return
                    if error is not None:
                        raise error
                    yield message
            finally:
                reading.cancel()

        return call

    def stream_stream(self, method: str, *_: Any, **__: Any) -> Any:
        """Not supported. Only the call raises, so that a stub with such a method can be created."""

        def call(*_: Any, **__: Any) -> Any:
            raise NotImplementedError(f"{method}: streams of requests")

        return call

    stream_unary = stream_stream

    def close(self) -> None:
        """End all calls."""
        channel, self._channel = self._channel, None
        if channel is not None:
            closing = asyncio.run_coroutine_threadsafe(channel.close(), _thread.loop)
            closing.result(CLOSE_TIMEOUT_S)


def _known(named: dict[str, Any]) -> dict[str, Any]:
    """The options that this channel reads; generated code also passes options for grpcio."""
    return {k: v for k, v in named.items() if not k.startswith("_")}
