"""Writes the lines of `protocol_error_log`: the driver, with its timer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kvorum.runtime.protocol_error_log import ProtocolErrorLog


class LimitedLines:
    """Logs warnings of closed connections, or of other refusals, at most a few a second.

    now_ms: a clock that never goes back.
    log: makes the lines, by default of closed connections.
    """

    def __init__(
        self,
        logger: logging.Logger,
        now_ms: Callable[[], int],
        log: ProtocolErrorLog | None = None,
    ) -> None:
        self._logger = logger
        self._now_ms = now_ms
        self._lines = log or ProtocolErrorLog()
        self._timer: asyncio.TimerHandle | None = None

    def closed(self, peer: str, reason: str, *, address: str = "") -> None:
        """Report a connection that is closed for this reason, now or within a second. address: see
        `ProtocolErrorLog.closed`."""
        now_ms = self._now_ms()
        for line in self._lines.closed(peer, reason, now_ms, address=address):
            self._logger.warning("%s", line)
        if self._timer is None:
            self._arm(now_ms)

    def stop(self) -> None:
        """Write nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, now_ms: int) -> None:
        # At least a millisecond: the timer may fire a moment early.
        if self._lines.has_more:
            self._timer = asyncio.get_running_loop().call_later(
                max(self._lines.more_due_ms - now_ms, 1) / 1000, self._write_more
            )

    def _write_more(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        for line in self._lines.more(now_ms):
            self._logger.warning("%s", line)
        self._arm(now_ms)
