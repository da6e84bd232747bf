"""An asyncio loop in virtual time, on which the drivers of `broker` run unchanged.

Tasks, futures, timeouts and events are asyncio's own. Only the parts below a loop are replaced:
time is the node's clock, callbacks run as events of the timeline (so a paused process runs none),
sockets are `chaos.sim.kernel.sockets`, and a thread is a call some time later. A process that ends
leaves its tasks as they are: no more of them runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import inspect
import math
from asyncio import events
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Protocol

from kvorum.chaos.sim.kernel.clock import Alarm, LocalClock
from kvorum.chaos.sim.kernel.network import Host
from kvorum.chaos.sim.kernel.timeline import SimTimeline
from kvorum.runtime.memory_disk import MemoryDisk, PowerCut

if TYPE_CHECKING:
    from kvorum.chaos.sim.kernel.sockets import SimSocket

TURN_CALLS_MAX = 200
"""Callbacks that run in one event; the rest wait for the next."""

CANCELLED_AWAITS_MAX = 20
"""Limit of awaits of a cancelled task before it ends."""

ROUNDING_MS = 1e-6
"""Tolerance for seconds as floats: 0.02 s must not become 20.0000001 ms."""

Call = Callable[..., object]


class LoopHost(Host, Protocol):
    """The machine whose process runs on the loop (`chaos.sim.quorum.node.SimNode`)."""

    @property
    def clock(self) -> LocalClock: ...

    @property
    def local_ms(self) -> int: ...

    @property
    def disk(self) -> MemoryDisk: ...

    def die(self, error: OSError | PowerCut) -> None:
        """End the process, since its disk has failed or its machine has lost power."""


class SimLoop(asyncio.AbstractEventLoop):
    """The loop of one process.

    thread_ms: the duration of the next call in a thread.
    on_turn: called after every callback.
    sockets: the open sockets of the process, by descriptor.
    """

    def __init__(
        self,
        node: LoopHost,
        timeline: SimTimeline,
        *,
        thread_ms: Callable[[], int],
        on_turn: Callable[[], None],
    ) -> None:
        self.sockets: dict[int, SimSocket] = {}
        self._node = node
        self._incarnation = node.incarnation
        self._timeline = timeline
        self._thread_ms = thread_ms
        self._on_turn = on_turn
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._serial = 0
        self._readers: dict[int, asyncio.Handle] = {}
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._is_awaited = False
        self._failure: BaseException | None = None
        self._alarm = Alarm(self._timeline, node.clock, self._on_alarm)

    @property
    def is_alive(self) -> bool:
        return self._node.is_up and self._node.incarnation == self._incarnation

    # --- calls of the simulator --------------------------------------------------------------

    def run_inside(self, call: Callable[[], object]) -> None:
        """Run a call now, as the loop would."""
        if not self.is_alive:
            return
        handle = events.Handle(call, (), self, None)
        events._set_running_loop(self)
        try:
            handle._run()
        finally:
            events._set_running_loop(None)
        self._after_turn()

    def on_clock_changed(self) -> None:
        """Handle a jump of the node's clock."""
        self._alarm.cancel()
        self._set_alarm()

    def on_readable(self, descriptor: int) -> None:
        """Wake the reader of a socket at which bytes, or the end of the connection, arrived."""
        if descriptor in self._readers and self.is_alive:
            self.call_soon(self._read, descriptor)

    def stop_all(self) -> None:
        """End the process: cancel its tasks. Their writes have no effect meanwhile, as after a
        kill. Without this call the garbage collector would end them at some later time.
        """
        disk = self._node.disk
        disk.is_withdrawn = True
        events._set_running_loop(self)
        try:
            while self._tasks:
                # Some tasks start another one while they end.
                _dispose(self._tasks.popitem()[0])
        finally:
            events._set_running_loop(None)
            disk.is_withdrawn = False
        self._alarm.cancel()
        self._ready.clear()
        self._timers.clear()
        self._readers.clear()

    # --- calls -------------------------------------------------------------------------------

    def time(self) -> float:
        return self._node.local_ms / 1000

    def call_soon(  # type: ignore[override]
        self, callback: Call, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = events.Handle(callback, args, self, context)
        self._ready.append(handle)
        self._wake()
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Call, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self._call_at_ms(self._node.local_ms + _up(delay), callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Call, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self._call_at_ms(_up(when), callback, args, context)

    def _call_at_ms(
        self, when_ms: int, callback: Call, args: tuple[Any, ...], context: Context | None
    ) -> asyncio.TimerHandle:
        handle = events.TimerHandle(when_ms / 1000, callback, args, self, context)
        self._serial += 1
        heapq.heappush(self._timers, (when_ms, self._serial, handle))
        if self.is_alive:
            self._alarm.set(when_ms)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by asyncio: a cancelled timer stays in the queue until its time comes."""

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run a call as a whole at a later virtual time: threads interact with the loop only at
        their start and end."""
        future = self.create_future()
        if not self.is_alive:
            return future

        def run() -> None:
            result: Any = None
            error: Exception | None = None
            try:
                result = func(*args)
            except PowerCut as cut:
                self._node.die(cut)
                return
            except Exception as caught:  # noqa: BLE001 - the waiting task raises it
                error = caught
            self.run_inside(lambda: _settle(future, result, error))

        def arrive() -> None:
            if self.is_alive:
                self._node.submit(run)

        self._timeline.after(self._thread_ms(), arrive)
        return future

    # --- futures and tasks -------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, **kwargs)
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Handle an exception that no task handled: a bug, or an unexpected disk failure. It ends
        the run, or the process."""
        error = context.get("exception")
        # Ignore "never retrieved": asyncio reports it at garbage collection, thus at a random time.
        if error is not None and "never retrieved" not in context.get("message", ""):
            self._failure = self._failure or error

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    # --- sockets -----------------------------------------------------------------------------

    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Call, *args: Any
    ) -> None:
        self._readers[fd] = events.Handle(callback, args, self, None)
        found = self.sockets.get(fd)
        if found is not None and found.is_readable:
            self.on_readable(fd)

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def add_writer(  # type: ignore[override]
        self, fd: Any, callback: Call, *args: Any
    ) -> None:
        # Simulated sockets accept all bytes, so this is only called after an error.
        self.call_soon(callback, *args)

    def remove_writer(self, fd: Any) -> bool:
        return False

    def _read(self, descriptor: int) -> None:
        found, reader = self.sockets.get(descriptor), self._readers.get(descriptor)
        if found is None or reader is None or not found.is_readable:
            return
        reader._run()
        if found.is_readable and descriptor in self._readers:
            self.on_readable(descriptor)

    # --- turns -------------------------------------------------------------------------------

    def _wake(self) -> None:
        if not self._is_awaited and self.is_alive:
            self._is_awaited = True
            self._timeline.after(0, self._arrive)

    def _arrive(self) -> None:
        if self.is_alive:
            self._node.submit(self._turn)

    def _turn(self) -> None:
        self._is_awaited = False
        if not self.is_alive:
            return
        events._set_running_loop(self)
        try:
            ready = self._ready
            for _ in range(TURN_CALLS_MAX):
                if not ready or self._failure is not None:
                    break
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
                    # Call it now, because the next callback may end the leadership to which this
                    # turn's answers belong.
                    self._on_turn()
        finally:
            events._set_running_loop(None)
        self._after_turn()

    def _after_turn(self) -> None:
        failure, self._failure = self._failure, None
        if failure is None and self._node.disk.has_lost_power:
            # Some code on the stack took the power cut for a failed call.
            failure = PowerCut("noticed late")
        if failure is not None and not isinstance(failure, OSError | PowerCut):
            raise failure
        # Deliver the bytes that the process sent before, even if the process dies in this turn.
        self._on_turn()
        if failure is not None:
            self._node.die(failure)
        elif self._ready:
            self._wake()

    def _set_alarm(self) -> None:
        if self._timers and self.is_alive:
            self._alarm.set(self._timers[0][0])

    def _on_alarm(self) -> None:
        if self.is_alive:
            self._node.submit(self._ring)

    def _ring(self) -> None:
        now_ms = self._node.local_ms
        while self._timers and self._timers[0][0] <= now_ms:
            handle = heapq.heappop(self._timers)[2]
            if not handle._cancelled:
                self._ready.append(handle)
        if self._ready:
            self._wake()
        self._set_alarm()


def _up(seconds: float) -> int:
    return math.ceil(seconds * 1000 - ROUNDING_MS)


def _dispose(task: asyncio.Task[Any]) -> None:
    """End a task's coroutine where it stands."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coro: Any = task.get_coro()
    if inspect.getcoroutinestate(coro) == inspect.CORO_CREATED:
        coro.close()
    for _ in range(CANCELLED_AWAITS_MAX):
        if inspect.getcoroutinestate(coro) != inspect.CORO_SUSPENDED:
            return
        with contextlib.suppress(BaseException):
            coro.throw(asyncio.CancelledError())


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
