"""The offset checkpoints of one data directory: what is known of each log apart from its files.

High watermarks, recovery points, log starts and how far the cleaner came, in Kafka's files. The
loop takes note of them; threads write what they copy in one step of the interpreter. Blocking.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from kvorum.broker.partition.partition import Partition
from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData
from kvorum.storage.log.checkpoints import (
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
"""Of the machine when the high watermarks were written. As long as it runs, no folder of a log that
has one can be missing that nobody has taken: what was not fsynced is in the page cache. A log may
end below one: what is kept of a log that could not be opened is of an earlier boot, perhaps."""

_WITHOUT = {
    HIGH_WATERMARK: "put it back from a copy, or remove it: then high watermarks begin at the log "
    "starts, and rise again with what is in sync",
    LOG_START_OFFSET: "put it back from a copy, or remove it: then deleted records come back whose "
    "files are still there",
}
"""The way out for each checkpoint that stops the directory when it is damaged: no other file has
its content."""


class StoredReplica(Protocol):
    """A replica, as the files of its directory know it."""

    @property
    def core(self) -> Partition: ...

    @property
    def log(self) -> Log: ...

    @property
    def is_offline(self) -> bool: ...

    @property
    def identity_unsynced(self) -> bool: ...

    def sync_identity(self) -> None: ...


class OffsetCheckpoints:
    """recovery_points: below it a log has been fsynced, by topic and partition."""

    def __init__(
        self, disk: Disk, directory: str, closed: Callable[[], Iterable[TopicPartition]]
    ) -> None:
        """closed: the logs that lie here and are not open."""
        self._disk = disk
        self._directory = directory
        self._closed = closed
        self.recovery_points: Offsets = {}
        self._high_watermarks: Offsets = {}
        self._log_starts: Offsets = {}
        self._cleaner_offsets: Offsets = {}
        self._durable_starts: Offsets = {}
        """The log starts as the checkpoint on disk has them."""
        self._is_same_boot = False
        self._is_boot_noted = False
        self._is_collected = False
        self._on_disk: dict[str, frozenset[TopicPartition]] = {}
        """Checkpoint -> partitions that it may name."""
        # A checkpoint is written by the loop (truncation) and by a thread (the periodic one).
        self._lock = threading.Lock()

    def load(self) -> None:
        """Read all of them. Raises CorruptData if one is damaged that nothing else says."""
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

    def held(self, key: TopicPartition) -> int:
        """Above 0 if there must be a folder: what it held below was fsynced, or written and
        committed since the machine was started."""
        watermark = self._high_watermarks.get(key, 0) if self._is_same_boot else 0
        return max(self.recovery_points.get(key, 0), watermark)

    def all_held(self) -> Offsets:
        """See `held`; without those of 0."""
        keys = {*self.recovery_points, *self._high_watermarks}
        return {key: offset for key in keys if (offset := self.held(key)) > 0}

    def keep_held(self, key: TopicPartition) -> None:
        """`held` stays what it is, also when the machine is started anew."""
        self.recovery_points[key] = self.held(key)

    # --- one log -----------------------------------------------------------------------------

    def high_watermark(self, key: TopicPartition) -> int:
        """0 if none is known."""
        return self._high_watermarks.get(key, 0)

    def recovery_point(self, key: TopicPartition) -> int:
        """0 if nothing was fsynced."""
        return self.recovery_points.get(key, 0)

    def log_start(self, key: TopicPartition) -> int:
        """0 if none is known."""
        return self._log_starts.get(key, 0)

    def durable_start(self, topic: str, partition_id: int) -> int:
        """The log start that the checkpoint on disk has, 0 without one."""
        return self._durable_starts.get((topic, partition_id), 0)

    def cleaner_offset(self, topic: str, partition_id: int) -> int | None:
        """Below it the log has been compacted; None if it never was."""
        return self._cleaner_offsets.get((topic, partition_id))

    def set_cleaner_offset(self, topic: str, partition_id: int, offset: int) -> None:
        self._cleaner_offsets = {**self._cleaner_offsets, (topic, partition_id): offset}

    def lower(
        self, topic: str, partition_id: int, offset: int, start_offset: int | None = None
    ) -> None:
        """Before a truncation to `offset`: no checkpoint may speak of what lies above it any more.

        A recovery point above the log's end would make a torn tail look like damage. Durable on
        return. start_offset: the log's start, which may lie above `offset`; None: not above.
        """
        key = (topic, partition_id)
        start_before = self._log_starts.get(key, 0)
        if start_offset is None:
            start_offset = min(start_before, offset)
        if not start_before == start_offset == self._durable_starts.get(key, 0):
            # Also raised: 1. DeleteRecords is answered as all replicas have told the new start,
            # 2. one fetches a batch that begins below, 3. all end: it starts first, and leads.
            self._log_starts = {**self._log_starts, key: start_offset}
            self.write_log_starts()
        if self._high_watermarks.get(key, 0) > offset:
            # 1. The only replica in sync loses its power, and what it had told us of. 2. We are
            # cut, 3. get other records in its place, 4. and end: the next process would take these
            # for committed, and serve them, before they are.
            self._high_watermarks = {**self._high_watermarks, key: offset}
            self.write_high_watermarks()
        if self.recovery_points.get(key, 0) > offset:
            self.recovery_points = {**self.recovery_points, key: offset}
            with self._lock:
                self._write(RECOVERY_POINT, self.recovery_points)
        if self._cleaner_offsets.get(key, 0) > offset:
            # Records that replace the ones cut off have not been compacted.
            self.set_cleaner_offset(topic, partition_id, offset)
            self.write_cleaner_offsets()

    def forget(self, key: TopicPartition) -> None:
        """A new log begins: what the checkpoints say under its name is of one that is gone.

        Durable on return. Bad sequence: 1. a topic is deleted and made again under its name, 2. the
        process ends, 3. the next one takes the old topic's watermark for the new log's, so that
        what is not committed counts as such, and its start, so that the new log is thrown away.
        """
        # Thousands of logs begin at once: no copy of a map for each.
        self._log_starts.pop(key, None)
        self.drop((key,))
        known = {
            HIGH_WATERMARK: self._high_watermarks,
            RECOVERY_POINT: self.recovery_points,
            LOG_START_OFFSET: self._log_starts,
            CLEANER_OFFSET: self._cleaner_offsets,
        }
        with self._lock:
            # A thread that writes may have copied the map before, and not said so yet.
            for name, offsets in known.items():
                if key in self._on_disk.get(name, ()):
                    self._write(name, offsets)

    # --- logs that go ------------------------------------------------------------------------

    def drop(self, keys: Iterable[TopicPartition]) -> None:
        """These logs go: nothing of theirs is written any more that would make them missed."""
        for key in keys:
            self._high_watermarks.pop(key, None)
            self.recovery_points.pop(key, None)
            self._cleaner_offsets.pop(key, None)

    def write_dropped(self, is_going: Callable[[TopicPartition], bool]) -> None:
        """Replace the checkpoints that make a log missed if they name one that goes; durable on
        return."""
        with self._lock:
            if any(map(is_going, self._on_disk.get(RECOVERY_POINT, ()))):
                self._write(RECOVERY_POINT, self.recovery_points)
            if any(map(is_going, self._on_disk.get(HIGH_WATERMARK, ()))):
                self._write(HIGH_WATERMARK, self._high_watermarks)

    # --- all logs ----------------------------------------------------------------------------

    def collect_high_watermarks(self, replicas: Collection[StoredReplica]) -> None:
        """Take note of them, for write_high_watermarks. replicas: all that are open here."""
        now = self._kept(self._high_watermarks, replicas)
        for replica in replicas:
            if replica.core.high_watermark > 0 and not replica.is_offline:
                now[_key_of(replica)] = replica.core.high_watermark
        self._high_watermarks = now
        self._is_collected = True

    def write_high_watermarks(self) -> None:
        """Replace the checkpoint; durable on return."""
        with self._lock:
            self._write(HIGH_WATERMARK, self._high_watermarks)
            # Before they were collected, watermarks of logs may be among them that a power cut has
            # taken.
            if self._is_collected and not self._is_boot_noted:
                self._disk.write_atomic(self._path(BOOT_ID), self._disk.boot_id().encode())
                self._is_boot_noted = True

    def collect_log_offsets(self, replicas: Collection[StoredReplica]) -> None:
        """Take note of the recovery points and log starts, for write_log_offsets.

        A recovery point rests on its log's completed flush. replicas: all that are open here.
        """
        points = self._kept(self.recovery_points, replicas)
        starts = self._kept(self._log_starts, replicas)
        for replica in replicas:
            if replica.is_offline:
                continue
            key = _key_of(replica)
            if replica.log.durable_end_offset > 0:
                points[key] = replica.log.durable_end_offset
            if replica.log.start_offset > 0:
                starts[key] = replica.log.start_offset
        self.recovery_points = points
        self._log_starts = starts

    def write_log_offsets(self) -> None:
        """Replace the recovery-point and log-start checkpoints; durable on return.

        Writes them as they are now: while this waited for its thread a truncation may have lowered
        a point, and DeleteRecords moved a start.
        """
        with self._lock:
            self._write(RECOVERY_POINT, self.recovery_points)
            self._write(LOG_START_OFFSET, self._log_starts)

    def collect_log_starts(self, replicas: Iterable[StoredReplica]) -> None:
        """Take note of the starts of some, for write_log_starts."""
        starts = {_key_of(replica): replica.log.start_offset for replica in replicas}
        self._log_starts = {**self._log_starts, **starts}

    def write_log_starts(self) -> None:
        """Replace the log-start checkpoint; durable on return."""
        with self._lock:
            self._write(LOG_START_OFFSET, self._log_starts)

    def write_cleaner_offsets(self) -> None:
        """Replace the checkpoint; durable on return."""
        with self._lock:
            self._write(CLEANER_OFFSET, self._cleaner_offsets)

    # --- files -------------------------------------------------------------------------------

    def _kept(self, known: Offsets, replicas: Iterable[StoredReplica]) -> Offsets:
        """The entries of logs that lie here and are not open, or went offline: they stay.

        Bad sequence: 1. a log that lost its end below the recovery point is refused, 2. the point
        goes with the next checkpoint, 3. the next start takes the loss for a torn tail, and serves
        the rest. The other way round: 1. a truncation lowers the point and fails half-way, 2. the
        log in memory brings it back, 3. the next start misses what was cut on purpose.
        """
        offline = [_key_of(replica) for replica in replicas if replica.is_offline]
        return {key: known[key] for key in (*self._closed(), *offline) if key in known}

    def _read(self, name: str) -> Offsets:
        try:
            offsets = read_offsets(self._disk, self._path(name))
        except CorruptData as damage:
            if name in _WITHOUT:
                raise CorruptData(
                    damage.path, damage.position, f"{damage.reason}; {_WITHOUT[name]}"
                ) from damage
            # All is checked, or cleaned, from the start: that costs time and nothing else.
            _log.warning("%s; it counts as empty", damage)
            offsets = {}
        self._on_disk[name] = frozenset(offsets)
        return offsets

    def _write(self, name: str, offsets: Offsets) -> None:
        """Replace a checkpoint; the caller holds the lock."""
        now = offsets.copy()  # one step: the loop may be changing it
        self._on_disk[name] = self._on_disk.get(name, frozenset()).union(now)
        write_offsets(self._disk, self._path(name), now)
        self._on_disk[name] = frozenset(now)
        if name == LOG_START_OFFSET:
            self._durable_starts = now

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"


def _key_of(replica: StoredReplica) -> TopicPartition:
    return replica.core.topic, replica.core.partition_id
