"""A limit for passwords that are tried, by user and by address. Pure."""

from __future__ import annotations

from collections import deque

WINDOW_S = 60.0
FAILURES_OF_USER_MAX = 5
FAILURES_OF_ADDRESS_MAX = 20
KEPT_MAX = 10_000
"""Users and addresses that are remembered; the oldest are forgotten first."""


class Attempts:
    """The wrong passwords of the last minute. Times are those of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._failures: dict[tuple[str, str], deque[float]] = {}

    def refusal(self, user: str, address: str, now_s: float) -> str:
        """A sentence if no further password may be tried now, else ""."""
        for key, most in self._keys(user, address):
            failed = self._failures.get(key)
            while failed and failed[0] <= now_s - WINDOW_S:
                failed.popleft()
            if failed and len(failed) >= most:
                left_s = max(round(failed[0] + WINDOW_S - now_s), 1)
                return f"too many wrong passwords for this {key[0]}; try again in {left_s} seconds"
        return ""

    def failed(self, user: str, address: str, now_s: float) -> None:
        """Note a wrong password."""
        for key, most in self._keys(user, address):
            # The newest entry of the dict is the one that failed last.
            failed = self._failures.pop(key, None) or deque(maxlen=most)
            failed.append(now_s)
            self._failures[key] = failed
        while len(self._failures) > KEPT_MAX:
            del self._failures[next(iter(self._failures))]

    def _keys(self, user: str, address: str) -> tuple[tuple[tuple[str, str], int], ...]:
        return (
            (("user", user), FAILURES_OF_USER_MAX),
            (("address", address), FAILURES_OF_ADDRESS_MAX),
        )
