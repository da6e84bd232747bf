"""The metadata log of a node: `__cluster_metadata-0` in its data directory, with quorum-state."""

from __future__ import annotations

import dataclasses
import logging

from launch.properties import NodeConfig
from raft.metadata_log import FOLDER_NAME, MetadataLog, open_metadata_log
from raft.model import RaftConfig
from raft.snapshot_files import SnapshotFiles
from runtime.async_disk import OsAsyncDisk
from runtime.clock import wall_ms
from runtime.disk import Disk
from runtime.errors import (
    ConfigError,
    CorruptData,
    DirectoryUnusable,
    NewerFormat,
    disk_failure,
)
from snapshots.store import SnapshotStore

logger = logging.getLogger("kvorum.raft")


def metadata_directory(directory: str) -> str:
    """Where in a data directory the metadata log lies."""
    return f"{directory}/{FOLDER_NAME}"


async def open_log(
    disk: Disk, config: NodeConfig, directory_id: bytes
) -> tuple[RaftConfig, MetadataLog]:
    """Recover a node's metadata log; with it, the node's configuration for the quorum.

    Raises DirectoryUnusable for damage that is not a torn tail and for a disk that fails,
    ConfigError for a directory that was made for another kind of voter set than the configuration
    has.
    """
    path = metadata_directory(config.directory)
    files = SnapshotFiles(SnapshotStore(OsAsyncDisk(), path), config.snapshots)
    is_dynamic = config.raft.is_dynamic
    try:
        disk.make_dirs(path)
        disk.sync_dir(config.directory)
        opened = await open_metadata_log(disk, path, files, is_dynamic=is_dynamic, now_ms=wall_ms())
    except NewerFormat as error:
        raise DirectoryUnusable(f"{error}; run that build") from error
    except CorruptData as error:
        raise DirectoryUnusable(f"{error}; {_way_out(config)}") from error
    except OSError as failure:
        raise DirectoryUnusable(
            f"cannot open the metadata log: {disk_failure(failure)}"
        ) from failure
    if opened.replica_log.log.torn_tail is not None:
        logger.warning("node=%d %s", config.node_id, opened.replica_log.log.torn_tail)
    for damage in opened.damaged:
        logger.error("node=%d refuses a snapshot: %s", config.node_id, damage)
    check_kind(config, opened)
    return dataclasses.replace(config.raft, directory_id=directory_id), opened


def _way_out(config: NodeConfig) -> str:
    """What to do with a node whose metadata cannot be trusted."""
    if config.raft.address is None:
        return f"this broker fetches its metadata anew if you remove {FOLDER_NAME}"
    if config.raft.is_dynamic:
        return (
            "this disk must not vote any more: empty the data directory, then kvorum init --again, "
            "quorum remove-voter and add-voter (docs/protocol/voters.md)"
        )
    return (
        "a static voter must not vote from an empty disk: restore the directory from a copy, or "
        "run without this voter (docs/protocol/voters.md)"
    )


def check_kind(config: NodeConfig, opened: MetadataLog) -> None:
    """Raise ConfigError if the log was written with the other kind of voter set."""
    if opened.was_dynamic in (None, config.raft.is_dynamic):
        return
    if opened.was_dynamic:
        raise ConfigError(
            f"{config.directory} belongs to a quorum with dynamic voters, but the configuration "
            f"has controller.quorum.voters={config.node.controller_quorum_voters}; give "
            "controller.quorum.bootstrap.servers instead"
        )
    raise ConfigError(
        f"{config.directory} belongs to a quorum with static voters, but the configuration has "
        f"controller.quorum.bootstrap.servers={config.node.controller_quorum_bootstrap_servers}; "
        "give controller.quorum.voters as before"
    )
