"""One stream of a connection: gRPC messages in both directions, under flow control."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc

from kvorum.runtime.errors import invariant
from kvorum.runtime.http2 import frames
from kvorum.runtime.http2.frames import MESSAGE_BYTES_MAX, MESSAGE_HEAD_BYTES
from kvorum.runtime.http2.incoming import STREAM_WINDOW, Incoming, StreamConnection
from kvorum.runtime.http2.status import StreamEnded

__all__ = ["STREAM_WINDOW", "Stream"]


class Stream(Incoming):
    """What one call sends and receives.

    headers: of the peer, empty until they came. trailers: of a server, at its stream's end.
    failure: why the stream ended before its time; on_failed is called then. is_remote_done,
    is_local_done: nothing more comes, nothing more may be sent. is_head_sent: of a server, its
    headers have gone. is_torn: a write was given up half-way, no message can follow.
    """

    __slots__ = (
        "_is_writing",
        "_writer",
        "headers",
        "is_head_sent",
        "is_torn",
        "on_failed",
        "send_window",
        "trailers",
    )

    def __init__(self, connection: StreamConnection, stream_id: int, *, send_window: int) -> None:
        super().__init__(connection, stream_id)
        self.send_window = send_window
        self.headers: dict[str, str] = {}
        self.trailers: dict[str, str] = {}
        self.on_failed: Callable[[], object] | None = None
        self.is_head_sent = False
        self.is_torn = False
        self._is_writing = False
        self._writer: asyncio.Future[None] | None = None

    def on_remote_done(self) -> None:
        """The peer will send no more."""
        self.is_remote_done = True
        self._wake_reader()
        if self.is_local_done:
            self._connection.forget(self)

    async def write(self, message: bytes) -> None:
        """Send a message; waits while the peer, or the socket, takes no more. Raises StreamEnded.

        One writer at a time: the pieces of two messages would mix, so a second is a bug, and told
        so. Who is cancelled half-way through a message leaves a stream that takes no other."""
        if self._is_writing:
            invariant(False, "two writers at once on one stream")
        if not self.try_write(message):
            await self._write_in_pieces(message)

    def try_finish(self, head: bytes, message: bytes, last: bytes = b"") -> bool:
        """Send in one: head, the only message, and `last`, the frame that ends this side.

        Without one the message's frame ends it. False if that does not fit now; nothing was sent.
        """
        length = len(message) + MESSAGE_HEAD_BYTES
        if length > self.room() or self.failure is not None or self.is_local_done:
            return False
        self.send_window -= length
        self._connection.send_window -= length
        self.end(head + frames.message_frame(self.id, message, ends_stream=not last) + last)
        return True

    def room(self) -> int:
        """Bytes that one frame may carry now; 0 or less: none."""
        connection = self._connection
        if connection.is_congested:
            return 0
        return min(self.send_window, connection.send_window, connection.frame_bytes_max)

    def try_write(self, message: bytes) -> bool:
        """Send a message at once, if it fits one frame now. Raises StreamEnded.

        False if it does not: nothing was sent, and `write` waits until it can be.
        """
        if self.failure is not None or self.is_local_done or self.is_torn:
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
                    # All that wait are woken in turn, and the first may take all there is.
                    connection.put_last(self)
                    has_waited = False
        finally:
            self._is_writing = False
            self.is_torn = 0 < len(view) < size + MESSAGE_HEAD_BYTES

    async def _room_or_end(self) -> None:
        self._writer = asyncio.get_running_loop().create_future()
        try:
            await self._writer
        finally:
            self._writer = None
        if self.failure is not None or self.is_local_done:
            raise self._ended()

    def send(self, head: bytes) -> None:
        """Send a frame that no window counts."""
        self._connection.send(head)

    def end(self, last: bytes) -> None:
        """Send the frame that ends this side: trailers, or the last of a request."""
        self._connection.send(last)
        self.note_local_done()

    def note_local_done(self) -> None:
        """Nothing more is sent; a write under way hears that."""
        self.is_local_done = True
        self.wake_writer()
        if self.is_remote_done:
            self._connection.forget(self)

    def add_window(self, increment: int) -> None:
        """The peer takes so many bytes more."""
        self.send_window += increment
        if self.send_window > frames.WINDOW_MAX:
            code = frames.FLOW_CONTROL_ERROR
            self.reset(grpc.StatusCode.INTERNAL, "the stream's window overflows", code)
        self.wake_writer()

    def wake_writer(self) -> None:
        """There may be room again, or never will be."""
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)

    # The end.

    def fail(self, code: grpc.StatusCode, details: str) -> None:
        """The stream is over; messages that came before can still be read."""
        if self.failure is None and not (self.is_local_done and self.is_remote_done):
            self.failure = StreamEnded(code, details)
            if self.on_failed is not None:
                self.on_failed()
        self._connection.forget(self)
        self._wake_reader()
        self.wake_writer()

    def reset(self, code: grpc.StatusCode, details: str, error: int = frames.CANCEL) -> None:
        """Give the stream up and tell the peer."""
        if self.failure is None and not (self.is_local_done and self.is_remote_done):
            self._connection.send(frames.rst_stream(self.id, error))
            self.fail(code, details)

    def _ended(self) -> StreamEnded:
        # A new one each time: a raised exception keeps the frames that it went through.
        if self.failure is not None:
            return StreamEnded(self.failure.code, self.failure.details)
        why = "an earlier message was given up half-way" if self.is_torn else "it is finished"
        return StreamEnded(grpc.StatusCode.INTERNAL, f"nothing can be sent on the stream: {why}")

    def _abort(self, code: grpc.StatusCode, details: str) -> None:
        self._partial.clear()
        self._connection.on_bad_message(self, code, details)
