"""A process's work on snapshot files: coroutines over its disk, with delays between disk calls.

As in `raft.node.raft_node`, writes, receives and removals wait in one queue, so that each finds the
folder as the previous one left it; reads for other nodes run beside the queue. When a process ends,
all this work ends at its present point.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from kvorum.chaos.sim.kernel.async_disk import SimTask
from kvorum.chaos.sim.kernel.network import Host
from kvorum.chaos.sim.kernel.timeline import SimTimeline
from kvorum.runtime.memory_disk import PowerCut

T = TypeVar("T")

OnEnd = Callable[[SimTask[Any]], None]
"""Called with a task that has ended; the callback handles its error."""


class SnapshotWorker:
    """The worker of one process of a node.

    disk_call_ms: the duration of the next disk call, by its operation.
    die: ends the process, because its machine has lost power.
    """

    def __init__(
        self,
        node: Host,
        timeline: SimTimeline,
        *,
        disk_call_ms: Callable[[str], int],
        die: Callable[[PowerCut], None],
    ) -> None:
        self._node = node
        self._timeline = timeline
        self._disk_call_ms = disk_call_ms
        self._die = die
        self._incarnation = node.incarnation
        self._queue: deque[tuple[SimTask[Any], OnEnd]] = deque()
        self._beside: list[SimTask[Any]] = []
        self._is_working = False

    def queue(self, work: Coroutine[Any, Any, T], on_end: Callable[[SimTask[T]], None]) -> None:
        """Run the work after all work that was queued before."""
        self._queue.append((SimTask(work), on_end))
        if not self._is_working:
            self._is_working = True
            self._soon(self._next)

    def beside(self, work: Coroutine[Any, Any, T], on_end: Callable[[SimTask[T]], None]) -> None:
        """Run the work at once, beside the queue."""
        task = SimTask(work)
        self._beside = [other for other in self._beside if not other.is_finished]
        self._beside.append(task)
        self._soon(lambda: self._go_on(task, on_end))

    def drop(self) -> None:
        """Drop all work, because the process has ended."""
        for task, _ in self._queue:
            task.drop()
        for task in self._beside:
            task.drop()
        self._queue.clear()
        self._beside.clear()

    def _next(self) -> None:
        task, on_end = self._queue[0]

        def end(task: SimTask[Any]) -> None:
            self._queue.popleft()
            on_end(task)
            if self._is_alive():
                self._is_working = bool(self._queue)
                if self._queue:
                    self._soon(self._next)

        self._go_on(task, end)

    def _go_on(self, task: SimTask[Any], on_end: OnEnd) -> None:
        try:
            while task.step():
                delay_ms = self._disk_call_ms(task.pause.operation if task.pause else "")
                if delay_ms:
                    self._later(delay_ms, lambda: self._go_on(task, on_end))
                    return
        except PowerCut as error:
            self._die(error)
            return
        on_end(task)

    def _soon(self, call: Callable[[], None]) -> None:
        # Never within the event that requested it: a core's step must not run inside another step.
        self._later(0, call)

    def _later(self, delay_ms: int, call: Callable[[], None]) -> None:
        def arrive() -> None:
            if self._is_alive():
                self._node.submit(call)

        self._timeline.after(delay_ms, arrive)

    def _is_alive(self) -> bool:
        return self._node.is_up and self._node.incarnation == self._incarnation
