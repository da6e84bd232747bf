"""Log cleaner: compacts logs in the background, one at a time, the dirtiest first. A driver.

`storage.cleaning.cleanable_range` and `storage.cleaning.batch_cleaning` decide what may be removed.
This module chooses the log, runs the thread, and pauses. A log with a damaged batch is skipped from
then on, with an error in the broker's log; other logs are still cleaned.
"""

from __future__ import annotations

import asyncio
import errno
import logging

from kvorum.broker.config.current_configs import CurrentConfigs
from kvorum.broker.log_dirs.log_directories import is_disk_fault
from kvorum.broker.manager.replica_registry import ReplicaRegistry
from kvorum.broker.partition.replica import Replica
from kvorum.runtime.clock import Clock
from kvorum.runtime.errors import CorruptData, KvorumError
from kvorum.runtime.tasks import TaskGroup, in_thread, report_failure
from kvorum.storage.cleaning.cleanable_range import CleaningPlan
from kvorum.storage.cleaning.cleaner import CleanerConfig, CleaningJob
from kvorum.storage.log import log_cleaning

_log = logging.getLogger(__name__)

BUSY_SHARE = 0.5
"""Share of time that the cleaner may work. Its thread and the event loop share one interpreter, so
its work slows down requests."""
BACKOFF_MIN_MS = 10
"""Kafka lets log.cleaner.backoff.ms be 0; a loop without a pause would starve the broker."""
RETRY_MS = 60_000
"""Pause for a log after a failed disk call: the disk may have been full."""


class _AdvanceFailed(Exception):
    """A cleaning job failed with an unexpected exception, its cause."""


class LogCleaner:
    """Compacts the logs of a broker.

    cleaned: number of completed cleanings.
    failures: number of failed ones.
    """

    def __init__(self, registry: ReplicaRegistry, configs: CurrentConfigs, clock: Clock) -> None:
        self._registry = registry
        self._configs = configs
        self._clock = clock
        self._tasks = TaskGroup(report_failure)
        self._retry_at_ms: dict[Replica, int] = {}
        self.cleaned = 0
        self.failures = 0

    def start(self) -> None:
        if self._configs.broker.log_cleaner_enable:
            self._tasks.spawn(self._run(), "log-cleaner")

    async def stop(self) -> None:
        """Stop. The cleaning under way ends at its next step; segments that it has swapped in
        stay."""
        await self._tasks.stop()

    async def _run(self) -> None:
        while True:
            if not await self.clean_dirtiest():
                pause_ms = max(self._configs.broker.log_cleaner_backoff_ms, BACKOFF_MIN_MS)
                await asyncio.sleep(pause_ms / 1000)

    async def clean_dirtiest(self) -> bool:
        """Clean the log that needs it most; False if no log does."""
        found = await self._dirtiest()
        if found is None:
            return False
        replica, plan = found
        try:
            await self._clean(replica, plan)
        except CorruptData as damage:
            self.failures += 1
            replica.uncleanable = str(damage)
            _log.error(
                "%s is not compacted any more, because of damage at byte %d of %s: %s",
                replica.log.directory,
                damage.position,
                damage.path,
                damage,
            )
        except _AdvanceFailed as bug:
            self.failures += 1
            replica.uncleanable = str(bug)
            _log.error(
                "%s is not compacted any more: %s",
                replica.log.directory,
                bug,
                exc_info=bug.__cause__,
            )
        except OSError as failure:
            self._on_failed(replica, failure)
        return True

    def _on_failed(self, replica: Replica, failure: OSError) -> None:
        if replica.is_closed:
            return
        self.failures += 1
        self._retry_at_ms[replica] = self._clock.monotonic_ms() + RETRY_MS
        _log.error("compaction of %s failed: %s", replica.log.directory, failure)
        # A full disk stops a cleaning, which writes new segments, but does not make the log fail.
        if is_disk_fault(failure) and failure.errno not in (errno.ENOSPC, errno.EDQUOT):
            replica.fail(failure, "compaction")

    async def _dirtiest(self) -> tuple[Replica, CleaningPlan] | None:
        best: tuple[Replica, CleaningPlan] | None = None
        now_ms = self._clock.monotonic_ms()
        self._retry_at_ms = {r: at for r, at in self._retry_at_ms.items() if at > now_ms}
        for replica in self._registry.with_files():
            compaction = replica.log.config.compaction
            if compaction is None or replica in self._retry_at_ms:
                continue
            plan = self._plan(replica)
            if plan is None or not plan.is_due(compaction):
                continue
            if best is None or plan.dirty_ratio > best[1].dirty_ratio:
                best = replica, plan
            await asyncio.sleep(0)
        # The log may have been closed or truncated since it was checked, during a wait.
        if best is None or (plan := self._plan(best[0])) is None:
            return None
        return best[0], plan

    def _plan(self, replica: Replica) -> CleaningPlan | None:
        if replica.is_closed or replica.is_offline or replica.uncleanable:
            return None
        if replica.future is not None:
            # A move to another directory copies the log. What it has copied would not be compacted,
            # although the checkpoint says so.
            return None
        core = replica.core
        try:
            return log_cleaning.plan(
                replica.log,
                checkpoint=replica.log_dir.store.checkpoints.cleaner_offset(
                    core.topic, core.partition_id
                ),
                high_watermark=core.high_watermark,
                now_ms=self._clock.wall_ms(),
            )
        except CorruptData as damage:
            replica.uncleanable = str(damage)
            _log.error("%s cannot be compacted: %s", replica.log.directory, damage)
        except OSError as failure:
            self._on_failed(replica, failure)
        return None

    async def _clean(self, replica: Replica, plan: CleaningPlan) -> None:
        config = self._configs.broker
        log = replica.log
        job = log_cleaning.begin(
            log,
            plan,
            CleanerConfig(
                dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
                load_factor=config.log_cleaner_io_buffer_load_factor,
                io_buffer_bytes=config.log_cleaner_io_buffer_size,
            ),
            now_ms=self._clock.wall_ms(),
        )
        try:
            await self._drive(replica, job)
        finally:
            # Also when cancelled: memory must match the disk before the log closes.
            log_cleaning.end(log, job)
        if job.is_cancelled or replica.is_closed:
            return
        self.cleaned += 1
        stats = job.stats
        _log.info(
            "compacted %s up to offset %d: keys=%d read=%d written=%d segments=%d->%d",
            log.directory,
            job.end_offset,
            stats.keys,
            stats.bytes_read,
            stats.bytes_written,
            stats.segments_before,
            stats.segments_after,
        )
        core, store = replica.core, replica.log_dir.store
        store.checkpoints.set_cleaner_offset(core.topic, core.partition_id, job.end_offset)
        await in_thread(store.checkpoints.write_cleaner_offsets)

    async def _drive(self, replica: Replica, job: CleaningJob) -> None:
        loop = asyncio.get_running_loop()
        try:
            while not job.is_done:
                started = loop.time()
                done_bytes = await _advance(job)
                if job.pending is not None:
                    await self._swap(replica, job)
                busy_s = loop.time() - started
                limit = self._configs.broker.log_cleaner_io_max_bytes_per_second
                due_s = max(busy_s / BUSY_SHARE, done_bytes / limit)
                await asyncio.sleep(due_s - busy_s)
        finally:
            if not job.is_done:
                job.cancel()
            await in_thread(job.discard)

    async def _swap(self, replica: Replica, job: CleaningJob) -> None:
        try:
            await in_thread(job.swap)
        except OSError as failure:
            # The folder is between two states; the next start completes or undoes the swap.
            replica.fail(failure, "compaction")
            raise
        log_cleaning.apply_swap(replica.log, self._clock.wall_ms())


async def _advance(job: CleaningJob) -> int:
    try:
        return await in_thread(job.advance)
    except (KvorumError, OSError):
        raise
    except Exception as error:
        # A bug of ours. The job only reads the log and writes new files that are not part of it
        # yet. So it stops the compaction of this log, and not every broker that has a replica.
        raise _AdvanceFailed(f"its compaction failed: {error!r}") from error
