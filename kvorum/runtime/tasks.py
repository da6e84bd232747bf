"""Background tasks whose failures are never lost, and a thread for blocking calls."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_CANCEL_AGAIN_S = 1.0
"""Longer than the clean-up of any task that has accepted its cancellation."""


def report_failure(error: BaseException) -> None:
    """Pass an error that no caller can receive to the loop's exception handler.

    Such an error is a bug of Kvorum; the process that set the handler exits and recovers from disk.
    """
    asyncio.get_running_loop().call_exception_handler(
        {"message": f"a background task failed: {error!r}", "exception": error}
    )


async def in_thread(work: Callable[[], T]) -> T:
    """Run blocking work in a thread, to its end even if the caller is cancelled. Otherwise an
    abandoned write could race with a stop."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


class TaskGroup:
    """The background tasks of one component.

    If a task raises, `on_failure(error)` is called, and the owner decides what to do (a node exits
    and recovers from disk). `stop` cancels all tasks and waits for them.
    """

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        # Not a set: its order differs between processes, and the simulator runs this code too.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._is_stopped = False

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a coroutine as a background task with this name."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not self._is_stopped:
            self._on_failure(error)

    async def stop(self) -> None:
        """Cancel every task and wait until the last one has ended.

        An error of a task that is being cancelled is dropped, because nobody is left to handle it.

        A task that goes on is cancelled again. Example: a gRPC stream fails at the moment of its
        cancellation and raises AioRpcError instead, because its read waits for a task that takes
        the cancellation for its own. A loop that reconnects would then never end.
        """
        self._is_stopped = True
        tasks: Collection[asyncio.Task[Any]] = list(self._tasks)
        while tasks:
            for task in tasks:
                task.cancel()
            _, tasks = await asyncio.wait(tasks, timeout=_CANCEL_AGAIN_S)


class Worker(Generic[T]):
    """A thread that runs blocking calls in order and passes the results back to the event loop.

    It is cheaper than an executor: no future objects, and one wake-up of the loop for each call.
    """

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: queue.SimpleQueue[
            tuple[Callable[[], T], Callable[[T | None, BaseException | None], None]] | None
        ] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(
        self, call: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Run `call` in the thread; then `done(result, error)` on the loop."""
        self._jobs.put((call, done))

    def stop(self) -> None:
        """Let the thread finish all queued calls, and wait until it has ended."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, done = job
            result: T | None = None
            error: BaseException | None = None
            try:
                result = call()
            except Exception as caught:  # noqa: BLE001 - handed to the loop, whole
                error = caught
            # the loop is closed, so nobody waits for the result
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(done, result, error)
