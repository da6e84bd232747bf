"""Bytes from a socket, received into one growing buffer and handed out as frames in place.

Used by both ends of the Kafka protocol. A frame's bytes stay valid until the next `receive`.
"""

from __future__ import annotations

import socket

from wire.framing import FRAME_SIZE_BYTES, frame_size

FIRST_BYTES = 64 * 1024
EAGER_BYTES_MAX = 1024 * 1024
"""A buffer that fills up doubles until here without being asked: fewer, larger reads."""
KEEP_BYTES_MAX = 4 * 1024 * 1024
"""An empty buffer larger than this is given back: one huge request must not cost for ever."""


class FrameBuffer:
    """frame_bytes_max: largest frame a peer may announce (WireError above it)."""

    __slots__ = ("_buffer", "_end", "_frame_bytes_max", "_start", "view")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray(FIRST_BYTES)
        self.view = memoryview(self._buffer)
        self._start = 0
        self._end = 0

    def receive(self, sock: socket.socket) -> int:
        """Read once from the socket; 0 at its end. Raises BlockingIOError, OSError, WireError."""
        self._make_room()
        count = sock.recv_into(self.view[self._end :])
        self._end += count
        return count

    def next_frame(self) -> tuple[int, int] | None:
        """(position, end) in `view` of the next whole frame, its size field not included."""
        start = self._start
        if self._end - start < FRAME_SIZE_BYTES:
            return None
        end = start + FRAME_SIZE_BYTES + frame_size(self.view, start, self._frame_bytes_max)
        if end > self._end:
            return None
        self._start = end
        return start + FRAME_SIZE_BYTES, end

    def _make_room(self) -> None:
        start, end, capacity = self._start, self._end, len(self._buffer)
        if start == end:
            self._start = self._end = 0
            if capacity > KEEP_BYTES_MAX:
                self._resize(FIRST_BYTES)
            return
        needed = FRAME_SIZE_BYTES
        if end - start >= FRAME_SIZE_BYTES:
            needed += frame_size(self.view, start, self._frame_bytes_max)
        if end == capacity and needed <= capacity < EAGER_BYTES_MAX:
            needed = capacity * 2
        if needed > capacity:
            self._resize(max(needed, min(capacity * 2, EAGER_BYTES_MAX)))
        elif start + needed > capacity or end == capacity:
            self._buffer[: end - start] = self._buffer[start:end]
            self._start, self._end = 0, end - start

    def _resize(self, capacity: int) -> None:
        fresh = bytearray(capacity)
        kept = self._end - self._start
        fresh[:kept] = self.view[self._start : self._end]
        self._buffer, self.view = fresh, memoryview(fresh)
        self._start, self._end = 0, kept
