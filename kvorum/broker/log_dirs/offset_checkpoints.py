"""The offset checkpoints of one data directory: facts about each log that its files do not hold.

They are high watermarks, recovery points, log starts and cleaner offsets, in Kafka's file formats.
The event loop collects the values; threads copy them in one step of the interpreter and write them.
Blocking.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData
from kvorum.storage.files.checkpoints import (
    CLEANER_OFFSET,
    HIGH_WATERMARK,
    LOG_START_OFFSET,
    RECOVERY_POINT,
    TopicPartition,
    read_offsets,
    write_offsets,
)
from kvorum.storage.log.log import Log

_log = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int]

BOOT_ID = "boot-id"
"""Boot id of the machine when the high watermarks were written. While it is the same, the page
cache has survived: a missing folder of a log with a high watermark was removed by someone.

A log may still end below its high watermark: the entry of a log that could not be opened may be of
an earlier boot.
"""

_WITHOUT = {
    HIGH_WATERMARK: "put it back from a copy, or remove it: then high watermarks begin at the log "
    "starts, and rise again with what is in sync",
    LOG_START_OFFSET: "put it back from a copy, or remove it: then deleted records come back whose "
    "files are still there",
}
"""Advice for each damaged checkpoint that takes its directory offline: no other file has its
content."""


class StoredReplica(Protocol):
    """The parts of an open replica that its directory's checkpoints and folders need."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def log(self) -> Log: ...

    @property
    def is_offline(self) -> bool: ...

    @property
    def identity_unsynced(self) -> bool: ...

    def sync_identity(self) -> None: ...


class OffsetCheckpoints:
    """The checkpoints of one directory. recovery_points: the offset below which each log is
    fsynced."""

    def __init__(
        self, disk: Disk, directory: str, closed: Callable[[], Iterable[TopicPartition]]
    ) -> None:
        """closed: returns the logs in this directory that are not open."""
        self._disk = disk
        self._directory = directory
        self._closed = closed
        self.recovery_points: Offsets = {}
        self._high_watermarks: Offsets = {}
        self._log_starts: Offsets = {}
        self._cleaner_offsets: Offsets = {}
        self._durable_starts: Offsets = {}
        """The log starts in the checkpoint on disk."""
        self._is_same_boot = False
        self._is_boot_noted = False
        self._is_collected = False
        self._on_disk: dict[str, frozenset[TopicPartition]] = {}
        """The partitions that each checkpoint on disk may name."""
        # The event loop (truncation) and a thread (periodic) write the same checkpoints.
        self._lock = threading.Lock()

    def load(self) -> None:
        """Read all checkpoints. Raises CorruptData if a damaged one has content that no other file
        has."""
        self._high_watermarks = self._read(HIGH_WATERMARK)
        self.recovery_points = self._read(RECOVERY_POINT)
        self._cleaner_offsets = self._read(CLEANER_OFFSET)
        self._log_starts = self._read(LOG_START_OFFSET)
        self._durable_starts = dict(self._log_starts)
        path = self._path(BOOT_ID)
        if self._disk.exists(path):
            noted = self._disk.read_bytes(path).decode("ascii", "replace")
            self._is_same_boot = noted == self._disk.boot_id() != ""
            self._is_boot_noted = self._is_same_boot

    def required_offset(self, key: TopicPartition) -> int:
        """The offset below which the log's records must be on disk, so that its folder must exist;
        0 if it need not. The records were fsynced, or committed since the machine was booted."""
        watermark = self._high_watermarks.get(key, 0) if self._is_same_boot else 0
        return max(self.recovery_points.get(key, 0), watermark)

    def required_offsets(self) -> Offsets:
        """The `required_offset` of each log that has one above 0."""
        keys = {*self.recovery_points, *self._high_watermarks}
        return {key: offset for key in keys if (offset := self.required_offset(key)) > 0}

    def keep_required(self, key: TopicPartition) -> None:
        """Make a log's `required_offset` its recovery point, so that it outlasts a reboot of the
        machine."""
        self.recovery_points[key] = self.required_offset(key)

    # --- one log -----------------------------------------------------------------------------

    def high_watermark(self, key: TopicPartition) -> int:
        """The high watermark, 0 if none is known."""
        return self._high_watermarks.get(key, 0)

    def recovery_point(self, key: TopicPartition) -> int:
        """The recovery point, 0 if nothing was fsynced."""
        return self.recovery_points.get(key, 0)

    def log_start(self, key: TopicPartition) -> int:
        """The log start, 0 if none is known."""
        return self._log_starts.get(key, 0)

    def durable_start(self, topic: str, partition_id: int) -> int:
        """The log start in the checkpoint on disk, 0 if none."""
        return self._durable_starts.get((topic, partition_id), 0)

    def cleaner_offset(self, topic: str, partition_id: int) -> int | None:
        """The offset below which the log has been compacted; None if it never was."""
        return self._cleaner_offsets.get((topic, partition_id))

    def set_cleaner_offset(self, topic: str, partition_id: int, offset: int) -> None:
        self._cleaner_offsets = {**self._cleaner_offsets, (topic, partition_id): offset}

    def lower(
        self, topic: str, partition_id: int, offset: int, start_offset: int | None = None
    ) -> None:
        """Lower every checkpoint of a log before a truncation to `offset`.

        A recovery point above the log's end would make a torn tail look like damage. Durable on
        return. start_offset: the log start afterwards, which may be above `offset`; None: not above
        it.
        """
        key = (topic, partition_id)
        start_before = self._log_starts.get(key, 0)
        if start_offset is None:
            start_offset = min(start_before, offset)
        if not start_before == start_offset == self._durable_starts.get(key, 0):
            # The log start may have to rise here. Bad sequence otherwise: 1. All replicas have
            # reported a new start, so DeleteRecords is answered. 2. Replica A fetches a batch that
            # begins below it, so the name of its first file no longer shows the start. 3. All
            # brokers exit; A starts first and leads with the deleted records.
            self._log_starts = {**self._log_starts, key: start_offset}
            self.write_log_starts()
        if self._high_watermarks.get(key, 0) > offset:
            # Bad sequence otherwise: 1. Leader A, alone in the ISR, loses power, and with it
            # records that this follower has copied. 2. This follower truncates. 3. This follower
            # fetches other records in their place. 4. This follower restarts, takes these for
            # committed by the old high watermark, and serves them too early.
            self._high_watermarks = {**self._high_watermarks, key: offset}
            self.write_high_watermarks()
        if self.recovery_points.get(key, 0) > offset:
            self.recovery_points = {**self.recovery_points, key: offset}
            with self._lock:
                self._write(RECOVERY_POINT, self.recovery_points)
        if self._cleaner_offsets.get(key, 0) > offset:
            # Records that replace truncated ones have not been compacted.
            self.set_cleaner_offset(topic, partition_id, offset)
            self.write_cleaner_offsets()

    def forget(self, key: TopicPartition) -> None:
        """Forget the entries of an earlier log of this name, since a new log begins. Durable on
        return.

        Bad sequence otherwise: 1. A topic is deleted and created again. 2. The process exits. 3.
        The next process uses the old topic's high watermark for the new log, so uncommitted records
        count as committed; and its log start, so the new log is thrown away.
        """
        # Change the maps in place: thousands of logs begin at once, and a copy of each map for each
        # of them would be slow.
        self._log_starts.pop(key, None)
        self.drop((key,))
        known = {
            HIGH_WATERMARK: self._high_watermarks,
            RECOVERY_POINT: self.recovery_points,
            LOG_START_OFFSET: self._log_starts,
            CLEANER_OFFSET: self._cleaner_offsets,
        }
        with self._lock:
            # A thread that writes may have copied the map before this change, and holds the lock.
            for name, offsets in known.items():
                if key in self._on_disk.get(name, ()):
                    self._write(name, offsets)

    # --- logs that go ------------------------------------------------------------------------

    def drop(self, keys: Iterable[TopicPartition]) -> None:
        """Forget logs that are about to be deleted, so that a later start does not report them as
        missing."""
        for key in keys:
            self._high_watermarks.pop(key, None)
            self.recovery_points.pop(key, None)
            self._cleaner_offsets.pop(key, None)

    def write_dropped(self, is_going: Callable[[TopicPartition], bool]) -> None:
        """Rewrite the checkpoints that would make a deleted log count as missing, if they still
        name one. Durable on return."""
        with self._lock:
            if any(map(is_going, self._on_disk.get(RECOVERY_POINT, ()))):
                self._write(RECOVERY_POINT, self.recovery_points)
            if any(map(is_going, self._on_disk.get(HIGH_WATERMARK, ()))):
                self._write(HIGH_WATERMARK, self._high_watermarks)

    # --- all logs ----------------------------------------------------------------------------

    def collect_high_watermarks(self, replicas: Collection[StoredReplica]) -> None:
        """Collect the high watermarks, for write_high_watermarks. replicas: all that are open
        here."""
        now = self._kept(self._high_watermarks, replicas)
        for replica in replicas:
            if replica.high_watermark > 0 and not replica.is_offline:
                now[replica.topic_partition] = replica.high_watermark
        self._high_watermarks = now
        self._is_collected = True

    def write_high_watermarks(self) -> None:
        """Replace the high-watermark checkpoint; durable on return."""
        with self._lock:
            self._write(HIGH_WATERMARK, self._high_watermarks)
            # Until the high watermarks have been collected, some may be of logs that a power
            # failure took. Such entries must not get this boot's id.
            if self._is_collected and not self._is_boot_noted:
                self._disk.write_atomic(self._path(BOOT_ID), self._disk.boot_id().encode())
                self._is_boot_noted = True

    def collect_log_offsets(self, replicas: Collection[StoredReplica]) -> None:
        """Collect recovery points and log starts, for write_log_offsets.

        A recovery point relies on its log's completed flush. replicas: all that are open here.
        """
        points = self._kept(self.recovery_points, replicas)
        starts = self._kept(self._log_starts, replicas)
        for replica in replicas:
            if replica.is_offline:
                continue
            key = replica.topic_partition
            if replica.log.durable_end_offset > 0:
                points[key] = replica.log.durable_end_offset
            if replica.log.start_offset > 0:
                starts[key] = replica.log.start_offset
        self.recovery_points = points
        self._log_starts = starts

    def write_log_offsets(self) -> None:
        """Replace the recovery-point and log-start checkpoints; durable on return.

        The current values are written: while the call waited for its thread, a truncation may have
        lowered a recovery point, or DeleteRecords moved a log start.
        """
        with self._lock:
            self._write(RECOVERY_POINT, self.recovery_points)
            self._write(LOG_START_OFFSET, self._log_starts)

    def collect_log_starts(self, replicas: Iterable[StoredReplica]) -> None:
        """Collect the log starts of some replicas, for write_log_starts."""
        starts = {replica.topic_partition: replica.log.start_offset for replica in replicas}
        self._log_starts = {**self._log_starts, **starts}

    def write_log_starts(self) -> None:
        """Replace the log-start checkpoint; durable on return."""
        with self._lock:
            self._write(LOG_START_OFFSET, self._log_starts)

    def write_cleaner_offsets(self) -> None:
        """Replace the cleaner-offset checkpoint; durable on return."""
        with self._lock:
            self._write(CLEANER_OFFSET, self._cleaner_offsets)

    # --- files -------------------------------------------------------------------------------

    def _kept(self, known: Offsets, replicas: Iterable[StoredReplica]) -> Offsets:
        """The entries to keep: of logs that are here and not open, and of logs that went offline.

        Bad sequence without the first: 1. A log that lost its end below the recovery point is
        refused. 2. The next checkpoint drops its recovery point. 3. The next start takes the loss
        for a torn tail, and serves the rest. Without the second: 1. A truncation lowers a recovery
        point, then fails half-way. 2. The log in memory writes the old one back. 3. The next start
        reports the truncated records as lost.
        """
        offline = [replica.topic_partition for replica in replicas if replica.is_offline]
        return {key: known[key] for key in (*self._closed(), *offline) if key in known}

    def _read(self, name: str) -> Offsets:
        try:
            offsets = read_offsets(self._disk, self._path(name))
        except CorruptData as damage:
            if name in _WITHOUT:
                raise CorruptData(
                    damage.path, damage.position, f"{damage.reason}; {_WITHOUT[name]}"
                ) from damage
            # Without it, logs are checked or cleaned from their start: that costs only time.
            _log.warning("%s; it counts as empty", damage)
            offsets = {}
        self._on_disk[name] = frozenset(offsets)
        return offsets

    def _write(self, name: str, offsets: Offsets) -> None:
        """Replace a checkpoint; the caller holds the lock."""
        now = offsets.copy()  # one step of the interpreter: the event loop may be changing it
        self._on_disk[name] = self._on_disk.get(name, frozenset()).union(now)
        write_offsets(self._disk, self._path(name), now)
        self._on_disk[name] = frozenset(now)
        if name == LOG_START_OFFSET:
            self._durable_starts = now

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"
