"""A streaming call, from the caller's side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from kvorum.runtime.errors import required
from kvorum.runtime.http2 import frames
from kvorum.runtime.http2.status import StreamEnded, parsed, rpc_error
from kvorum.runtime.http2.stream import Stream

Begin = Callable[[str, float | None], Awaitable[tuple[Stream, bytes]]]
"""Returns a stream and its request headers, for a method and a timeout (ms); raises Unsent."""


class StreamCall:
    """A call with many messages in both directions; one task may write while another reads.

    The call begins with the first read or write, on the channel's connection at that time. A caller
    that abandons it must cancel it.
    """

    def __init__(
        self,
        begin: Begin,
        method: str,
        serialize: Callable[[Any], bytes],
        parse: Callable[[bytes], Any],
        timeout_s: float | None,
    ) -> None:
        self._begin = begin
        self._method = method
        self._serialize = serialize
        self._parse = parse
        self._timeout_s = timeout_s
        self._stream: Stream | None = None
        self._opener: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._end: tuple[grpc.StatusCode, str] | None = None

    async def write(self, message: Any) -> None:
        """Send one message. Raises AioRpcError."""
        stream = self._stream or await self._opened()
        try:
            await stream.write(self._serialize(message))
        except StreamEnded as error:
            raise self._error(stream, error) from None

    async def read(self) -> Any:
        """The next message, `grpc.aio.EOF` after the last one. Raises AioRpcError."""
        stream = self._stream or await self._opened()
        try:
            message = await stream.read()
            if message is None:
                self._stop_deadline()
                stream.check_status()
                return grpc.aio.EOF
        except StreamEnded as error:
            raise rpc_error(error.code, error.details) from None
        return parsed(self._parse, message, self._method)

    async def listen(self, on_message: Callable[[Any], None]) -> None:
        """Call on_message with every message as it arrives (`Stream.listen`); return at the end of
        the call. Raises AioRpcError, and any error of on_message."""
        stream = self._stream or await self._opened()
        parse, method = self._parse, self._method
        try:
            await stream.listen(lambda message: on_message(parsed(parse, message, method)))
            self._stop_deadline()
            stream.check_status()
        except StreamEnded as error:
            raise rpc_error(error.code, error.details) from None

    def try_write(self, message: Any) -> bool:
        """Send one message at once; False if the call has not begun, or the message does not fit
        now. Raises AioRpcError."""
        stream = self._stream
        if stream is None:
            return False
        try:
            return stream.try_write(self._serialize(message))
        except StreamEnded as error:
            raise self._error(stream, error) from None

    async def done_writing(self) -> None:
        """End this side's messages; must not be called during a write."""
        stream = self._stream or await self._opened()
        if stream.has_partial_write:
            stream.reset(grpc.StatusCode.CANCELLED, "a message was given up half-way")
        elif not stream.is_local_done and stream.failure is None:
            stream.end(frames.frame(frames.DATA, frames.END_STREAM, stream.id))

    @property
    def is_answered(self) -> bool:
        """True if the server has ended the call."""
        return self._stream is not None and self._stream.is_remote_done

    def cancel(self) -> None:
        """End the call at once; waiting tasks get CANCELLED."""
        self._finish(grpc.StatusCode.CANCELLED, "cancelled by the caller")

    def _finish(self, code: grpc.StatusCode, details: str) -> None:
        self._stop_deadline()
        if self._end is None:
            self._end = code, details
        if self._stream is not None:
            self._stream.reset(code, details)
        elif self._opener is not None:
            self._opener.cancel()

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    async def _opened(self) -> Stream:
        # A reader and a writer may both arrive first, so one task opens the stream for both. The
        # call can then also end while it waits for a connection.
        if self._opener is None and self._end is None:
            loop = asyncio.get_running_loop()
            self._opener = loop.create_task(self._open(), name=f"open-{self._method}")
            self._opener.add_done_callback(_note_error)
            if self._timeout_s is not None:
                code = grpc.StatusCode.DEADLINE_EXCEEDED
                delay_s = max(self._timeout_s, 0)
                self._deadline = loop.call_later(delay_s, self._finish, code, "Deadline Exceeded")
        if self._opener is not None:
            await asyncio.wait((self._opener,))
            if not self._opener.cancelled():
                self._opener.result()
                return required(self._stream, "a stream that was opened")
        raise rpc_error(*required(self._end, "why a call ended before it began"))

    async def _open(self) -> None:
        timeout_ms = None if self._timeout_s is None else self._timeout_s * 1000
        try:
            stream, head = await self._begin(self._method, timeout_ms)
        except BaseException:
            self._stop_deadline()
            raise
        if self._deadline is not None:
            stream.on_failed = self._deadline.cancel
        stream.send(head)
        self._stream = stream

    def _error(self, stream: Stream, error: StreamEnded) -> grpc.aio.AioRpcError:
        """The error of a write: the server's status, if the server has ended the call."""
        if stream.is_remote_done and stream.failure is None:
            try:
                stream.check_status()
            except StreamEnded as status:
                return rpc_error(status.code, status.details)
        return rpc_error(error.code, error.details)


def _note_error(opener: asyncio.Task[None]) -> None:
    # Retrieve the exception, or asyncio logs it as never retrieved. Tasks that wait for `opener`
    # raise it themselves.
    if not opener.cancelled():
        opener.exception()
