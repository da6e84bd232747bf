"""A follower reports a new log start to its leader only once that is on disk.

DeleteRecords is answered when every live replica has reported the new start. Bad sequence without
this: 1. The request is answered. 2. All brokers are killed before the periodic checkpoint. 3.
Follower A starts with the old log start and leads: the deleted records are back.

Waiting log starts are written together, in a thread; fetching goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kvorum.broker.log_dirs.log_directories import LogDirectory
from kvorum.broker.partition.replica import Replica
from kvorum.runtime.tasks import TaskGroup, in_thread, report_failure

_log = logging.getLogger(__name__)

RETRY_MS = 1_000
"""Pause after an error that is not the disk's; a disk error takes the replicas offline."""

OnError = Callable[[LogDirectory, OSError, str], None]


class LogStartAcks:
    """Log starts of all partitions that a broker follows. on_error: called when a disk call failed
    in a directory."""

    def __init__(self, on_error: OnError) -> None:
        self._on_error = on_error
        self._waiting: dict[Replica, None] = {}
        self._listeners: dict[Callable[[], None], None] = {}
        self._is_running = False
        self._tasks = TaskGroup(report_failure)

    async def stop(self) -> None:
        await self._tasks.stop()
        self._waiting.clear()
        self._listeners.clear()

    def reportable_start(self, replica: Replica, on_saved: Callable[[], None]) -> int:
        """The log start that may be reported to the leader now. If it is below the log's, the log's
        start is written to disk, and then `on_saved` is called, once for all starts that wait."""
        log = replica.log
        start_offset = log.start_offset
        if not start_offset:
            return 0
        core = replica.core
        durable = replica.log_dir.store.checkpoints.durable_start(core.topic, core.partition_id)
        if durable >= start_offset:
            return start_offset
        first = log.segments.durable_first_offset
        if first >= start_offset:
            return start_offset  # the name of the log's first file shows the start
        self._waiting[replica] = None
        self._listeners[on_saved] = None
        if not self._is_running:
            self._is_running = True
            self._tasks.spawn(self._run(), "checkpoint of log starts")
        return max(durable, first)

    async def _run(self) -> None:
        try:
            while self._waiting:
                # Include the log starts that are added in this turn of the event loop.
                await asyncio.sleep(0)
                waiting, self._waiting = self._waiting, {}
                listeners, self._listeners = self._listeners, {}
                by_directory: dict[LogDirectory, list[Replica]] = {}
                for replica in waiting:
                    if not replica.log_dir.is_offline:
                        by_directory.setdefault(replica.log_dir, []).append(replica)
                is_written = True
                for log_dir, replicas in by_directory.items():
                    is_written = await self._write(log_dir, replicas) and is_written
                if not is_written:
                    await asyncio.sleep(RETRY_MS / 1000)
                for on_saved in listeners:
                    on_saved()
        finally:
            self._is_running = False

    async def _write(self, log_dir: LogDirectory, replicas: list[Replica]) -> bool:
        # A topic may have been deleted and created again while another directory was written.
        there = [replica for replica in replicas if not (replica.is_offline or replica.is_closed)]
        log_dir.store.checkpoints.collect_log_starts(there)
        try:
            await in_thread(log_dir.store.checkpoints.write_log_starts)
        except OSError as failure:
            self._on_error(log_dir, failure, "checkpoint")
            return False
        return True
