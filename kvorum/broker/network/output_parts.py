"""What a connection sends: bytes, and slices of files, which the kernel copies by sendfile."""

from __future__ import annotations

import errno
from typing import Any

from kvorum.wire.fetch_codec import FileSlice

Part = bytes | bytearray | memoryview | FileSlice

SOCKET_ERRNOS = frozenset(
    {
        errno.EAGAIN, errno.EPIPE, errno.ECONNRESET, errno.ECONNABORTED, errno.ENOTCONN,
        errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.ENOBUFS,
    }
)  # fmt: skip
"""Errors of sendfile that are the socket's. Others may be the file's."""


def part_size(part: Part) -> int:
    """Its bytes that are still to be sent."""
    return len(part) if isinstance(part, bytes | bytearray | memoryview) else part.length


class FileSend:
    """A file slice being sent: the next position and the bytes left."""

    __slots__ = ("left", "position", "source")

    def __init__(self, source: Any) -> None:
        self.source = source
        self.position: int = source.position
        self.left: int = source.length

    @property
    def length(self) -> int:
        return self.left

    def read(self) -> bytes:
        data: bytes = self.source.file.pread(self.left, self.position)
        return data
