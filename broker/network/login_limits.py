"""What clients may cost a broker before they have logged in. Pure.

Everybody who reaches a listener can connect, and max.connections lets in thousands. So a client
that nobody knows begins with a small buffer, and all of them together share the bytes by which
those may grow. A login fits into the first bytes, so those who use the rest up keep nobody out.
"""

from __future__ import annotations

STRANGERS_BYTES = 4 * 1024
"""Received bytes of a client before its login. A login with a token has two or three thousand."""
SHARED_BYTES = 32 * 1024 * 1024
"""Further bytes of all these clients together."""
LOGIN_TIMEOUT_MS = 60_000
"""Time from the connection to the login; looked at with the idle connections. A byte now and then
keeps no connection."""


class LoginMemory:
    """The shared bytes of one broker. left: those that nobody has taken."""

    def __init__(self, size: int = SHARED_BYTES) -> None:
        self.left = size

    def take(self, count: int) -> bool:
        """False if there are not as many left."""
        if count > self.left:
            return False
        self.left -= count
        return True

    def give_back(self, count: int) -> None:
        """Return what was taken."""
        self.left += count
