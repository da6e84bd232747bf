"""Replicas on disk: their folders, whose they are, and which of them go. Blocking.

Layout (log.md section 1): `<topic>-<partition>/` with partition.metadata naming the topic id. A
directory whose id differs from the metadata's belongs to an older topic of that name and is
removed. Removal is a rename to `...-delete` and, later and off the loop, the removal of the tree.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from kvorum.broker.log_dirs.offset_checkpoints import OffsetCheckpoints, StoredReplica
from kvorum.metadata.image.image import TopicImage
from kvorum.raft.metadata_log import FOLDER_NAME
from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData
from kvorum.storage.log.checkpoints import (
    PARTITION_METADATA,
    TopicPartition,
    is_torn_partition_metadata,
    read_partition_metadata,
    sync_partition_metadata,
)
from kvorum.storage.log.file_names import aside_name, replica_of
from kvorum.storage.log.log import Log, LogConfig

_log = logging.getLogger(__name__)

DELETE_SUFFIX = "-delete"
UNCLEAN_LOGS = "unclean-logs"
"""Names of directories whose logs an orderly shutdown could not close: one damaged or failing
log must be checked at the next start although the others need not.
"""
DAMAGED = "damaged"
"""In a replica's folder: its batches were found damaged while it was in use, and where. A start
need not come upon that, for it does not read below the recovery point."""
_NOBODY = bytes(16)
Topics = Callable[[], Mapping[bytes, TopicImage]]
_UNCUT_MAX = 200
"""Names of folders up to so many characters are put aside as a whole."""
METADATA_TOPIC = "__cluster_metadata"
"""The metadata log lives in the same data directory and is the quorum's, not ours."""


class OpenedLog(NamedTuple):
    log: Log
    high_watermark: int
    has_identity: bool


class ReplicaStore:
    """unclaimed: directory name -> topic id (None if unreadable) that no replica has taken."""

    def __init__(
        self, *, disk: Disk, data_directory: str, rng: random.Random, topics: Topics
    ) -> None:
        """topics: those that the cluster has now, by id; asked once a log is to be opened."""
        self._disk = disk
        self._topics = topics
        self.directory = data_directory
        self._rng = rng
        self._is_clean = False
        self._unclean: frozenset[str] = frozenset()
        self.checkpoints = OffsetCheckpoints(disk, data_directory, self._closed)
        self._to_remove: list[str] = []
        self._files_left: list[str] = []
        self.unclaimed: dict[str, bytes | None] = {}
        self._damaged: dict[str, CorruptData] = {}
        """Folders whose partition.metadata cannot be read: each costs the one replica."""
        self._nameless: set[str] = set()
        """Folders that say nothing of whose they are, left alone until a replica of their name."""
        self._refused: set[str] = set()
        """Folders whose logs could not be opened."""
        self._contested: set[str] = set()
        """Folders of which there is a copy in another directory, or which hold what is of a topic
        of another name."""
        self._lost: set[str] = set()
        """Folders that are not there, though a log of that name held records, and none was put
        aside to be removed: somebody has taken them."""

    def load(self, is_clean: bool) -> None:
        """Read the checkpoints and find what is there."""
        self._is_clean = is_clean
        self._disk.make_dirs(self.directory)
        self.checkpoints.load()
        self._unclean = self._read_unclean()
        names = self._disk.list_dir(self.directory)
        put_aside = {_stem(name) for name in names if name.endswith(DELETE_SUFFIX)}
        held = {f"{topic}-{partition}" for topic, partition in self.checkpoints.all_held()}
        lost = held.difference(names)
        going = {name for name in lost if _stem_of(name) in put_aside}
        self.checkpoints.drop(_keys_of(going))
        self._lost = lost - going
        for key in _keys_of(self._lost):
            self.checkpoints.keep_held(key)
        for name in names:
            path = f"{self.directory}/{name}"
            if name.endswith(DELETE_SUFFIX):
                self._to_remove.append(path)
            elif _is_replica_name(name) and name != FOLDER_NAME:
                try:
                    self.unclaimed[name] = self._read_topic_id(path)
                except CorruptData as damage:
                    self.unclaimed[name], self._damaged[name] = None, damage
        # Seed 130234: the power took the name of a log that was not fsynced. Its watermark, kept
        # and written again, would be of this start of the machine for the next process.
        nameless = [name for name, found in self.unclaimed.items() if found is None]
        self.checkpoints.drop(_keys_of(name for name in nameless if self._held(name) == 0))

    @property
    def has_strays(self) -> bool:
        """There is something for `drop_unclaimed` to do."""
        return not self.unclaimed.keys() <= self._contested or not self._lost <= self._refused

    def was_flushed(self, name: str) -> bool:
        """A log of that name had its records fsynced here, and no folder says that it was another
        topic's."""
        is_nameless = name in self._nameless or self.unclaimed.get(name, b"") is None
        return name in self._lost or (is_nameless and self._held(name) > 0)

    def leave_alone(self, name: str) -> None:
        """It may be the folder of the replica of that name, or another one is: nobody opens it."""
        self._contested.add(name)

    def refuse_lost(self, name: str) -> str | None:
        """The reason why the replica of that name cannot be opened here: its folder is gone. None
        if it is there, or held nothing. The checkpoints keep its entries until it is opened."""
        if name not in self._lost:
            return None
        self._refused.add(name)
        held = self._held(name)
        return f"{self.directory}/{name} is gone, and held what is below offset {held}"

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
        self._lost.discard(name)
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
        self._refuse_misplaced(name, path)
        self._nameless.discard(name)
        found_id = self.unclaimed.pop(name, None)
        key = (topic, partition_id)
        if is_known and found_id is None:
            self._check_nameless(key, path)
            _log.warning("%s does not say whose it is, and was never flushed: it goes", path)
        elif is_known and found_id != topic_id:
            _log.info("remove %s: it belongs to another topic of that name", path)
        if is_known and found_id != topic_id:
            self._put_aside(path)
            is_known = False
        if not is_known:
            if name in self._lost:
                # Perhaps of a topic of that name that is gone: nothing here says which.
                _log.warning(
                    "%s is gone, and held what is below offset %d; an empty log begins",
                    path,
                    self.checkpoints.recovery_point(key),
                )
            self.checkpoints.forget(key)
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
            recovery_point=self.checkpoints.recovery_point(key),
            is_clean=self._is_clean and name not in self._unclean,
            log_start_offset=self.checkpoints.log_start(key),
        )
        if not (self._is_clean and name not in self._unclean):
            # Recovery has fsynced what it kept, and a process that was killed may never have come
            # to fsync this. Without it the next power cut would make the log nobody's.
            sync_partition_metadata(self._disk, path)
        if log.torn_tail is not None:
            _log.warning("%s", log.torn_tail)
        # 1. The power fails and takes a tail that was not fsynced, of records below the watermark,
        # 2. others come in their place, 3. the power fails again before the next checkpoint: those
        # would count as committed.
        self.checkpoints.lower(*key, log.end_offset)
        return OpenedLog(log, self.checkpoints.high_watermark(key), True)

    def _refuse_misplaced(self, name: str, path: str) -> None:
        owner = self._owner_by_id(name)
        if owner is not None:
            raise CorruptData(
                f"{path}/{PARTITION_METADATA}",
                0,
                f"by the topic id in it, what lies here is of topic {owner}; give it its name back",
            )

    def _owner_by_id(self, name: str) -> str | None:
        """The topic of an unclaimed folder, by the id in it, if that is not what its name says:
        somebody has renamed it, or made a copy. None for the replicas of topics that are gone."""
        topic = self._topics().get(self.unclaimed.get(name) or _NOBODY)
        key = replica_of(name)
        if topic is None or key is None or (topic.name == key[0] and key[1] in topic.partitions):
            return None
        return topic.name

    def _check_nameless(self, key: tuple[str, int], path: str) -> None:
        """Raise CorruptData unless the folder may have lost its partition.metadata with the power:
        that is fsynced before the first records are, and so before there is a recovery point."""
        damage = self._damaged.get(path.rpartition("/")[2])
        if damage is not None:
            raise damage
        if self.checkpoints.held(key) > 0:
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

    def delete(self, replica: StoredReplica) -> None:
        """Take the replica's directory away under its feet; slices already handed out fail."""
        self.checkpoints.drop([(replica.core.topic, replica.core.partition_id)])
        self._put_aside(replica.log.directory)
        replica.log.delete()

    def delete_refused(self, name: str, topic_id: bytes) -> None:
        """The topic of a replica that could not be opened is gone, or the replica was moved away:
        its folder goes, if it says that it is that topic's."""
        path = f"{self.directory}/{name}"
        try:
            if self._disk.exists(path) and self._read_topic_id(path) != topic_id:
                return
        except CorruptData as damage:
            _log.warning("left alone: %s", damage)
            return
        for known in (self._refused, self._lost, self._contested):
            known.discard(name)
        self.unclaimed.pop(name, None)
        self.checkpoints.drop(_keys_of([name]))
        self._put_aside(path)

    def drop_unclaimed(self, opened_at: Callable[[str], str | None] = lambda name: None) -> None:
        """Remove the directories that nobody claimed: their topics are gone, or were moved away
        from here while this broker slept. opened_at: where the replica of that name is, if
        anywhere."""
        for name in self.unclaimed:
            owner = self._owner_by_id(name)
            if owner is not None and name not in self._contested:
                _log.warning("left alone: %s/%s is of topic %s", self.directory, name, owner)
                self._contested.add(name)
        going = {n: found for n, found in self.unclaimed.items() if n not in self._contested}
        self.checkpoints.drop(_keys_of(n for n, found in going.items() if found is not None))
        # Nor does any topic ask for these.
        self._lost &= self._refused
        for name, topic_id in going.items():
            del self.unclaimed[name]
            if topic_id is None:
                # Nothing says that it is ours.
                _log.warning("left alone: %s has no topic id and no topic", name)
                self._nameless.add(name)
                continue
            if topic_id not in self._topics():
                why = "its topic is gone"
            elif (path := opened_at(name)) is not None:
                why = f"a copy of the replica in {path}"
            else:
                why = "no replica of this broker"
            _log.info("remove %s/%s: %s", self.directory, name, why)
            self._put_aside(f"{self.directory}/{name}")

    def take_removals(self) -> list[str]:
        """Paths to hand to `remove`, in a thread."""
        paths, self._to_remove = self._to_remove, []
        return paths

    def remove(self, directories: Collection[str], files: Iterable[str] = ()) -> None:
        """Remove what was put aside. Blocks; raises OSError: what is left is due again."""
        left = [*directories]
        self._files_left += files
        try:
            self._remove(left)
        finally:
            self._to_remove += left

    def _remove(self, directories: list[str]) -> None:
        """Takes what is gone off the lists."""
        if directories:
            # Their new names first. Bad sequence: 1. some files are removed, 2. the power fails and
            # the folder has its old name again, 3. the replica is moved back to this broker, and
            # goes on with the files that are left.
            self._disk.sync_dir(self.directory)
            # Then the recovery points. With one that outlives the folder put aside, the next topic
            # of that name looks like one whose folder somebody has taken.
            going = {_stem(path.rpartition("/")[2]) for path in directories}
            self.checkpoints.write_dropped(lambda key: _stem_of(f"{key[0]}-{key[1]}") in going)
        while directories:
            self._disk.remove_tree(directories[-1])
            directories.pop()
        while self._files_left:
            self._disk.remove(self._files_left[-1])
            self._files_left.pop()

    def close_all(self, replicas: Sequence[StoredReplica], broken: Iterable[str]) -> None:
        """Close every log, then write all checkpoints. Raises OSError.

        broken: directory names of logs that could not even be opened.
        """
        unclean = set(broken)
        for replica in replicas:
            name = f"{replica.core.topic}-{replica.core.partition_id}"
            if replica.is_offline:
                unclean.add(name)
                continue
            try:
                if replica.identity_unsynced:
                    replica.sync_identity()
                replica.log.close()
            except CorruptData as damage:
                _log.error("%s is not closed in good order: %s", replica.log.directory, damage)
                replica.log.abandon()
                unclean.add(name)
        if unclean or self._unclean:
            names = "".join(f"{name}\n" for name in sorted(unclean))
            self._disk.write_atomic(self._path(UNCLEAN_LOGS), names.encode())
        self.checkpoints.collect_high_watermarks(replicas)
        self.checkpoints.write_high_watermarks()
        self.checkpoints.collect_log_offsets(replicas)
        self.checkpoints.write_log_offsets()
        self.remove(self.take_removals())

    def _closed(self) -> list[TopicPartition]:
        return _keys_of(self._refused | self._nameless | self._lost | self.unclaimed.keys())

    def _held(self, name: str) -> int:
        return max(map(self.checkpoints.held, _keys_of([name])), default=0)

    def _read_unclean(self) -> frozenset[str]:
        path = self._path(UNCLEAN_LOGS)
        if not self._disk.exists(path):
            return frozenset()
        try:
            return frozenset(self._disk.read_bytes(path).decode().splitlines())
        except UnicodeDecodeError as damage:
            _log.warning("%s is damaged (%s): every log is checked", path, damage)
            self._is_clean = False
            return frozenset()

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
            name = path.rpartition("/")[2]
            aside = f"{self.directory}/{_aside(name, self._rng.randbytes(16))}"
            self._disk.rename(path, aside)
            self._to_remove.append(aside)


def _aside(name: str, unique: bytes) -> str:
    return aside_name(name, unique.hex(), DELETE_SUFFIX)


def _stem_of(name: str) -> str:
    """`_stem` of what a folder is put aside as; asked for all of them at every removal."""
    return name if len(name) <= _UNCUT_MAX else _stem(_aside(name, _NOBODY))


def _stem(aside: str) -> str:
    """The part of its old name that a folder put aside still has: all of it, but for a very long
    name."""
    return aside.rpartition(".")[0]


def _keys_of(names: Iterable[str]) -> list[TopicPartition]:
    """Topic and partition of each folder that is a replica's, by its name."""
    return [key for key in map(replica_of, names) if key is not None]


def _is_replica_name(name: str) -> bool:
    key = replica_of(name)
    return key is not None and key[0] != METADATA_TOPIC
