"""The consequences of a failed disk call, or of damaged bytes. Part of the replica manager's
driver.

A disk error takes the whole data directory offline: every replica in it answers KAFKA_STORAGE_ERROR
and stops fetching, and a heartbeat tells the controller at once. Damage affects one replica; the
broker reports it as lost, so that another replica can lead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from kvorum.broker.controller_channel.assignments_manager import AssignmentsManager
from kvorum.broker.fetch.follower_fetch import ReplicaFetcherManager
from kvorum.broker.log_dirs.log_directories import LogDirectories, LogDirectory, is_disk_fault
from kvorum.broker.manager.replica_registry import ReplicaRegistry, ReplicaWithoutLog
from kvorum.broker.partition.replica import Replica
from kvorum.metadata.image.image import PartitionImage, TopicIdPartition
from kvorum.metadata.image.records import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from kvorum.runtime.errors import CorruptData, shortage_of
from kvorum.storage.files.checkpoints import PARTITION_METADATA
from kvorum.storage.files.file_names import LOG_SUFFIX

_log = logging.getLogger(__name__)

NAMES_SAID_MAX = 5
"""Replicas that a log line names; the others are counted."""


class ReplicaFailures:
    """Handles the failures of one replica manager.

    on_directory_failed: see `ReplicaManager`.
    end_move: ends a replica's move between directories, if there is one.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        registry: ReplicaRegistry,
        directories: LogDirectories,
        assignments: AssignmentsManager,
        fetchers: ReplicaFetcherManager,
        on_directory_failed: Callable[[], None],
        end_move: Callable[[Replica], None],
    ) -> None:
        self._broker_id = broker_id
        self._registry = registry
        self._directories = directories
        self._assignments = assignments
        self._fetchers = fetchers
        self._on_directory_failed = on_directory_failed
        self._end_move = end_move
        self._unplaced: dict[str, list[str]] = {}
        """Names of the replicas that stay offline, by reason; those of one image."""

    def on_failed(self, replica: Replica, failure: OSError | CorruptData, operation: str) -> None:
        """Handle a replica that has just gone offline because of `failure`."""
        core = replica.core
        self._fetchers.unfollow((core.topic_id, core.partition_id))
        self._end_move(replica)
        if isinstance(failure, OSError) and is_disk_fault(failure):
            if failure.filename is None:
                failure.filename = replica.log.directory
            self._fail(replica.log_dir, failure, operation)
            return
        # A shortage leaves sound files: to restore the replica would discard them.
        way_out = shortage_of(failure) or "see `kvorum partitions restore`"
        _log.error(
            "%s-%d is offline: %s: %s; %s",
            core.topic,
            core.partition_id,
            operation,
            failure,
            way_out,
        )
        if isinstance(failure, CorruptData) and failure.path.endswith(LOG_SUFFIX):
            # The next start rebuilds other files from the batches.
            self._mark(replica, failure)
        self._report_directory((core.topic_id, core.partition_id), LOST_DIRECTORY)

    def _mark(self, replica: Replica, damage: CorruptData) -> None:
        try:
            replica.log_dir.store.mark_damaged(replica.log, damage)
        except OSError as failure:
            self.on_directory_error(replica.log_dir, failure, "mark of damage")

    def on_open_failed(
        self,
        key: TopicIdPartition,
        name: str,
        log_dir: LogDirectory,
        failure: OSError | CorruptData,
    ) -> None:
        """Handle a log that could not be opened. name: of its folder."""
        # PARTITION_METADATA: the folder belongs to another topic or has no topic id; that error
        # says itself what to do.
        is_restored = isinstance(failure, CorruptData) and not failure.path.endswith(
            PARTITION_METADATA
        )
        way_out = "see `kvorum partitions restore`" if is_restored else shortage_of(failure)
        _log.error("cannot open %s: %s%s", name, failure, way_out and f"; {way_out}")
        if isinstance(failure, OSError) and is_disk_fault(failure):
            self._fail(log_dir, failure, "open")
            self._report_directory(key, self._placement_of(log_dir))
        else:
            self._report_directory(key, LOST_DIRECTORY)

    def note_offline(self, name: str, reason: str) -> None:
        """Note a replica that has no directory; `log_offline` logs it."""
        self._unplaced.setdefault(reason, []).append(name)

    def log_offline(self) -> None:
        """Log one line for each reason, with all replicas that stay offline for it; thousands of
        lines would hide it."""
        for reason, names in self._unplaced.items():
            first = ", ".join(names[:NAMES_SAID_MAX])
            if len(names) > NAMES_SAID_MAX:
                first = f"{len(names)} replicas ({first}, ...)"
            _log.error("%s %s offline: %s", first, "stay" if len(names) > 1 else "stays", reason)
            for name in names[NAMES_SAID_MAX:]:
                _log.debug("%s stays offline: %s", name, reason)
        self._unplaced.clear()

    def on_directory_error(self, log_dir: LogDirectory, failure: OSError, operation: str) -> None:
        """Handle a failed disk call that concerns no single replica."""
        if is_disk_fault(failure):
            self._fail(log_dir, failure, operation)
        else:
            limit = shortage_of(failure)
            _log.error(
                "%s in %s failed: %s%s", operation, log_dir.path, failure, limit and f"; {limit}"
            )

    # --- what the controller is told ---------------------------------------------------------

    def report_directory_if_changed(
        self, key: TopicIdPartition, replica: Replica, image: PartitionImage
    ) -> None:
        """Report the replica's directory to the controller if the metadata names another one."""
        want = self._placement_of(replica.told_dir)
        if replica.is_offline and not replica.log_dir.is_offline:
            want = LOST_DIRECTORY
        self._tell_if_new(key, want, image)

    def report_missing_replica(self, key: TopicIdPartition, image: PartitionImage) -> None:
        """As `report_directory_if_changed`, for a replica without a log."""
        told = image.directory_of(self._broker_id)
        own = self._directories.by_id(told)
        if told == UNASSIGNED_DIRECTORY or (own is not None and not own.is_offline):
            # The controller takes the replica for online: the metadata names no directory for it,
            # or an online one in which its folder is missing.
            self._report_directory(key, LOST_DIRECTORY)

    def _tell_if_new(self, key: TopicIdPartition, want: bytes, image: PartitionImage) -> None:
        told = image.directory_of(self._broker_id)
        if want == told:
            return
        is_understood = told == UNASSIGNED_DIRECTORY and want != LOST_DIRECTORY
        if not (is_understood and self._directories.is_single):
            self._report_directory(key, want)

    def _report_directory(self, key: TopicIdPartition, directory_id: bytes) -> None:
        if directory_id != UNASSIGNED_DIRECTORY:
            self._assignments.assign(key, directory_id)

    @staticmethod
    def _placement_of(log_dir: LogDirectory) -> bytes:
        """The directory's id as the controller knows it; LOST_DIRECTORY if its id could never be
        read."""
        return LOST_DIRECTORY if log_dir.id is None else log_dir.id

    # --- a directory goes down ---------------------------------------------------------------

    def _fail(self, log_dir: LogDirectory, failure: OSError, operation: str) -> None:
        if not self._directories.fail(log_dir, failure, operation):
            return
        for replica in self._registry.all():
            core = replica.core
            key = (core.topic_id, core.partition_id)
            future = replica.future
            is_moving = future is not None and log_dir in (replica.log_dir, future.log_dir)
            if is_moving:
                self._end_move(replica)
            if replica.log_dir is log_dir:
                self._fetchers.unfollow(key)
                if not replica.is_offline:
                    replica.go_offline()
            elif not is_moving:
                continue
            image = self._registry.image.partition(*key)
            if image is not None:
                # Report a replica that the metadata places elsewhere: otherwise the controller
                # would keep it as the leader.
                self.report_directory_if_changed(key, replica, image)
        self._on_directory_failed()

    # --- the end -----------------------------------------------------------------------------

    def delete(self, replica: Replica) -> None:
        """Delete a replica's folder; if its directory is offline, the next start deletes it."""
        log_dir = replica.log_dir
        log_dir.replicas -= 1
        if log_dir.is_offline:
            replica.log.abandon()
            return
        try:
            log_dir.store.delete(replica)
        except OSError as failure:
            replica.log.abandon()
            self.on_directory_error(log_dir, failure, "removal")

    def delete_broken(self, key: TopicIdPartition, broken: ReplicaWithoutLog | None) -> None:
        """As `delete`, for a replica without a log."""
        if broken is None or broken.log_dir is None or broken.log_dir.is_offline:
            return
        try:
            broken.log_dir.store.delete_refused(broken.name, key[0])
        except OSError as failure:
            self.on_directory_error(broken.log_dir, failure, "removal")

    async def close_all(self, replicas: list[Replica], broken: Iterable[ReplicaWithoutLog]) -> None:
        """Close every log and write the checkpoints; sets `is_closed` of each directory that
        succeeds.

        Raises the first OSError, after all directories were tried.
        """
        first: OSError | None = None
        for log_dir in self._directories.items:
            own = [replica for replica in replicas if replica.log_dir is log_dir]
            if log_dir.is_offline:
                for replica in own:
                    replica.log.abandon()
                continue
            names = [entry.name for entry in broken if entry.log_dir is log_dir]
            try:
                await asyncio.to_thread(log_dir.store.close_all, own, names)
            except OSError as failure:
                if shortage_of(failure):
                    _log.error("shutdown of %s failed: %s", log_dir.path, failure)
                else:
                    self._directories.fail(log_dir, failure, "shutdown")
                first = first or failure
            else:
                log_dir.is_closed = True
        if first is not None:
            raise first
