"""The receiving half of a stream: gRPC messages out of DATA frames, and the credit for more."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import grpc

from kvorum.runtime.errors import invariant
from kvorum.runtime.http2 import frames
from kvorum.runtime.http2.frames import MESSAGE_BYTES_MAX, MESSAGE_HEAD_BYTES, ProtocolError
from kvorum.runtime.http2.status import StreamEnded

STREAM_WINDOW = 4 << 20
"""Bytes that a peer may send on a stream before somebody reads them."""


class StreamConnection(Protocol):
    """The connection of a stream, as the stream uses it (`connection.Connection`)."""

    send_window: int

    @property
    def is_congested(self) -> bool: ...

    @property
    def frame_bytes_max(self) -> int: ...

    def send(self, data: bytes) -> None: ...

    def forget(self, stream: Any) -> None: ...

    def put_last(self, stream: Any) -> None: ...

    def on_bad_message(self, stream: Any, code: grpc.StatusCode, details: str) -> None: ...


class Incoming:
    """The receiving half of a stream: somebody reads message by message, or listens to all.

    failure: why the stream ended before its time. is_remote_done: nothing more comes.
    """

    __slots__ = (
        "_connection",
        "_held_bytes",
        "_listener",
        "_messages",
        "_partial",
        "_reader",
        "_used_window",
        "failure",
        "id",
        "is_local_done",
        "is_remote_done",
    )

    def __init__(self, connection: StreamConnection, stream_id: int) -> None:
        self.id = stream_id
        self.failure: StreamEnded | None = None
        self.is_remote_done = False
        self.is_local_done = False
        self._connection = connection
        self._messages: deque[bytes] = deque()
        self._held_bytes = 0
        self._used_window = 0
        self._partial = bytearray()
        self._reader: asyncio.Future[None] | None = None
        self._listener: Callable[[bytes], None] | None = None

    async def read(self) -> bytes | None:
        """The next message, None behind the last one. Raises StreamEnded.

        One reader at a time; a second is a bug, and told so."""
        while not self._messages:
            if self._is_over():
                return None
            await self._woken()
        return self._next()

    async def listen(self, on_message: Callable[[bytes], None]) -> None:
        """Hand on_message every message the moment it comes; returns behind the last one.

        Neither a turn of the loop nor a change of task lies between the socket and on_message,
        which must not block. Raises StreamEnded, and what on_message raised: it hears no more then.
        """
        while self._messages:
            on_message(self._next())
        if self._is_over():
            return
        self._listener = on_message
        try:
            await self._woken()
        finally:
            self._listener = None
        self._is_over()

    def interrupt(self, error: Exception) -> None:
        """Raise this error in the task that reads or listens now, which gets no more messages; the
        stream itself goes on."""
        if self._reader is not None and not self._reader.done():
            self._reader.set_exception(error)

    def _next(self) -> bytes:
        message = self._messages.popleft()
        self._held_bytes -= len(message) + MESSAGE_HEAD_BYTES
        if self._used_window > STREAM_WINDOW // 2:
            self._give_credit()
        return message

    def _is_over(self) -> bool:
        """True if nothing more comes. Raises StreamEnded if that is before its time."""
        if self.failure is not None:
            raise self._ended()
        return self.is_remote_done

    async def _woken(self) -> None:
        """Until a message comes that nobody listens to, or the end."""
        invariant(self._reader is None, "two readers at once on one stream")
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    @property
    def is_cut(self) -> bool:
        """True if the last bytes are the beginning of a message."""
        return bool(self._partial)

    def on_data(self, data: bytes, window_bytes: int) -> None:
        """A DATA frame came, window_bytes long with its padding. Raises ProtocolError."""
        self._used_window += window_bytes
        if self._used_window > STREAM_WINDOW:
            raise ProtocolError(
                f"more than {STREAM_WINDOW} bytes on a stream that nobody reads",
                frames.FLOW_CONTROL_ERROR,
            )
        if self._partial:
            self._partial += data
            self._take_partial()
        else:
            size = len(data)
            whole = MESSAGE_HEAD_BYTES + int.from_bytes(data[1:MESSAGE_HEAD_BYTES], "big")
            if size == whole and not data[0]:  # the usual case: one message a frame
                self._add(data[MESSAGE_HEAD_BYTES:])
            elif size:
                self._partial += data
                self._take_partial()
        if self._used_window > STREAM_WINDOW // 2:
            self._give_credit()

    def _take_partial(self) -> None:
        partial = self._partial
        at = 0
        while len(partial) - at >= MESSAGE_HEAD_BYTES:
            size = int.from_bytes(partial[at + 1 : at + MESSAGE_HEAD_BYTES], "big")
            if partial[at]:
                self._abort(grpc.StatusCode.UNIMPLEMENTED, "compressed messages are not served")
                return
            if size > MESSAGE_BYTES_MAX:
                self._abort(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"a message of {size} bytes is over {MESSAGE_BYTES_MAX}",
                )
                return
            end = at + MESSAGE_HEAD_BYTES + size
            if len(partial) < end:
                break
            self._add(bytes(partial[at + MESSAGE_HEAD_BYTES : end]))
            at = end
        del partial[:at]

    def _add(self, message: bytes) -> None:
        listener, reader = self._listener, self._reader
        # A listener that was interrupted or cancelled listens no more, although it has yet to
        # notice.
        if listener is not None and reader is not None and not reader.done():
            try:
                listener(message)
            except Exception as error:
                if reader.done():
                    raise  # it has stopped listening within this very call
                reader.set_exception(error)
            return
        self._messages.append(message)
        # With its head: or a peer could fill the memory with messages of no bytes.
        self._held_bytes += len(message) + MESSAGE_HEAD_BYTES
        self._wake_reader()

    def _give_credit(self) -> None:
        # Messages that wait to be read keep their share of the window: that slows the sender down.
        credit = self._used_window - self._held_bytes
        if credit > STREAM_WINDOW // 2 and not self.is_remote_done and self.failure is None:
            self._used_window -= credit
            self._connection.send(frames.window_update(self.id, credit))

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # The state of the whole stream.

    def _ended(self) -> StreamEnded:
        raise NotImplementedError

    def _abort(self, code: grpc.StatusCode, details: str) -> None:
        raise NotImplementedError
