"""The data directories of a broker (KIP-112, KIP-858): identity, lock, clean-shutdown marker.

An unreadable directory is noted and skipped, unless it holds the metadata log. A directory of
another node is a configuration error and stops the start.
"""

from __future__ import annotations

import dataclasses
import errno
import logging
import random
from collections.abc import Callable, Sequence

from kvorum.broker.log_dirs.log_directories import FoundDirectory
from kvorum.launch.directories.identity import DirectoryLock, claim_directory
from kvorum.launch.directories.new_directories import NewDirectories
from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import ConfigError, CorruptData, shortage_of
from kvorum.runtime.ids import uuid_text
from kvorum.storage.files.checkpoints import (
    read_clean_shutdown,
    write_clean_shutdown,
)

_log = logging.getLogger(__name__)

UNCLEAN = -1


class OwnDirectories:
    """The directories found at the start. found: by path, for data directories only.

    metadata_id: id of the directory with the metadata log.
    epoch_before: the broker epoch at the last shutdown if every log of every directory was closed,
        else UNCLEAN.
    """

    def __init__(self, disk: Disk) -> None:
        self.new = NewDirectories(disk)
        self.found: dict[str, FoundDirectory] = {}
        self.metadata_id = b""
        self.epoch_before = UNCLEAN
        self._new: set[str] = set()
        self._is_first_start = False
        self._locks: list[DirectoryLock] = []

    def read_markers(self, disk: Disk) -> None:
        """Read the clean-shutdown markers. They stay, because a start that is refused must leave
        them to the next one."""
        epochs: set[int] = set()
        for path, claim in self.found.items():
            epoch = None
            if claim.failure is None:
                try:
                    epoch = read_clean_shutdown(disk, path)
                except OSError as failure:
                    if shortage_of(failure):
                        raise
                    self.found[path] = dataclasses.replace(claim, failure=failure)
                else:
                    self.found[path] = dataclasses.replace(claim, is_clean=epoch is not None)
            # A directory that is used for the first time had no log to close.
            if epoch is not None or path not in self._new:
                epochs.add(UNCLEAN if epoch is None else epoch)
        if len(epochs) == 1:
            self.epoch_before = epochs.pop()
        self._mark_new(disk)

    def _mark_new(self, disk: Disk) -> None:
        """Write clean-shutdown markers into new directories. If this start is refused, the next one
        would otherwise treat them as not closed."""
        for path in sorted(self._new):
            claim = self.found[path]
            if claim.failure is None and self.epoch_before != UNCLEAN:
                try:
                    write_clean_shutdown(disk, path, broker_epoch=self.epoch_before)
                except OSError as failure:
                    if shortage_of(failure):
                        raise
                    self.found[path] = dataclasses.replace(claim, failure=failure)
                else:
                    self.found[path] = dataclasses.replace(claim, is_clean=True)

    def warn_of_new(self, metadata_directory: str) -> None:
        """Warn of a new, empty directory of a node that has run before.

        It may have been added, or it may be the mount point of a disk that is not mounted. It is
        allowed, as in Kafka.
        """
        if self._is_first_start:
            return
        ids = {metadata_directory: self.metadata_id}
        ids |= {path: claim.directory_id or b"" for path, claim in self.found.items()}
        known = [
            f"{path} (id {uuid_text(directory_id) if directory_id else 'not readable'})"
            for path, directory_id in ids.items()
            if path not in self._new
        ]
        for path in sorted(self._new):
            claim = self.found[path]
            if claim.directory_id is None:
                continue
            _log.warning(
                "%s was empty and begins as a new data directory, id %s; this node has run before, "
                "with %s. If a disk should be mounted there, stop the broker and mount it: what "
                "lies on that disk is not in use, and replicas that others hold are fetched anew "
                "into the directories that are here",
                path,
                uuid_text(claim.directory_id),
                ", ".join(known),
            )

    def warn_of_loss(self, metadata_directory: str, replicas: Callable[[], int]) -> None:
        """Warn of new, empty directories at a first start if the cluster knows this broker.

        `warn_of_new` did not warn, because no directory shows an earlier run. But the cluster has
        replicas of this broker, so it has run before: a disk was wiped or is not mounted.

        replicas: returns the number of these replicas; called only at a first start.
        """
        new = {path for path in self.found if path in self._new or path == metadata_directory}
        count = replicas() if self._is_first_start and new else 0
        for path in sorted(new) if count else ():
            directory_id = self.found[path].directory_id
            _log.warning(
                "%s was empty and begins as a new data directory, id %s; the cluster has %d "
                "replicas of this broker, so it has run before. If a disk should be mounted there, "
                "stop the broker and mount it: what lies on that disk is not in use, and replicas "
                "that others hold are fetched anew",
                path,
                uuid_text(directory_id) if directory_id else "not readable",
                count,
            )

    def release(self) -> None:
        for lock in self._locks:
            lock.release()
        self._locks.clear()

    def lock(self, path: str) -> None:
        """Lock a directory. Raises ConfigError if another process holds the lock, OSError."""
        self._locks.append(DirectoryLock(path))
        self.new.note(path)

    def claim_first(
        self, disk: Disk, path: str, *, owner: tuple[int, str], rng: random.Random
    ) -> None:
        """Claim and lock the directory of the metadata log. Raises ConfigError, CorruptData."""
        node_id, cluster_id = owner
        # At the node's first start this directory has no meta.properties.
        self._is_first_start = self.new.look(path)
        self.metadata_id = claim_directory(
            disk, path, node_id=node_id, cluster_id=cluster_id, rng=rng
        )
        self.lock(path)

    def claim(self, disk: Disk, path: str, *, owner: tuple[int, str], rng: random.Random) -> None:
        """Claim and lock a further directory (see `take_directories`)."""
        node_id, cluster_id = owner
        if self.new.look(path):
            self._new.add(path)
        try:
            directory_id = claim_directory(
                disk, path, node_id=node_id, cluster_id=cluster_id, rng=rng, has_log=False
            )
        except CorruptData as damage:
            unreadable = OSError(errno.EBADMSG, str(damage))
            self.found[path] = FoundDirectory(directory_id=None, failure=unreadable)
            return
        except ConfigError as refused:
            if not isinstance(refused.__cause__, OSError) or shortage_of(refused.__cause__):
                raise
            self.found[path] = FoundDirectory(directory_id=None, failure=refused.__cause__)
            return
        self.found[path] = FoundDirectory(directory_id=directory_id)
        try:
            self.lock(path)
        except OSError as failure:
            if shortage_of(failure):
                raise
            self.found[path] = FoundDirectory(directory_id=directory_id, failure=failure)


def take_directories(
    disk: Disk,
    *,
    metadata_directory: str,
    data_directories: Sequence[str],
    node_id: int,
    cluster_id: str,
    rng: random.Random,
) -> OwnDirectories:
    """Claim and lock all directories, and read their markers.

    Raises ConfigError with a directory that belongs to another node, is in use, or is a copy of
    another one; also if the metadata log's directory cannot be read.
    """
    own = OwnDirectories(disk)
    owner = (node_id, cluster_id)
    try:
        # As it is required: an error there leaves the others untouched.
        own.claim_first(disk, metadata_directory, owner=owner, rng=rng)
        for path in data_directories:
            if path == metadata_directory:
                own.found[path] = FoundDirectory(directory_id=own.metadata_id)
            else:
                own.claim(disk, path, owner=owner, rng=rng)
        _check_copies(own, metadata_directory)
    except ConfigError:
        own.new.undo()
        own.release()
        raise
    own.warn_of_new(metadata_directory)
    own.read_markers(disk)
    return own


def _check_copies(own: OwnDirectories, metadata_directory: str) -> None:
    seen: dict[bytes, str] = {own.metadata_id: metadata_directory}
    for path, claim in own.found.items():
        if claim.directory_id is None:
            continue
        other = seen.setdefault(claim.directory_id, path)
        if other != path:
            raise ConfigError(
                f"{path} and {other} have the same directory.id "
                f"{uuid_text(claim.directory_id)}: one is a copy of the other; take one of them "
                "out of log.dirs"
            )
