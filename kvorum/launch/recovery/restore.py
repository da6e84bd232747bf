"""Restarts a damaged replica from nothing (`kvorum partitions restore`), with the broker stopped.

The replica's folder is put aside, never removed. An empty folder with the topic's id replaces it,
so that the broker fetches everything from the leader. The directory's clean-shutdown marker is
removed first. With it, the next start would claim that the replica still has its records, and as an
eligible leader replica (KIP-966) it could be elected without any.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from kvorum.launch.config.properties import NodeConfig
from kvorum.launch.directories.identity import DirectoryLock, check_owner
from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import ConfigError, CorruptData
from kvorum.runtime.ids import uuid_text
from kvorum.storage.files.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET,
    HIGH_WATERMARK,
    LOG_START_OFFSET,
    RECOVERY_POINT,
    read_offsets,
    read_partition_metadata,
    write_offsets,
    write_partition_metadata,
)
from kvorum.storage.files.file_names import aside_name

ASIDE_SUFFIX = "-damaged"
"""A broker neither takes a folder with this suffix for a replica nor removes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """The result.

    folder: of the new, empty replica.
    put_aside: (old folder, new path) pairs.
    """

    folder: str
    put_aside: tuple[tuple[str, str], ...]


def restore(
    disk: Disk,
    config: NodeConfig,
    *,
    topic: str,
    partition_id: int,
    topic_id: bytes,
    is_dry_run: bool = False,
) -> Restoration:
    """Put the replica's folder aside and create an empty one in the same directory.

    Without any folder, the new one is created in the first readable directory. Durable on return.
    Raises ConfigError if a process uses the directories, if they belong to another node, or if the
    folder belongs to another topic of the same name; OSError.
    """
    name = f"{topic}-{partition_id}"
    with _locked(config):
        readable = [path for path in config.data_directories if _is_own(disk, path, config)]
        if not readable:
            raise ConfigError(
                f"none of {', '.join(config.data_directories)} is a data directory of broker "
                f"{config.node_id} yet; start it first"
            )
        holding = [path for path in readable if disk.exists(f"{path}/{name}")]
        for path in holding:
            _check_topic(disk, f"{path}/{name}", topic_id)
        home = (holding or readable)[0]
        put_aside = tuple(
            (f"{path}/{name}", f"{path}/{aside_name(name, secrets.token_hex(4), ASIDE_SUFFIX)}")
            for path in holding
        )
        if not is_dry_run:
            for path in {*holding, home}:
                _remove_checkpoint_entries(disk, path, (topic, partition_id))
            for folder, new_path in put_aside:
                disk.rename(folder, new_path)
            disk.make_dirs(f"{home}/{name}")
            write_partition_metadata(disk, f"{home}/{name}", topic_id)
            for path in {*holding, home}:
                disk.sync_dir(path)
    return Restoration(folder=f"{home}/{name}", put_aside=put_aside)


def _remove_checkpoint_entries(disk: Disk, path: str, key: tuple[str, int]) -> None:
    """Remove the clean-shutdown marker, and the checkpoint entries of the removed log: a recovery
    point above the new log's end would look like damage."""
    disk.remove(f"{path}/{CLEAN_SHUTDOWN}")
    disk.sync_dir(path)
    for name in (HIGH_WATERMARK, RECOVERY_POINT, LOG_START_OFFSET, CLEANER_OFFSET):
        offsets = read_offsets(disk, f"{path}/{name}")
        if offsets.pop(key, None) is not None:
            write_offsets(disk, f"{path}/{name}", offsets)


def _check_topic(disk: Disk, folder: str, topic_id: bytes) -> None:
    try:
        found = read_partition_metadata(disk, folder)
    except CorruptData:
        return  # the file is part of the damage
    if found is not None and found != topic_id:
        raise ConfigError(
            f"{folder} belongs to topic id {uuid_text(found)}, the cluster's topic of that name "
            f"has {uuid_text(topic_id)}: the broker removes it by itself at its next start"
        )


def _is_own(disk: Disk, path: str, config: NodeConfig) -> bool:
    """True if the directory is readable and this broker's. Raises ConfigError for another's."""
    try:
        if not disk.exists(path):
            return False
        owner = check_owner(disk, path, node_id=config.node_id, cluster_id=config.cluster_id)
    except ConfigError as refused:
        if isinstance(refused.__cause__, OSError):
            return False
        raise
    return owner is not None


@contextlib.contextmanager
def _locked(config: NodeConfig) -> Iterator[None]:
    """Lock all directories of the node that can be locked. Raises ConfigError if a broker runs."""
    locks = []
    try:
        for path in dict.fromkeys((config.directory, *config.data_directories)):
            with contextlib.suppress(OSError):
                # A failed directory cannot be locked, and cannot be in use.
                locks.append(DirectoryLock(path))
        yield
    finally:
        for lock in locks:
            lock.release()
