"""A limit of the time that handshakes take from an event loop."""

from __future__ import annotations

import asyncio

HANDSHAKE_TURN_S = 0.005
"""Time for handshakes in a turn of the event loop; one costs 1 to 3 ms. The rest waits, so that a
thousand new clients do not hold up those that are connected."""


class HandshakeTurn:
    """The time that a turn of the event loop has left for handshakes. One for all connections."""

    def __init__(self) -> None:
        self._spent_s = 0.0
        self._is_renewed = True

    @property
    def is_spent(self) -> bool:
        """True if handshakes must wait for the next turn."""
        return self._spent_s >= HANDSHAKE_TURN_S

    def spend(self, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        """Count the time of a handshake's step."""
        self._spent_s += seconds
        if self._is_renewed:
            self._is_renewed = False
            loop.call_soon(self._renew)

    def _renew(self) -> None:
        self._spent_s = 0.0
        self._is_renewed = True
