"""The refusals of a caller by a gRPC server, and the growing pause after them.

Only an operator can end a refusal. Asked again at once, a server's log would grow by forty lines a
second.
"""

from __future__ import annotations

import grpc
import grpc.aio

BACKOFF_MAX_MS = 5_000
"""Longest pause of a caller that is refused."""


class Refusals:
    """Refusals in a row. sentence: the last one's, "" after an answer."""

    def __init__(self, backoff_ms: int) -> None:
        """backoff_ms: the pause of a caller that is not refused; it doubles with each refusal."""
        self.sentence = ""
        self._backoff_ms = backoff_ms
        self._count = 0

    def note(self, error: BaseException) -> bool:
        """Count the error if it is a refusal of the caller itself; True if it is one."""
        denied = grpc.StatusCode.PERMISSION_DENIED
        if not isinstance(error, grpc.aio.AioRpcError) or error.code() is not denied:
            return False
        self.sentence = error.details() or "the server refuses this caller"
        self._count += 1
        return True

    def clear(self) -> None:
        """Note an answer."""
        self.sentence = ""
        self._count = 0

    @property
    def backoff_s(self) -> float:
        """The pause before the next attempt."""
        return min(self._backoff_ms << min(self._count, 16), BACKOFF_MAX_MS) / 1000
