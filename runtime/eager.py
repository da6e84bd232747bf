"""Coroutines that are begun where they are made: most are done before a task would have begun them.

A task costs two turns of the loop, each with a system call of its own.
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from typing import Any


class Begun:
    """A coroutine after its first step. result: what it returned, if `is_done`."""

    __slots__ = ("_coroutine", "_waits_for", "is_done", "result")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self._waits_for: Any = None
        self.result: Any = None
        self.is_done = False
        try:
            self._waits_for = coroutine.send(None)
        except StopIteration as done:
            self.is_done, self.result = True, done.value

    @types.coroutine
    def rest(self) -> Generator[Any, Any, Any]:
        """What is left of it, for a task to run; to be awaited once."""
        waits_for = self._waits_for
        while True:
            try:
                try:
                    sent = yield waits_for
                except BaseException as error:  # noqa: BLE001 - a cancellation is the coroutine's
                    waits_for = self._coroutine.throw(error)
                else:
                    waits_for = self._coroutine.send(sent)
            except StopIteration as done:
                return done.value


def begin(coroutine: Coroutine[Any, Any, Any]) -> Begun:
    """Run a coroutine up to where it first waits. Until there it has no task: it must not ask for
    one, as asyncio.timeout does. What it raises by then comes out of here."""
    return Begun(coroutine)
