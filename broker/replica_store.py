"""Replicas on disk: directories, their topic ids, the checkpoints. Blocking.

Layout (log.md section 1): `<topic>-<partition>/` with partition.metadata naming the topic id. A
directory whose id differs from the metadata's belongs to an older topic of that name and is
removed. Removal is a rename to `...-delete` and, later and off the loop, the removal of the tree.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Collection, Iterable
from typing import NamedTuple

from broker.replica import Replica, sync_identity
from raft.metadata_log import FOLDER_NAME
from runtime.disk import Disk
from runtime.errors import CorruptData
from storage.checkpoints import (
    CLEANER_OFFSET,
    HIGH_WATERMARK,
    LOG_START_OFFSET,
    PARTITION_METADATA,
    RECOVERY_POINT,
    is_torn_partition_metadata,
    read_offsets,
    read_partition_metadata,
    write_offsets,
)
from storage.log import Log, LogConfig
from storage.names import replica_of

_log = logging.getLogger(__name__)

DELETE_SUFFIX = "-delete"
UNCLEAN_LOGS = "unclean-logs"
"""Names of directories whose logs an orderly shutdown could not close: one damaged or failing
log must be checked at the next start although the others need not.
"""
DAMAGED = "damaged"
"""In a replica's folder: its batches were found damaged while it was in use, and where. A start
need not come upon that, for it does not read below the recovery point."""
METADATA_TOPIC = "__cluster_metadata"
"""The metadata log lives in the same data directory and is the quorum's, not ours."""
Offsets = dict[tuple[str, int], int]
_CHECKPOINTS = (HIGH_WATERMARK, RECOVERY_POINT, LOG_START_OFFSET, CLEANER_OFFSET)


class OpenedLog(NamedTuple):
    log: Log
    high_watermark: int
    has_identity: bool


class ReplicaStore:
    """unclaimed: directory name -> topic id (None if unreadable) that no replica has taken."""

    def __init__(self, *, disk: Disk, data_directory: str, rng: random.Random) -> None:
        self._disk = disk
        self.directory = data_directory
        self._rng = rng
        self._is_clean = False
        self._unclean: frozenset[str] = frozenset()
        self._high_watermarks: Offsets = {}
        self._recovery_points: Offsets = {}
        self._log_starts: Offsets = {}
        self._cleaner_offsets: Offsets = {}
        self._durable_starts: Offsets = {}
        """The log starts as the checkpoint on disk has them."""
        self._on_disk: dict[str, frozenset[tuple[str, int]]] = {}
        """Checkpoint -> partitions that it may name."""
        self._to_remove: list[str] = []
        # The checkpoint is written by the loop (truncation) and by a thread (the periodic one).
        self._checkpoint_lock = threading.Lock()
        self.unclaimed: dict[str, bytes | None] = {}
        self._damaged: dict[str, CorruptData] = {}
        """Folders whose partition.metadata cannot be read: each costs the one replica."""
        self._nameless: set[str] = set()
        """Folders that say nothing of whose they are, left alone until a replica of their name."""
        self._refused: set[str] = set()
        """Folders whose logs could not be opened."""

    def load(self, is_clean: bool) -> None:
        """Read the checkpoints and find what is there."""
        self._is_clean = is_clean
        self._disk.make_dirs(self.directory)
        self._high_watermarks = self._read(HIGH_WATERMARK)
        self._recovery_points = self._read(RECOVERY_POINT)
        self._cleaner_offsets = self._read(CLEANER_OFFSET)
        self._unclean = self._read_unclean()
        self._log_starts = self._read(LOG_START_OFFSET)
        self._durable_starts = dict(self._log_starts)
        for name in self._disk.list_dir(self.directory):
            path = f"{self.directory}/{name}"
            if name.endswith(DELETE_SUFFIX):
                self._to_remove.append(path)
            elif _is_replica_name(name) and name != FOLDER_NAME:
                try:
                    self.unclaimed[name] = self._read_topic_id(path)
                except CorruptData as damage:
                    self.unclaimed[name], self._damaged[name] = None, damage

    def open(
        self, topic: str, topic_id: bytes, partition_id: int, config: LogConfig, *, now_ms: int
    ) -> OpenedLog:
        """The log of a replica; empty when there is none of this topic id. Raises CorruptData."""
        name = f"{topic}-{partition_id}"
        try:
            opened = self._open(name, topic, topic_id, partition_id, config, now_ms)
        except (CorruptData, OSError):
            self._refused.add(name)
            raise
        self._refused.discard(name)
        return opened

    def _open(
        self,
        name: str,
        topic: str,
        topic_id: bytes,
        partition_id: int,
        config: LogConfig,
        now_ms: int,
    ) -> OpenedLog:
        path = f"{self.directory}/{name}"
        is_known = name in self.unclaimed or name in self._nameless
        self._nameless.discard(name)
        found_id = self.unclaimed.pop(name, None)
        key = (topic, partition_id)
        if is_known and found_id is None:
            self._check_nameless(key, path)
            _log.warning("%s does not say whose it is, and was never flushed: it goes", path)
        elif is_known and found_id != topic_id:
            _log.info("remove %s: it belongs to another topic of that name", name)
        if is_known and found_id != topic_id:
            self._put_aside(path)
            is_known = False
        if not is_known:
            point = self._recovery_points.get(key, 0)
            if point > 0 and found_id is None:
                # Perhaps of a topic of that name that is gone: nothing here says which.
                _log.warning(
                    "%s is not there, though a log of that name was flushed up to %d; an empty one "
                    "begins", path, point,
                )  # fmt: skip
            self._forget(key)
            # Thousands of replicas begin at once: no more than a look at each of them.
            if self._disk.exists(path):
                raise CorruptData(path, 0, "something lies here that no topic claims; move it away")
            return OpenedLog(Log.new(self._disk, path, config), 0, False)
        mark = f"{path}/{DAMAGED}"
        if self._disk.exists(mark):
            found = self._disk.read_bytes(mark).decode("utf-8", "replace").strip()
            raise CorruptData(mark, 0, f"damage was found before: {found}")
        log = Log.open(
            self._disk,
            path,
            config,
            now_ms=now_ms,
            recovery_point=self._recovery_points.get(key, 0),
            is_clean=self._is_clean and name not in self._unclean,
            log_start_offset=self._log_starts.get(key, 0),
        )
        if not (self._is_clean and name not in self._unclean):
            # Recovery has fsynced what it kept, and a process that was killed may never have come
            # to fsync this. Without it the next power cut would make the log nobody's.
            sync_identity(self._disk, path)
        if log.torn_tail is not None:
            _log.warning("%s", log.torn_tail)
        # 1. The power fails and takes a tail that was not fsynced, of records below the watermark,
        # 2. others come in their place, 3. the power fails again before the next checkpoint: those
        # would count as committed.
        self.lower_checkpoints(*key, log.end_offset)
        return OpenedLog(log, self._high_watermarks.get(key, 0), True)

    def _check_nameless(self, key: tuple[str, int], path: str) -> None:
        """Raise CorruptData unless the folder may have lost its partition.metadata with the power:
        that is fsynced before the first records are, and so before there is a recovery point."""
        damage = self._damaged.get(path.rpartition("/")[2])
        if damage is not None:
            raise damage
        if self._recovery_points.get(key, 0) > 0:
            raise CorruptData(
                f"{path}/{PARTITION_METADATA}",
                0,
                "it is missing, or a part of it is, so nothing says whose log this is; put it back "
                "(version: 0, topic_id: as `kvorum topics describe` has it)",
            )

    def mark_damaged(self, log: Log, damage: CorruptData) -> None:
        """Keep the replica offline at later starts, until its folder is put aside (`kvorum
        partitions restore`). Durable on return."""
        self._disk.write_atomic(f"{log.directory}/{DAMAGED}", f"{damage}\n".encode())

    def delete(self, replica: Replica) -> None:
        """Take the replica's directory away under its feet; slices already handed out fail."""
        key = (replica.core.topic, replica.core.partition_id)
        self._cleaner_offsets.pop(key, None)
        self._recovery_points.pop(key, None)
        self._put_aside(replica.log.directory)
        replica.log.delete()

    def drop_unclaimed(self) -> None:
        """Remove the directories that nobody claimed: their topics are gone, or were moved away
        from here while this broker slept."""
        for name, topic_id in self.unclaimed.items():
            if topic_id is None:
                # Nothing says that it is ours.
                _log.warning("left alone: %s has no topic id and no topic", name)
                self._nameless.add(name)
                continue
            _log.info("remove %s: no replica of this broker", name)
            self._put_aside(f"{self.directory}/{name}")
        self.unclaimed.clear()

    def take_removals(self) -> list[str]:
        """Paths to hand to `remove`, in a thread."""
        paths, self._to_remove = self._to_remove, []
        return paths

    def remove(self, directories: Collection[str], files: Iterable[str] = ()) -> None:
        """Remove what was put aside. Blocks; raises OSError."""
        if directories:
            # Their new names first. Bad sequence: 1. some files are removed, 2. the power fails and
            # the folder has its old name again, without partition.metadata perhaps, 3. with a
            # recovery point it counts as damaged, and the next topic of that name is refused.
            self._disk.sync_dir(self.directory)
        for path in directories:
            self._disk.remove_tree(path)
        for path in files:
            self._disk.remove(path)

    def _of_closed(self, known: Offsets) -> Offsets:
        """What is known of logs that lie here and are not open: it stays.

        Bad sequence: 1. a log that lost its end below the recovery point is refused, 2. the point
        goes with the next checkpoint, 3. the next start takes the loss for a torn tail, and serves
        the rest.
        """
        names = self._refused | self._nameless | self.unclaimed.keys()
        return {key: known[key] for key in map(replica_of, names) if key in known}

    def collect_high_watermarks(self, replicas: Iterable[Replica]) -> None:
        """Take note of them, for write_high_watermarks."""
        now = self._of_closed(self._high_watermarks)
        for replica in replicas:
            if replica.core.high_watermark > 0:
                key = (replica.core.topic, replica.core.partition_id)
                now[key] = replica.core.high_watermark
        self._high_watermarks = now

    def write_high_watermarks(self) -> None:
        """Replace the checkpoint; durable on return."""
        with self._checkpoint_lock:
            self._write(HIGH_WATERMARK, self._high_watermarks)

    def collect_log_offsets(self, replicas: Iterable[Replica]) -> None:
        """Take note of the recovery points and log starts, for write_log_offsets.

        A recovery point rests on its log's completed flush.
        """
        points = self._of_closed(self._recovery_points)
        starts = self._of_closed(self._log_starts)
        for replica in replicas:
            key = (replica.core.topic, replica.core.partition_id)
            if replica.log.durable_end_offset > 0:
                points[key] = replica.log.durable_end_offset
            if replica.log.start_offset > 0:
                starts[key] = replica.log.start_offset
        self._recovery_points = points
        self._log_starts = starts

    def write_log_offsets(self) -> None:
        """Replace the recovery-point and log-start checkpoints; durable on return.

        Writes them as they are now: while this waited for its thread a truncation may have lowered
        a point, and DeleteRecords moved a start.
        """
        with self._checkpoint_lock:
            self._write(RECOVERY_POINT, self._recovery_points)
            self._write(LOG_START_OFFSET, self._log_starts)

    def durable_start(self, topic: str, partition_id: int) -> int:
        """The log start that the checkpoint on disk has, 0 without one."""
        return self._durable_starts.get((topic, partition_id), 0)

    def collect_log_starts(self, replicas: Iterable[Replica]) -> None:
        """Take note of the starts of some, for write_log_starts."""
        starts = {(r.core.topic, r.core.partition_id): r.log.start_offset for r in replicas}
        self._log_starts = {**self._log_starts, **starts}

    def write_log_starts(self) -> None:
        """Replace the log-start checkpoint; durable on return."""
        with self._checkpoint_lock:
            self._write(LOG_START_OFFSET, self._log_starts)

    def lower_checkpoints(self, topic: str, partition_id: int, offset: int) -> None:
        """Before a truncation to `offset`: no checkpoint may speak of what lies above it any more.

        A recovery point above the log's end would make a torn tail look like damage. Durable on
        return.
        """
        key = (topic, partition_id)
        if self._high_watermarks.get(key, 0) > offset:
            # 1. The only replica in sync loses its power, and what it had told us of. 2. We are
            # cut, 3. get other records in its place, 4. and end: the next process would take these
            # for committed, and serve them, before they are.
            self._high_watermarks = {**self._high_watermarks, key: offset}
            self.write_high_watermarks()
        if self._recovery_points.get(key, 0) > offset:
            self._recovery_points = {**self._recovery_points, key: offset}
            with self._checkpoint_lock:
                self._write(RECOVERY_POINT, self._recovery_points)
        if self._log_starts.get(key, 0) > offset:
            # A leader that lost what others had begins below our start. Kept, the start would be
            # above the end at the next start, and the log be thrown away.
            self._log_starts = {**self._log_starts, key: offset}
            self.write_log_starts()
        if self._cleaner_offsets.get(key, 0) > offset:
            # What comes in the place of the records cut off has not been compacted.
            self.set_cleaner_offset(topic, partition_id, offset)
            self.write_cleaner_offsets()

    def cleaner_offset(self, topic: str, partition_id: int) -> int | None:
        """Below it the log has been compacted; None if it never was."""
        return self._cleaner_offsets.get((topic, partition_id))

    def set_cleaner_offset(self, topic: str, partition_id: int, offset: int) -> None:
        self._cleaner_offsets = {**self._cleaner_offsets, (topic, partition_id): offset}

    def write_cleaner_offsets(self) -> None:
        """Replace the checkpoint; durable on return."""
        with self._checkpoint_lock:
            self._write(CLEANER_OFFSET, self._cleaner_offsets)

    def close_all(self, replicas: list[Replica], broken: Iterable[str]) -> None:
        """Close every log, then write all checkpoints. Raises OSError.

        broken: directory names of logs that could not even be opened.
        """
        unclean = set(broken)
        for replica in replicas:
            if replica.is_offline:
                unclean.add(f"{replica.core.topic}-{replica.core.partition_id}")
                continue
            if replica.identity_unsynced:
                replica.sync_identity()
            replica.log.close()
        if unclean or self._unclean:
            names = "".join(f"{name}\n" for name in sorted(unclean))
            self._disk.write_atomic(self._path(UNCLEAN_LOGS), names.encode())
        self.collect_high_watermarks(replicas)
        self.write_high_watermarks()
        self.collect_log_offsets(replicas)
        self.write_log_offsets()
        self.remove(self.take_removals())

    def _forget(self, key: tuple[str, int]) -> None:
        """A new log begins: what the checkpoints say under its name is of one that is gone.

        Durable on return. Bad sequence: 1. a topic is deleted and made again under its name, 2. the
        process ends, 3. the next one takes the old topic's watermark for the new log's, so that
        what is not committed counts as such, and its start, so that the new log is thrown away.
        """
        known = (
            self._high_watermarks, self._recovery_points, self._log_starts, self._cleaner_offsets,
        )  # fmt: skip
        for offsets in known:
            offsets.pop(key, None)
        for name, offsets in zip(_CHECKPOINTS, known, strict=True):
            if key in self._on_disk.get(name, ()):
                with self._checkpoint_lock:
                    self._write(name, offsets)

    def _read(self, name: str) -> Offsets:
        try:
            offsets = read_offsets(self._disk, self._path(name))
        except CorruptData as damage:
            if name not in (RECOVERY_POINT, CLEANER_OFFSET):
                raise
            # All is checked, or cleaned, from the start: that costs time and nothing else.
            _log.warning("%s; it counts as empty", damage)
            offsets = {}
        self._on_disk[name] = frozenset(offsets)
        return offsets

    def _write(self, name: str, offsets: Offsets) -> None:
        """Replace a checkpoint; the caller holds the lock."""
        now = dict(offsets)
        self._on_disk[name] = self._on_disk.get(name, frozenset()).union(now)
        write_offsets(self._disk, self._path(name), now)
        self._on_disk[name] = frozenset(now)
        if name == LOG_START_OFFSET:
            self._durable_starts = now

    def _read_unclean(self) -> frozenset[str]:
        path = self._path(UNCLEAN_LOGS)
        if not self._disk.exists(path):
            return frozenset()
        return frozenset(self._disk.read_bytes(path).decode().splitlines())

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def _read_topic_id(self, path: str) -> bytes | None:
        """None when there is no id: the directory's data was never flushed (a power cut took the
        unsynced identity), so nobody can say whose it is. Raises CorruptData.
        """
        metadata = f"{path}/{PARTITION_METADATA}"
        if not self._disk.exists(metadata):
            return None
        if is_torn_partition_metadata(self._disk.read_bytes(metadata)):
            return None
        return read_partition_metadata(self._disk, path)

    def _put_aside(self, path: str) -> None:
        if self._disk.exists(path):
            aside = f"{path}.{self._rng.randbytes(16).hex()}{DELETE_SUFFIX}"
            self._disk.rename(path, aside)
            self._to_remove.append(aside)


def _is_replica_name(name: str) -> bool:
    key = replica_of(name)
    return key is not None and key[0] != METADATA_TOPIC
