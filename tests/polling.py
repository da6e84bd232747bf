"""Waiting until something holds, with a deadline: the one place where tests poll.

A test that knows the event which makes its condition true waits for that event. These functions are
for what only shows when it is looked at: another process, a file, a client's view of a cluster.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

DEADLINE_S = float(os.environ.get("KVORUM_TEST_DEADLINE_S", "60"))
"""The deadline of every wait: generous, since a busy machine is slow and not wrong. Mutants have
less time (tests/mutants/run.py)."""

POLL_S = 0.005
T = TypeVar("T")
_never = threading.Event()


class NotInTime(AssertionError):
    """A condition did not hold before its deadline."""


def eventually(
    condition: Callable[[], T],
    what: str,
    *,
    deadline_s: float = DEADLINE_S,
    meanwhile: Callable[[], object] | None = None,
) -> T:
    """The first true value of `condition`. Raises NotInTime, which names `what` was waited for.

    meanwhile: called between two looks in place of a pause, to keep a client going.
    """
    deadline = time.monotonic() + deadline_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise _late(what, deadline_s, value)
        if meanwhile is None:
            _never.wait(POLL_S)
        else:
            meanwhile()
    return value


async def until(
    condition: Callable[[], T | Awaitable[T]], what: str, *, deadline_s: float = DEADLINE_S
) -> T:
    """`eventually` on an event loop, whose tasks run between two looks."""
    deadline = time.monotonic() + deadline_s
    while True:
        looked = condition()
        value = await looked if isinstance(looked, Awaitable) else looked
        if value:
            return value
        if time.monotonic() > deadline:
            raise _late(what, deadline_s, value)
        await asyncio.sleep(POLL_S)


def _late(what: str, deadline_s: float, value: object) -> NotInTime:
    return NotInTime(f"waited {deadline_s:g} s until {what}; the last look gave {value!r}")
