"""Replicas on disk: their folders, the topic of each folder, and the removal of folders. Blocking.

Layout: `<topic>-<partition>/`, with the topic id in partition.metadata. A folder whose id differs
from the metadata's belongs to an earlier topic of that name and is removed. A removal renames the
folder to `...-delete`; a thread removes the tree later.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from kvorum.broker.log_dirs.core.move_rules import replica_of_future
from kvorum.broker.log_dirs.future_replicas import FutureReplicas
from kvorum.broker.log_dirs.offset_checkpoints import OffsetCheckpoints, StoredReplica
from kvorum.metadata.image.image import TopicImage
from kvorum.raft.node.metadata_log import FOLDER_NAME
from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData
from kvorum.storage.files.checkpoints import (
    PARTITION_METADATA,
    TopicPartition,
    is_torn_partition_metadata,
    read_partition_metadata,
    sync_partition_metadata,
)
from kvorum.storage.files.file_names import aside_name, replica_of
from kvorum.storage.log.log import Log, LogConfig

_log = logging.getLogger(__name__)

DELETE_SUFFIX = "-delete"
UNCLEAN_LOGS = "unclean-logs"
"""Names of folders whose logs an orderly shutdown could not close. A damaged or failing log must be
checked at the next start, although the others need not be."""
DAMAGED = "damaged"
"""A file in a replica's folder: says that its batches were found damaged while in use, and where.
The next start may not find the damage itself, since it does not read below the recovery point."""
_NOBODY = bytes(16)
Topics = Callable[[], Mapping[bytes, TopicImage]]
_UNCUT_MAX = 200
"""Names of folders up to this length are kept whole when the folder is put aside."""
METADATA_TOPIC = "__cluster_metadata"
"""The metadata log is in the same data directory and belongs to the quorum, not to a broker."""


class OpenedLog(NamedTuple):
    log: Log
    high_watermark: int
    has_identity: bool


class ReplicaStore:
    """The replicas in one data directory.

    unclaimed: folder name -> topic id (None if missing or unreadable), of folders that no replica
    has opened.
    """

    def __init__(
        self, *, disk: Disk, data_directory: str, rng: random.Random, topics: Topics
    ) -> None:
        """topics: returns the topics that the cluster has now, by id; called when a log is
        opened."""
        self._disk = disk
        self._topics = topics
        self.directory = data_directory
        self._rng = rng
        self._is_clean = False
        self._unclean: frozenset[str] = frozenset()
        self.checkpoints = OffsetCheckpoints(disk, data_directory, self._closed)
        self.futures = FutureReplicas(disk, data_directory, rng)
        self.put_aside: set[str] = set()
        self._to_remove: list[str] = []
        self._files_left: list[str] = []
        self.unclaimed: dict[str, bytes | None] = {}
        self._damaged: dict[str, CorruptData] = {}
        """Folders whose partition.metadata is damaged; each affects one replica."""
        self._without_topic_id: set[str] = set()
        """Folders without a topic id, left alone until a replica of their name is opened."""
        self._refused: set[str] = set()
        """Folders whose logs could not be opened."""
        self._contested: set[str] = set()
        """Folders that have a copy in another directory, or whose topic id belongs to a topic of
        another name."""
        self._missing: set[str] = set()
        """Folders that are missing, although a log of that name held records and none was put aside
        for removal: someone has removed them."""

    def load(self, is_clean: bool) -> None:
        """Read the checkpoints and list the folders."""
        self._is_clean = is_clean
        self._disk.make_dirs(self.directory)
        self.checkpoints.load()
        self._unclean = self._read_unclean()
        names = self._disk.list_dir(self.directory)
        self.put_aside = {_stem(name) for name in names if name.endswith(DELETE_SUFFIX)}
        required = {
            f"{topic}-{partition}" for topic, partition in self.checkpoints.required_offsets()
        }
        lost = required.difference(names)
        going = {name for name in lost if _stem_of(name) in self.put_aside}
        self.checkpoints.drop(_keys_of(going))
        self._missing = lost - going
        for key in _keys_of(self._missing):
            self.checkpoints.keep_required(key)
        for name in names:
            path = f"{self.directory}/{name}"
            if name.endswith(DELETE_SUFFIX):
                self._to_remove.append(path)
            elif replica_of_future(name) is not None:
                self.futures.load(name)
            elif _is_replica_name(name) and name != FOLDER_NAME:
                try:
                    self.unclaimed[name] = self._read_topic_id(path)
                except CorruptData as damage:
                    self.unclaimed[name], self._damaged[name] = None, damage
        # A power failure may take the unsynced partition.metadata of a log (seed 130234). Drop such
        # a log's high watermark too: if the next checkpoint had it, it would count as one of this
        # boot.
        nameless = [name for name, found in self.unclaimed.items() if found is None]
        self.checkpoints.drop(
            _keys_of(name for name in nameless if self._required_offset(name) == 0)
        )

    @property
    def has_strays(self) -> bool:
        """True if `drop_unclaimed` has something to do."""
        return not self.unclaimed.keys() <= self._contested or not self._missing <= self._refused

    def was_flushed(self, name: str) -> bool:
        """True if a log of that name had records fsynced here, and no folder names another
        topic."""
        is_nameless = name in self._without_topic_id or self.unclaimed.get(name, b"") is None
        return name in self._missing or (is_nameless and self._required_offset(name) > 0)

    def leave_alone(self, name: str) -> None:
        """Do not open the folder of that name: it may not be the replica's newest copy."""
        self._contested.add(name)

    def missing_reason(self, name: str) -> str | None:
        """The reason why the replica of that name cannot be opened here: its folder is missing.
        None if the folder exists or held nothing. The checkpoints keep its entries until it is
        opened."""
        if name not in self._missing:
            return None
        self._refused.add(name)
        offset = self._required_offset(name)
        return f"{self.directory}/{name} is gone, and held what is below offset {offset}"

    def open(
        self, topic: str, topic_id: bytes, partition_id: int, config: LogConfig, *, now_ms: int
    ) -> OpenedLog:
        """Open the log of a replica; empty if no folder has this topic id. Raises CorruptData,
        OSError."""
        name = f"{topic}-{partition_id}"
        try:
            opened = self._open(name, topic, topic_id, partition_id, config, now_ms)
        except (CorruptData, OSError):
            self._refused.add(name)
            raise
        self._refused.discard(name)
        self._missing.discard(name)
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
        is_known = name in self.unclaimed or name in self._without_topic_id
        self._refuse_misplaced(name, path)
        self._without_topic_id.discard(name)
        found_id = self.unclaimed.pop(name, None)
        key = (topic, partition_id)
        if is_known and found_id is None:
            self._check_nameless(key, path)
            _log.warning("%s has no topic id and was never flushed: it is removed", path)
        elif is_known and found_id != topic_id:
            _log.info("remove %s: it belongs to another topic of that name", path)
        if is_known and found_id != topic_id:
            self._put_aside(path)
            is_known = False
        if not is_known:
            if name in self._missing:
                # The folder may have been an earlier topic's of that name; nothing here shows it.
                _log.warning(
                    "%s is gone, and held what is below offset %d; an empty log begins",
                    path,
                    self.checkpoints.recovery_point(key),
                )
            self.checkpoints.forget(key)
            # Thousands of replicas begin at once: check only that the folder does not exist.
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
            # Recovery has fsynced the records that it kept. A process that was killed may not have
            # fsynced partition.metadata; without it, a power failure would leave the log without a
            # topic id.
            sync_partition_metadata(self._disk, path)
        if log.torn_tail is not None:
            _log.warning("%s", log.torn_tail)
        # Bad sequence otherwise: 1. A power failure takes an unsynced tail, with records below the
        # high watermark. 2. Other records take their offsets. 3. Power fails again before the next
        # checkpoint: these records count as committed.
        self.checkpoints.lower(*key, log.end_offset)
        return OpenedLog(log, self.checkpoints.high_watermark(key), True)

    def _refuse_misplaced(self, name: str, path: str) -> None:
        owner = self._owner_by_id(name)
        if owner is not None:
            raise CorruptData(
                f"{path}/{PARTITION_METADATA}",
                0,
                f"the topic id in it is that of topic {owner}; give the folder its name back",
            )

    def _owner_by_id(self, name: str) -> str | None:
        """The topic of an unclaimed folder, by its topic id, if the folder's name says otherwise:
        someone renamed or copied it. None if no topic has that id."""
        topic = self._topics().get(self.unclaimed.get(name) or _NOBODY)
        key = replica_of(name)
        if topic is None or key is None or (topic.name == key[0] and key[1] in topic.partitions):
            return None
        return topic.name

    def _check_nameless(self, key: tuple[str, int], path: str) -> None:
        """Raise CorruptData unless a power failure may have taken the folder's partition.metadata.
        That file is fsynced before the first records are, so it exists wherever there is a recovery
        point."""
        damage = self._damaged.get(path.rpartition("/")[2])
        if damage is not None:
            raise damage
        if self.checkpoints.required_offset(key) > 0:
            raise CorruptData(
                f"{path}/{PARTITION_METADATA}",
                0,
                "it is missing, or a part of it is, so nothing says whose log this is; put it back "
                "(version: 0, topic_id: as `kvorum topics describe` has it)",
            )

    def mark_damaged(self, log: Log, damage: CorruptData) -> None:
        """Keep the replica offline at later starts, until its folder is moved away (`kvorum
        partitions restore`). Durable on return."""
        self._disk.write_atomic(f"{log.directory}/{DAMAGED}", f"{damage}\n".encode())

    def delete(self, replica: StoredReplica) -> None:
        """Put the folder of an open replica aside. File slices handed out earlier fail from now
        on."""
        self.checkpoints.drop([replica.topic_partition])
        self._put_aside(replica.log.directory)
        replica.log.delete()

    # --- moves between directories -----------------------------------------------------------

    def sync_names(self) -> None:
        """Make the names of all folders durable."""
        self._disk.sync_dir(self.directory)

    def was_closed(self, folder: str) -> bool:
        """True if the last process closed the log in that folder cleanly."""
        return self._is_clean and folder not in self._unclean

    def promote_future(self, folder: str, topic_id: bytes) -> None:
        """Make a future replica found at the start the replica of its name."""
        name = self.futures.promote(folder)
        self._disk.sync_dir(self.directory)
        self.unclaimed[name] = topic_id
        self._unclean |= {name}

    def drop_future(self, folder: str) -> None:
        """Put a future replica's folder aside."""
        self.futures.found.pop(folder, None)
        self._put_aside(self._path(folder))

    def vacate(self, replica: tuple[str, int], log: Log) -> str | None:
        """Put the folder of a log aside whose replica has moved to another directory. The log stays
        readable, until `remove_later` gets the path that is returned. None: it has no folder."""
        self.checkpoints.drop([replica])
        path = log.directory
        if not self._disk.exists(path):
            return None
        aside = self._path(_aside(path.rpartition("/")[2], self._rng.randbytes(16)))
        self._disk.rename(path, aside)
        log.move_to(aside)
        return aside

    def remove_later(self, path: str) -> None:
        """Remove a folder that was put aside, with the next removal."""
        self._to_remove.append(path)

    def delete_refused(self, name: str, topic_id: bytes) -> None:
        """Delete the folder of a replica that could not be opened, if the folder has this topic's
        id: the topic was deleted, or the replica was moved away."""
        path = f"{self.directory}/{name}"
        try:
            if self._disk.exists(path) and self._read_topic_id(path) != topic_id:
                return
        except CorruptData as damage:
            _log.warning("left alone: %s", damage)
            return
        for known in (self._refused, self._missing, self._contested):
            known.discard(name)
        self.unclaimed.pop(name, None)
        self.checkpoints.drop(_keys_of([name]))
        self._put_aside(path)

    def drop_unclaimed(self, opened_at: Callable[[str], str | None] = lambda name: None) -> None:
        """Put aside the folders that no replica opened: their topics were deleted, or their
        replicas moved away, while this broker was down. opened_at: returns the folder of the open
        replica of that name, if any."""
        for name in self.unclaimed:
            owner = self._owner_by_id(name)
            if owner is not None and name not in self._contested:
                _log.warning("left alone: %s/%s is of topic %s", self.directory, name, owner)
                self._contested.add(name)
        going = {n: found for n, found in self.unclaimed.items() if n not in self._contested}
        self.checkpoints.drop(_keys_of(n for n, found in going.items() if found is not None))
        # A missing folder that no replica could be opened in may still be a replica's. The others
        # belong to no topic: forget them.
        self._missing &= self._refused
        for name, topic_id in going.items():
            del self.unclaimed[name]
            if topic_id is None:
                # Without a topic id, nothing shows that the folder is this broker's.
                _log.warning("left alone: %s has no topic id and no topic", name)
                self._without_topic_id.add(name)
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
        """Take the paths that `remove` is to remove, in a thread."""
        paths, self._to_remove = self._to_remove, []
        return paths

    def remove(self, directories: Collection[str], files: Iterable[str] = ()) -> None:
        """Remove what was put aside. Blocks. Raises OSError; what is left is due again."""
        left = [*directories]
        self._files_left += files
        try:
            self._remove(left)
        finally:
            self._to_remove += left

    def _remove(self, directories: list[str]) -> None:
        """Remove files, and take what is removed off the lists."""
        if directories:
            # Fsync the new names of the folders first. Bad sequence otherwise: 1. Some files are
            # removed. 2. Power fails, and the folder has its old name again. 3. The replica is
            # moved back to this broker, and continues with the files that are left.
            self._disk.sync_dir(self.directory)
            # Then write the recovery points. If one outlives its folder, the next topic of that
            # name looks as if someone had removed its folder.
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

        broken: names of the folders whose logs could not be opened.
        """
        unclean = set(broken)
        for replica in replicas:
            topic, partition_id = replica.topic_partition
            name = f"{topic}-{partition_id}"
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
        closed = self._refused | self._without_topic_id | self._missing | self.unclaimed.keys()
        return [*_keys_of(closed), *self.futures.keys()]

    def _required_offset(self, name: str) -> int:
        return max(map(self.checkpoints.required_offset, _keys_of([name])), default=0)

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
        """The topic id in a folder; None if partition.metadata is missing or torn. It is fsynced
        before the log's first flush: so a power failure took it, no record was ever flushed, and
        the topic is unknown. Raises CorruptData."""
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
    """The `_stem` that this folder has once it is put aside; called for every log at every
    removal."""
    return name if len(name) <= _UNCUT_MAX else _stem(_aside(name, _NOBODY))


def _stem(aside: str) -> str:
    """The part of its old name that a folder put aside still has: the whole name, unless it is very
    long."""
    return aside.rpartition(".")[0]


def _keys_of(names: Iterable[str]) -> list[TopicPartition]:
    """Topic and partition of each folder name that is a replica's."""
    return [key for key in map(replica_of, names) if key is not None]


def _is_replica_name(name: str) -> bool:
    key = replica_of(name)
    return key is not None and key[0] != METADATA_TOPIC
