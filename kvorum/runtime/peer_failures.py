"""Unexpected errors of callbacks that handle a peer: its connection ends, and the node lives.

A peer is a client or another node. What it sends may show a bug that no check has foreseen. Such a
bug costs the peer its connection, a count and a line in the log. It must not end the node, or one
client could stop a cluster by calling at each of its nodes.

A callback closes the peer's connection and passes the error to `report`, which gives it to the
event loop's exception handler: a node's handler (`daemon.process`) goes on, while tests and the
simulator fail. Errors for which `ends_the_node` is true are of this node's own state, whoever
caused the callback.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Mapping
from typing import Any

from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.errors import CorruptData, InvariantViolated, shortage_of
from kvorum.runtime.limited_lines import LimitedLines
from kvorum.runtime.protocol_error_log import ProtocolErrorLog
from kvorum.runtime.text import address_text

logger = logging.getLogger("kvorum.node")

PEER = "peer"
"""Key of the exception handler's context: the address of the peer whose connection was closed."""
_OF_A_CONNECTION = ("transport", "protocol", "socket")
"""Keys by which asyncio names the connection, or the listening socket, that an error belongs to."""

SHORTAGE_PAUSE_MS = 10_000
"""Pause between two lines of the log on a shortage of the process: each connection shows it."""


def report(error: BaseException, peer: str, what: str) -> None:
    """Pass on an error of `what`; the caller has closed the connection of `peer`."""
    asyncio.get_running_loop().call_exception_handler(
        {"message": f"{what} failed", "exception": error, PEER: peer}
    )


def ends_the_node(error: BaseException) -> bool:
    """True if this node's own state or disk is at fault: nothing may be written or answered any
    more, and the next start recovers from the disk. An OSError with a file's name is of a disk,
    unless the process lacks descriptors or memory."""
    if isinstance(error, OSError):
        return error.filename is not None and not shortage_of(error)
    return isinstance(error, InvariantViolated | CorruptData) or not isinstance(error, Exception)


def peer_in(context: Mapping[str, Any]) -> str | None:
    """The peer in an exception handler's context; None if the error belongs to no connection."""
    if PEER in context:
        return str(context[PEER])
    for key in _OF_A_CONNECTION:
        if context.get(key) is not None:
            transport = context.get("transport")
            name = None if transport is None else transport.get_extra_info("peername")
            return address_text(*name[:2]) if isinstance(name, tuple) else "a peer"
    return None


class PeerFailures:
    """Counts and logs the errors of a process.

    count: of all since the start.
    rpc_handshakes: TLS handshakes of gRPC that failed, and certificates that gave no user.
    """

    def __init__(self) -> None:
        self.count = 0
        self.rpc_handshakes = 0
        self._shortage_told_until_ms = 0
        self._lines = LimitedLines(
            logger,
            monotonic_ms,
            ProtocolErrorLog(
                "connection closed after an internal error",
                "connections closed after internal errors",
            ),
        )

    def note(self, error: BaseException, peer: str, message: str) -> None:
        """Count an error, with a line in the log: a few a second. The traceback is for DEBUG. A
        shortage of the process, such as of descriptors, is no bug: it is not counted, and is told
        every SHORTAGE_PAUSE_MS at the most."""
        lack = shortage_of(error)
        if lack:
            if (now_ms := monotonic_ms()) >= self._shortage_told_until_ms:
                self._shortage_told_until_ms = now_ms + SHORTAGE_PAUSE_MS
                logger.warning("peer=%s %s: %r; %s", peer, message, error, lack)
            return
        self.count += 1
        at = traceback.extract_tb(error.__traceback__)
        where = f" at {at[-1].filename.rpartition('/kvorum/')[2]}:{at[-1].lineno}" if at else ""
        self._lines.closed(peer, f"{message}{where}: {error!r}")
        logger.debug("the error of %s", peer, exc_info=error)


PEER_FAILURES = PeerFailures()
"""Of this process: a process is one node, and has one exception handler."""
