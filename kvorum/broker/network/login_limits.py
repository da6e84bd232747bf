"""Limits on what a broker spends on clients before they have logged in. Pure.

Anyone who reaches a listener can connect, and max.connections allows thousands of connections. So a
connection begins with a small buffer, and all connections without a login share the bytes by which
their buffers may grow. A login fits into the small buffer, so clients that use up the shared bytes
keep no other client from logging in.
"""

from __future__ import annotations

STRANGERS_BYTES = 4 * 1024
"""First size of the receive buffer of a client that has not logged in. A login with a token takes
two or three thousand bytes."""
SHARED_BYTES = 32 * 1024 * 1024
"""Bytes by which the buffers of all these clients together may grow."""
LOGIN_TIMEOUT_MS = 60_000
"""Time from connecting to the end of the login, checked together with idle connections. Bytes that
arrive meanwhile do not extend it."""


class LoginMemory:
    """The shared bytes of one broker. left: the bytes that no connection has taken."""

    def __init__(self, size: int = SHARED_BYTES) -> None:
        self.left = size

    def take(self, count: int) -> bool:
        """Take `count` bytes. False, and nothing is taken, if fewer are left."""
        if count > self.left:
            return False
        self.left -= count
        return True

    def give_back(self, count: int) -> None:
        """Return what was taken."""
        self.left += count
