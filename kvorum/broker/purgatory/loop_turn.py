"""Wake-ups and answers, gathered until the end of the event loop's turn that caused them.

So several pipelined produce requests give the follower one answer instead of one each, at no added
wait.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from kvorum.broker.purgatory.deadlines import OnFailed, raise_it


class Wakeable(Protocol):
    """A parked request to be checked again. LoopTurn writes `is_awake`."""

    is_awake: bool

    def wake(self) -> None: ...


class Flushable(Protocol):
    """A connection with answers to send. LoopTurn writes `is_flush_due`."""

    is_flush_due: bool

    def flush(self) -> None: ...


class LoopTurn:
    """Work gathered for the end of the event loop's turn: first wake parked requests, then send
    answers. on_failed: set by the listener."""

    def __init__(self) -> None:
        self.on_failed: OnFailed = raise_it
        self._woken: list[Wakeable] = []
        self._to_flush: list[Flushable] = []
        self._is_scheduled = False
        self._is_open = False
        self.is_spent = False
        """True after one connection has held the event loop for long: no other is read in this
        turn. Bad sequence: 1. 24 clients each send a request of 100 KB that unpacks to 100 MB. 2.
        The loop handles them all in one turn, 0.3 s each. 3. No heartbeat leaves for 8 s, and the
        broker is fenced."""

    def spend(self) -> None:
        """Set `is_spent` until the event loop has gone round once, so that timers and other tasks
        run first."""
        if not self.is_spent:
            self.is_spent = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        self.is_spent = False

    def wake(self, item: Wakeable) -> None:
        if not item.is_awake:
            item.is_awake = True
            self._woken.append(item)
            self._schedule()

    def flush(self, item: Flushable) -> None:
        if not item.is_flush_due:
            item.is_flush_due = True
            self._to_flush.append(item)
            self._schedule()

    def begin(self) -> None:
        """Announce that a callback starts and will call `run` before it returns."""
        self._is_open = True

    def run(self) -> None:
        """Do all gathered work now, and the work that this causes."""
        self._is_open = True
        try:
            self._run()
        finally:
            self._is_open = False

    def _run(self) -> None:
        while self._woken or self._to_flush:
            woken, self._woken = self._woken, []
            for parked in woken:
                parked.is_awake = False
                try:
                    parked.wake()
                except Exception as error:  # noqa: BLE001 - of one request
                    self.on_failed(parked, error)
            flushable, self._to_flush = self._to_flush, []
            for connection in flushable:
                connection.is_flush_due = False
                try:
                    connection.flush()
                except Exception as error:  # noqa: BLE001 - of one connection
                    self.on_failed(connection, error)

    def _schedule(self) -> None:
        if not self._is_open and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        self.run()
