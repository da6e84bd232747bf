"""The periodic jobs for replicas: ISR checks, checkpoints, flushes, retention. A driver.

The decisions are in `partition` and `storage`; this module has the intervals, and threads for
blocking work.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from kvorum.broker.config.current_configs import CurrentConfigs
from kvorum.broker.controller_channel.alter_partition_manager import AlterPartitionManager
from kvorum.broker.fetch.follower_fetch import ReplicaFetcherManager
from kvorum.broker.log_dirs.log_directories import LogDirectories, LogDirectory
from kvorum.broker.manager.replica_registry import ReplicaRegistry
from kvorum.broker.partition.replica import Replica
from kvorum.runtime.clock import Clock
from kvorum.runtime.errors import CorruptData
from kvorum.runtime.tasks import TaskGroup, in_thread, report_failure
from kvorum.storage.log.retention import take_deleted

_log = logging.getLogger(__name__)

FLUSH_CHECK_INTERVAL_MS = 1_000
"""Interval at which rolled segments are fsynced; until then recovery would have to read them
again."""
REMOVAL_INTERVAL_MS = 1_000
PRODUCER_EXPIRY_INTERVAL_MS = 600_000
"""Kafka's producer.id.expiration.check.interval.ms."""


class BackgroundJobs:
    """Timers over all replicas of a broker.

    on_directory_error: handles a failed disk call that concerns no single replica.
    """

    def __init__(
        self,
        *,
        registry: ReplicaRegistry,
        configs: CurrentConfigs,
        directories: LogDirectories,
        fetchers: ReplicaFetcherManager,
        isr: AlterPartitionManager,
        clock: Clock,
        on_directory_error: Callable[[LogDirectory, OSError, str], None],
    ) -> None:
        self._registry = registry
        self._configs = configs
        self._directories = directories
        self._fetchers = fetchers
        self._isr = isr
        self._clock = clock
        self._on_directory_error = on_directory_error
        self._tasks = TaskGroup(report_failure)
        # Two of the jobs flush, and a log has one flush at a time.
        self._flushing = asyncio.Lock()

    def start(self) -> None:
        config = self._configs.broker
        jobs: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (max(config.replica_lag_time_max_ms // 2, 1), self._check_isr),
            (
                config.replica_high_watermark_checkpoint_interval_ms,
                self._checkpoint_high_watermarks,
            ),
            (FLUSH_CHECK_INTERVAL_MS, self._flush_sealed),
            (config.log_flush_offset_checkpoint_interval_ms, self._flush_all),
            (config.log_retention_check_interval_ms, self._apply_retention),
            (REMOVAL_INTERVAL_MS, self._remove_deleted),
            (PRODUCER_EXPIRY_INTERVAL_MS, self._expire_producers),
        ]
        for interval_ms, job in jobs:
            self._tasks.spawn(_every(interval_ms, job), job.__name__)
        # The start has fsynced every batch that it checked. Without this checkpoint the next start
        # would check them again, and a broker that is killed every minute would check more and
        # more.
        self._tasks.spawn(self._checkpoint_log_offsets(), "checkpoint after the start")

    async def stop(self) -> None:
        await self._tasks.stop()

    async def _check_isr(self) -> None:
        replicas = self._registry.all()
        self._isr.check(replicas)
        now_ms = self._clock.monotonic_ms()
        for replica in replicas:
            replica.drop_expired_acks()
            core = replica.core
            if core.high_watermark < core.end_offset and core.raise_high_watermark(now_ms):
                # A replica that was about to join the ISR held the high watermark back, and has
                # stopped fetching. Only time shows that: without another replica's fetch, no other
                # code would check.
                replica.on_high_watermark()

    async def _checkpoint_high_watermarks(self) -> None:
        for log_dir, replicas in self._by_directory():
            log_dir.store.checkpoints.collect_high_watermarks(replicas)
            for replica in replicas:
                producers = replica.log.producers
                if producers.unreplicated:
                    # Otherwise only a read of the last stable offset makes a log forget these
                    # completed transactions. Nobody reads it on a follower, which would keep them
                    # for ever.
                    producers.forget_replicated(replica.core.high_watermark)
            await self._write(log_dir, log_dir.store.checkpoints.write_high_watermarks)

    async def _flush_sealed(self) -> None:
        now_ms = self._clock.wall_ms()
        has_rolled = False
        for replica in self._registry.with_files():
            if not replica.is_offline and replica.log.needs_flush(now_ms):
                has_rolled = has_rolled or replica.log.has_unflushed_roll
                await self._flush(replica)
        if has_rolled:
            # Recovery checks all batches from the recovery point on. With the new recovery points
            # it need not read the segments that were just fsynced.
            await self._checkpoint_log_offsets()

    async def _flush_all(self) -> None:
        # Kafka leaves the active segment to the operating system. One fsync a minute bounds what
        # recovery reads after a crash.
        for replica in self._registry.with_files():
            if replica.log.durable_end_offset < replica.log.end_offset:
                await self._flush(replica)
        await self._checkpoint_log_offsets()

    async def _checkpoint_log_offsets(self) -> None:
        for log_dir, replicas in self._by_directory():
            log_dir.store.checkpoints.collect_log_offsets(replicas)
            await self._write(log_dir, log_dir.store.checkpoints.write_log_offsets)

    def _by_directory(self) -> Iterator[tuple[LogDirectory, list[Replica]]]:
        """The online directories, each with the replicas that have a log in it at that moment.

        The replicas are listed anew for each directory. Bad sequence otherwise (seed 110027): 1.
        The job waits for another directory. 2. A listed topic is deleted and created again. 3. The
        new topic gets the old one's high watermark, recovery point and log start.
        """
        for log_dir in self._directories.online:
            if not log_dir.is_offline:
                yield log_dir, [r for r in self._registry.with_files() if r.log_dir is log_dir]

    async def _write(self, log_dir: LogDirectory, work: Callable[[], None]) -> None:
        """Write the files of one directory; a failure does not affect the others."""
        try:
            await in_thread(work)
        except OSError as failure:
            self._on_directory_error(log_dir, failure, "checkpoint")

    async def _flush(self, replica: Replica) -> None:
        async with self._flushing:
            await self._flush_alone(replica)

    async def _flush_alone(self, replica: Replica) -> None:
        if replica.is_closed or replica.is_offline:
            return
        try:
            ticket = replica.log.begin_flush()
        except (OSError, CorruptData) as failure:
            # begin_flush reads the last batch, which may have been damaged since it was written.
            self._on_flush_failed(replica, failure)
            return
        is_identity_due, replica.identity_unsynced = replica.identity_unsynced, False

        def run() -> float:
            began_s = time.perf_counter()
            # Sync partition.metadata first: without it, a recovery point proves nothing
            # (`ReplicaStore`).
            if is_identity_due:
                replica.sync_identity()
            ticket.run()
            return time.perf_counter() - began_s

        try:
            self._registry.metrics.flush_s.observe(await in_thread(run))
        except OSError as failure:
            # After a failed fsync the content of the disk is unknown: trying again proves nothing.
            self._on_flush_failed(replica, failure)
        finally:
            # Also when cancelled: `stop` closes the log next, and a log allows one flush at a time.
            replica.log.end_flush(ticket)

    @staticmethod
    def _on_flush_failed(replica: Replica, failure: OSError | CorruptData) -> None:
        if not replica.is_closed:
            _log.error("flush of %s failed: %s", replica.log.directory, failure)
            replica.fail(failure, "flush")

    async def _apply_retention(self) -> None:
        for replica in self._registry.with_files():
            if not replica.is_offline and not replica.is_closed:
                core, before = replica.core, replica.log.start_offset
                try:
                    replica.apply_retention(self._clock.wall_ms())
                    if replica.log.start_offset > before and not core.is_leader:
                        self._fetchers.report_log_start((core.topic_id, core.partition_id))
                except (OSError, CorruptData) as failure:
                    _log.error("retention of %s failed: %s", replica.log.directory, failure)
                    replica.fail(failure, "retention")
                await asyncio.sleep(0)

    async def _remove_deleted(self) -> None:
        now_ms = self._clock.wall_ms()
        for log_dir, replicas in self._by_directory():
            directories = log_dir.store.take_removals()
            files = [path for replica in replicas for path in take_deleted(replica.log, now_ms)]
            if directories or files:
                await self._write(log_dir, partial(log_dir.store.remove, directories, files))

    async def _expire_producers(self) -> None:
        for replica in self._registry.with_files():
            replica.log.producers.expire(
                self._clock.wall_ms(),
                expiration_ms=replica.log.config.producer_id_expiration_ms,
            )


async def _every(interval_ms: int, job: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            await job()
        except OSError as failure:
            # The disk is full or failing: log it, and try again at the next interval.
            _log.error("%s failed: %s", getattr(job, "__name__", job), failure)
