"""One stream of a connection: gRPC messages in both directions, with flow control."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

import grpc

from kvorum.runtime.errors import invariant
from kvorum.runtime.http2 import frames
from kvorum.runtime.http2.frames import MESSAGE_BYTES_MAX, MESSAGE_HEAD_BYTES, ProtocolError
from kvorum.runtime.http2.status import StreamEnded, status_of

STREAM_WINDOW = 4 << 20
"""Bytes that a peer may send on a stream before the application reads them."""


class StreamConnection(Protocol):
    """The parts of `connection.Connection` that a stream uses."""

    send_window: int

    @property
    def is_congested(self) -> bool: ...

    @property
    def frame_bytes_max(self) -> int: ...

    def send(self, data: bytes) -> None: ...

    def forget(self, stream: Stream) -> None: ...

    def put_last(self, stream: Stream) -> None: ...

    def on_bad_message(self, stream: Stream, code: grpc.StatusCode, details: str) -> None: ...


class Stream:
    """The messages of one call. A task reads them one by one, or listens to all.

    headers: from the peer, empty until they arrive.
    trailers: from a server, at the end of its stream.
    failure: why the stream ended early; on_failed is called then.
    is_remote_done, is_local_done: the peer, or this side, will send nothing more.
    is_head_sent: on a server, its headers have been sent.
    has_partial_write: a write was abandoned inside a message, so no other message can follow.
    """

    __slots__ = (
        "_connection",
        "_held_bytes",
        "_is_writing",
        "_listener",
        "_messages",
        "_partial",
        "_reader",
        "_used_window",
        "_writer",
        "failure",
        "has_partial_write",
        "headers",
        "id",
        "is_head_sent",
        "is_local_done",
        "is_remote_done",
        "on_failed",
        "send_window",
        "trailers",
    )

    def __init__(self, connection: StreamConnection, stream_id: int, *, send_window: int) -> None:
        self.id = stream_id
        self.send_window = send_window
        self.headers: dict[str, str] = {}
        self.trailers: dict[str, str] = {}
        self.failure: StreamEnded | None = None
        self.on_failed: Callable[[], object] | None = None
        self.is_remote_done = False
        self.is_local_done = False
        self.is_head_sent = False
        self.has_partial_write = False
        self._connection = connection
        self._messages: deque[bytes] = deque()
        self._held_bytes = 0
        self._used_window = 0
        self._partial = bytearray()
        self._reader: asyncio.Future[None] | None = None
        self._listener: Callable[[bytes], None] | None = None
        self._is_writing = False
        self._writer: asyncio.Future[None] | None = None

    # Receiving.

    async def read(self) -> bytes | None:
        """The next message, None after the last one. Raises StreamEnded.

        Only one reader at a time; a second one is a bug and raises InvariantViolated.
        """
        while not self._messages:
            if self._is_over():
                return None
            await self._woken()
        return self._next()

    async def listen(self, on_message: Callable[[bytes], None]) -> None:
        """Call on_message with every message as it arrives; return after the last one.

        on_message runs directly in the socket's callback, without a task switch, and must not
        block. Raises StreamEnded, and any error of on_message, which then gets no more messages.
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
        """Raise this error in the task that is reading or listening, which then gets no more
        messages. The stream itself goes on."""
        if self._reader is not None and not self._reader.done():
            self._reader.set_exception(error)

    def _next(self) -> bytes:
        message = self._messages.popleft()
        self._held_bytes -= len(message) + MESSAGE_HEAD_BYTES
        if self._used_window > STREAM_WINDOW // 2:
            self._give_credit()
        return message

    def _is_over(self) -> bool:
        """True if no more messages come. Raises StreamEnded if the stream ended early."""
        if self.failure is not None:
            raise self._ended()
        return self.is_remote_done

    async def _woken(self) -> None:
        """Wait for a message without a listener, or for the end."""
        invariant(self._reader is None, "two readers at once on one stream")
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    @property
    def has_partial_message(self) -> bool:
        """True if the last bytes are an incomplete message."""
        return bool(self._partial)

    def check_status(self) -> None:
        """Raise StreamEnded unless the server ended the stream with OK, after a whole message."""
        code, details = status_of(self.headers, self.trailers)
        if code is grpc.StatusCode.OK and self.has_partial_message:
            code, details = grpc.StatusCode.INTERNAL, "the stream ended in the middle of a message"
        if code is not grpc.StatusCode.OK:
            raise StreamEnded(code, details)

    def on_data(self, data: bytes, window_bytes: int) -> None:
        """Take in a DATA frame of window_bytes, padding included. Raises ProtocolError."""
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
            if size == whole and not data[0]:  # the usual case: one message in a frame
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
        # A listener that was interrupted or cancelled gets no more messages, even before it runs.
        if listener is not None and reader is not None and not reader.done():
            try:
                listener(message)
            except Exception as error:
                if reader.done():
                    raise  # the listener ended within this call
                reader.set_exception(error)
            return
        self._messages.append(message)
        # Count the message head too; otherwise empty messages could fill the memory.
        self._held_bytes += len(message) + MESSAGE_HEAD_BYTES
        self._wake_reader()

    def _give_credit(self) -> None:
        # Unread messages keep their part of the window, which slows the sender down.
        credit = self._used_window - self._held_bytes
        if credit > STREAM_WINDOW // 2 and not self.is_remote_done and self.failure is None:
            self._used_window -= credit
            self._connection.send(frames.window_update(self.id, credit))

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def on_remote_done(self) -> None:
        """Note that the peer will send nothing more."""
        self.is_remote_done = True
        self._wake_reader()
        if self.is_local_done:
            self._connection.forget(self)

    # Sending.

    async def write(self, message: bytes) -> None:
        """Send a message; wait while the peer or the socket is full. Raises StreamEnded.

        Only one writer at a time: parts of two messages would mix, so a second writer is a bug and
        raises InvariantViolated. After a cancellation inside a message, the stream accepts no other
        message.
        """
        if self._is_writing:
            invariant(False, "two writers at once on one stream")
        if not self.try_write(message):
            await self._write_in_pieces(message)

    def try_finish(self, head: bytes, message: bytes, last: bytes = b"") -> bool:
        """Send head, the only message, and `last`, the frame that ends this side, all at once.

        Without `last`, the frame of the message ends this side. False if it does not fit now; then
        nothing was sent.
        """
        length = len(message) + MESSAGE_HEAD_BYTES
        if length > self.room() or self.failure is not None or self.is_local_done:
            return False
        self.send_window -= length
        self._connection.send_window -= length
        self.end(head + frames.message_frame(self.id, message, ends_stream=not last) + last)
        return True

    def room(self) -> int:
        """Number of bytes that one frame may carry now; 0 or less means none."""
        connection = self._connection
        if connection.is_congested:
            return 0
        return min(self.send_window, connection.send_window, connection.frame_bytes_max)

    def try_write(self, message: bytes) -> bool:
        """Send a message at once if it fits into one frame now. Raises StreamEnded.

        False if it does not fit; then nothing was sent, and `write` would wait.
        """
        if self.failure is not None or self.is_local_done or self.has_partial_write:
            raise self._ended()
        length = len(message) + MESSAGE_HEAD_BYTES
        connection = self._connection
        if self._is_writing or length > self.room():
            return False
        self.send_window -= length
        connection.send_window -= length
        connection.send(frames.message_frame(self.id, message, ends_stream=False))
        return True

    async def _write_in_pieces(self, message: bytes) -> None:
        size = len(message)
        if size > MESSAGE_BYTES_MAX:
            text = f"a message of {size} bytes is over {MESSAGE_BYTES_MAX}"
            raise StreamEnded(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        view = memoryview(frames.message_head(size) + message)
        connection = self._connection
        self._is_writing = True
        has_waited = False
        try:
            while view:
                room = self.room()
                if room <= 0:
                    await self._room_or_end()
                    has_waited = True
                    continue
                piece, view = view[:room], view[room:]
                self.send_window -= len(piece)
                connection.send_window -= len(piece)
                connection.send(frames.frame(frames.DATA, 0, self.id, bytes(piece)))
                if has_waited:
                    # Move this stream to the end: waiting streams are woken in order, and the first
                    # may take all the room.
                    connection.put_last(self)
                    has_waited = False
        finally:
            self._is_writing = False
            self.has_partial_write = 0 < len(view) < size + MESSAGE_HEAD_BYTES

    async def _room_or_end(self) -> None:
        self._writer = asyncio.get_running_loop().create_future()
        try:
            await self._writer
        finally:
            self._writer = None
        if self.failure is not None or self.is_local_done:
            raise self._ended()

    def send(self, head: bytes) -> None:
        """Send a frame that does not count toward a window."""
        self._connection.send(head)

    def end(self, last: bytes) -> None:
        """Send the frame that ends this side: trailers, or the last frame of a request."""
        self._connection.send(last)
        self.note_local_done()

    def note_local_done(self) -> None:
        """Note that this side sends nothing more; a waiting write fails."""
        self.is_local_done = True
        self.wake_writer()
        if self.is_remote_done:
            self._connection.forget(self)

    def add_window(self, increment: int) -> None:
        """Enlarge the send window by `increment` bytes, as the peer allows."""
        self.send_window += increment
        if self.send_window > frames.WINDOW_MAX:
            code = frames.FLOW_CONTROL_ERROR
            self.reset(grpc.StatusCode.INTERNAL, "the stream's window overflows", code)
        self.wake_writer()

    def wake_writer(self) -> None:
        """Wake the writer: there may be room again, or the stream has ended."""
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)

    # Ending.

    def fail(self, code: grpc.StatusCode, details: str) -> None:
        """End the stream early; messages that arrived before can still be read."""
        if self.failure is None and not (self.is_local_done and self.is_remote_done):
            self.failure = StreamEnded(code, details)
            if self.on_failed is not None:
                self.on_failed()
        self._connection.forget(self)
        self._wake_reader()
        self.wake_writer()

    def reset(self, code: grpc.StatusCode, details: str, error: int = frames.CANCEL) -> None:
        """End the stream early and tell the peer."""
        if self.failure is None and not (self.is_local_done and self.is_remote_done):
            self._connection.send(frames.rst_stream(self.id, error))
            self.fail(code, details)

    def _ended(self) -> StreamEnded:
        # A new exception each time, because a raised one keeps the frames of its traceback.
        if self.failure is not None:
            return StreamEnded(self.failure.code, self.failure.details)
        why = (
            "an earlier message was given up half-way"
            if self.has_partial_write
            else "it is finished"
        )
        return StreamEnded(grpc.StatusCode.INTERNAL, f"nothing can be sent on the stream: {why}")

    def _abort(self, code: grpc.StatusCode, details: str) -> None:
        self._partial.clear()
        self._connection.on_bad_message(self, code, details)
