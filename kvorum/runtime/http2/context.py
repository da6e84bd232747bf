"""A call from its handler's side, and the end of a call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio

from kvorum.runtime.http2 import frames, headers
from kvorum.runtime.http2.status import StreamEnded
from kvorum.runtime.http2.stream import Stream
from kvorum.runtime.http2.tls import UNKNOWN, Caller

_HEAD = headers.encode(((":status", "200"), ("content-type", headers.GRPC)))
_OK = headers.encode((("grpc-status", "0"),))


class CallAborted(Exception):
    """Raised by a handler to end its call with a status."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


def _checked(parse: Callable[[bytes], Any], check: Callable[[Any], None]) -> Callable[[bytes], Any]:
    def parse_and_check(data: bytes) -> Any:
        message = parse(data)
        check(message)
        return message

    return parse_and_check


class CallContext:
    """A call as its handler sees it.

    user: of the caller's certificate, ANONYMOUS without one.
    host: the caller's address.
    """

    def __init__(
        self,
        stream: Stream,
        handler: Any,
        caller: Caller = UNKNOWN,
        check: Callable[[Any], None] | None = None,
    ) -> None:
        """check: raises Aborted for a message that the caller may not send."""
        self.user, self.host = caller
        self._stream = stream
        self._parse: Callable[[bytes], Any] = handler.request_deserializer or bytes
        if check is not None:
            self._parse = _checked(self._parse, check)
        self._serialize: Callable[[Any], bytes] = handler.response_serializer or bytes

    async def read(self) -> Any:
        """The caller's next message, `grpc.aio.EOF` after the last one. Raises DecodeError."""
        message = await self._stream.read()
        return grpc.aio.EOF if message is None else self._parse(message)

    async def write(self, message: Any) -> None:
        """Send one message; only one at a time. Raises UsageError if the call has ended."""
        try:
            await self.send(self._serialize(message))
        except StreamEnded as error:
            raise grpc.aio.UsageError(f"the call has ended: {error}") from None

    async def listen(self, on_message: Callable[[Any], None]) -> None:
        """Call on_message with every message of the caller as it arrives (`Stream.listen`).

        Raises DecodeError, and any error of on_message.
        """
        parse = self._parse
        await self._stream.listen(lambda message: on_message(parse(message)))

    def interrupt(self, error: Exception) -> None:
        """Raise this error in the task that is reading or listening."""
        self._stream.interrupt(error)

    def try_write(self, message: Any) -> bool:
        """Send one message at once; False if it does not fit now. Raises UsageError."""
        stream = self._stream
        try:
            self._send_head()
            return stream.try_write(self._serialize(message))
        except StreamEnded as error:
            raise grpc.aio.UsageError(f"the call has ended: {error}") from None

    async def abort(self, code: grpc.StatusCode, details: str = "") -> None:
        """End the call with a status; does not return."""
        raise CallAborted(code, details)

    async def requests(self) -> AsyncIterator[Any]:
        """The caller's messages."""
        while (message := await self.read()) is not grpc.aio.EOF:
            yield message

    async def answer(self, message: Any) -> None:
        """Send the only response, together with the status if both fit. Raises StreamEnded."""
        body: bytes = self._serialize(message)
        stream = self._stream
        if not stream.is_remote_done or not stream.try_finish(
            _head(stream), body, _last(stream, _OK)
        ):
            await self.send(body)

    async def send(self, body: bytes) -> None:
        """Send one message, after the response headers. Raises StreamEnded."""
        self._send_head()
        await self._stream.write(body)

    def _send_head(self) -> None:
        stream = self._stream
        if not stream.is_head_sent and stream.failure is None and not stream.is_local_done:
            stream.is_head_sent = True
            stream.send(_head(stream))


def end_call(stream: Stream, code: grpc.StatusCode, details: str = "") -> None:
    """End a call with this status; do nothing if it has ended already."""
    if stream.is_local_done or stream.failure is not None:
        return
    if code is grpc.StatusCode.OK and stream.has_partial_write:
        code, details = grpc.StatusCode.INTERNAL, "an answer was given up half-way"
    if code is grpc.StatusCode.OK:
        head = b"" if stream.is_head_sent else _head(stream)
        stream.end(head + _last(stream, _OK))
    else:
        status = (("grpc-status", str(code.value[0])),)
        text = (("grpc-message", headers.encode_message(details)),)
        first = b"" if stream.is_head_sent else _HEAD
        stream.end(_last(stream, first + headers.encode(status + text)))
    if not stream.is_remote_done:
        # The caller may go on writing, but no handler reads its messages.
        stream.on_failed = None
        stream.reset(grpc.StatusCode.CANCELLED, "the call has ended", frames.NO_ERROR)


def _head(stream: Stream) -> bytes:
    return frames.frame(frames.HEADERS, frames.END_HEADERS, stream.id, _HEAD)


def _last(stream: Stream, block: bytes) -> bytes:
    flags = frames.END_HEADERS | frames.END_STREAM
    return frames.frame(frames.HEADERS, flags, stream.id, block)
