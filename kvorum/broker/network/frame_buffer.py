"""Bytes from a socket, received into one growing buffer and handed out as frames in place.

Both ends of the Kafka protocol use it. A frame's bytes stay valid until the next `receive`. A frame
size that a peer announces allocates nothing: the buffer doubles only when it is full, so it is at
most twice what has arrived. Large buffers are anonymous maps, which Linux enlarges without copying.
"""

from __future__ import annotations

import mmap
from typing import Protocol

from kvorum.broker.network.login_limits import LoginMemory
from kvorum.runtime.errors import WireError
from kvorum.wire.framing import FRAME_SIZE_BYTES, frame_size

FIRST_BYTES = 64 * 1024
EAGER_BYTES_MAX = 1024 * 1024
"""A full buffer doubles up to this size even if no frame needs it: fewer, larger reads."""
MAP_BYTES_MIN = 128 * 1024
"""Buffers from this size on are anonymous maps: growing by copying costs a page fault for each new
page."""
KEEP_BYTES_MAX = 4 * 1024 * 1024
"""A buffer above this size is released when it is empty and less than a quarter of it was used
since it was last empty. One huge request must not hold memory for ever, and a row of them must not
allocate a buffer each."""


class ByteSource(Protocol):
    """The part of a socket that is read from."""

    def recv_into(self, buffer: memoryview, /) -> int: ...


class FrameBuffer:
    """The receive buffer of one connection.

    frame_bytes_max: largest frame that a peer may announce; above it, WireError.
    memory: shared with others; this buffer takes from it what it grows by, until `release`.
    """

    __slots__ = ("_buffer", "_end", "_memory", "_start", "_taken", "frame_bytes_max", "view")

    def __init__(
        self,
        frame_bytes_max: int,
        first_bytes: int = FIRST_BYTES,
        memory: LoginMemory | None = None,
    ) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._memory = memory
        self._taken = 0
        self._buffer: bytearray | mmap.mmap = bytearray(first_bytes)
        self.view = memoryview(self._buffer)
        self._start = 0
        self._end = 0

    def receive(self, sock: ByteSource) -> int:
        """Read once from the socket; returns the number of bytes, 0 at the end of the stream.

        Raises BlockingIOError, WireError, OSError (ConnectionAbortedError if there is no memory).
        """
        self._make_room()
        count = sock.recv_into(self.view[self._end :])
        self._end += count
        return count

    def release(self) -> None:
        """Give the shared memory back: after the login, when only `frame_bytes_max` bounds this
        buffer, or when the connection closes. May be called again."""
        if self._memory is not None:
            self._memory.give_back(self._taken)
            self._memory = None

    def shrink(self, capacity: int) -> None:
        """Fall back to `capacity` if nothing is received: the peer has been idle for a while. No
        view of a frame may be in use."""
        if self._start == self._end and len(self._buffer) > capacity and self._memory is None:
            self._start = self._end = 0
            self._resize(capacity)

    @property
    def has_more(self) -> bool:
        """True if received bytes have not been handed out yet."""
        return self._end > self._start

    def next_frame(self) -> tuple[int, int] | None:
        """(position, end) in `view` of the next whole frame without its size field; None if there
        is none."""
        start = self._start
        if self._end - start < FRAME_SIZE_BYTES:
            return None
        end = start + FRAME_SIZE_BYTES + frame_size(self.view, start, self.frame_bytes_max)
        if end > self._end:
            return None
        self._start = end
        return start + FRAME_SIZE_BYTES, end

    def _make_room(self) -> None:
        start, end, capacity = self._start, self._end, len(self._buffer)
        if start == end:
            self._start = self._end = 0
            # end is 0 if the last read found nothing, which says nothing about the size that is
            # needed.
            if capacity > KEEP_BYTES_MAX and 0 < end < capacity // 4:
                self._resize(FIRST_BYTES)
            elif end == capacity < FIRST_BYTES:
                self._resize(capacity * 2)
            return
        needed = FRAME_SIZE_BYTES
        if end - start >= FRAME_SIZE_BYTES:
            needed += frame_size(self.view, start, self.frame_bytes_max)
        if end == capacity and needed <= capacity < EAGER_BYTES_MAX:
            needed = capacity * 2
        if needed > capacity:
            # Grow only when full: a frame that never arrives must not cost memory.
            if end == capacity:
                self._resize(min(needed, capacity * 2))
        elif start + needed > capacity or end == capacity:
            self._compact()

    def _compact(self) -> None:
        kept = self._end - self._start
        self._buffer[:kept] = self._buffer[self._start : self._end]
        self._start, self._end = 0, kept

    def _resize(self, capacity: int) -> None:
        if self._memory is not None:
            growth = capacity - len(self._buffer)
            if not self._memory.take(growth):
                raise WireError("too many bytes of clients that have not logged in")
            self._taken += growth
        if isinstance(self._buffer, mmap.mmap) and self._grow_in_place(self._buffer, capacity):
            return
        fresh = _buffer_of(capacity)
        kept = self._end - self._start
        fresh[:kept] = self.view[self._start : self._end]
        self._buffer, self.view = fresh, memoryview(fresh)
        self._start, self._end = 0, kept

    def _grow_in_place(self, buffer: mmap.mmap, capacity: int) -> bool:
        if capacity < len(buffer):
            return False
        if self._start:
            self._compact()
        # The map cannot be resized while a view of it exists.
        self.view = _NO_VIEW
        try:
            buffer.resize(capacity)
        except (BufferError, SystemError):
            # A caller still has a view of an earlier frame, or the system is not Linux.
            return False
        except OSError as failure:
            raise _no_memory(capacity) from failure
        finally:
            self.view = memoryview(buffer)
        return True


_NO_VIEW = memoryview(b"")


def _buffer_of(capacity: int) -> bytearray | mmap.mmap:
    if capacity < MAP_BYTES_MIN:
        return bytearray(capacity)
    try:
        # MAP_PRIVATE: a shared map cannot grow.
        return mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as failure:
        raise _no_memory(capacity) from failure


def _no_memory(capacity: int) -> ConnectionAbortedError:
    return ConnectionAbortedError(f"no memory for {capacity} bytes that were sent")
