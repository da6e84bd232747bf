"""The metadata log of a node: `__cluster_metadata-0` in its data directory, with quorum-state."""

from __future__ import annotations

import dataclasses
import logging

from kvorum.launch.config.properties import NodeConfig
from kvorum.raft.model.values import RaftConfig
from kvorum.raft.model.voters import VoterSet
from kvorum.raft.node.committed_mark import read_committed
from kvorum.raft.node.metadata_log import FOLDER_NAME, MetadataLog, open_metadata_log
from kvorum.raft.node.snapshot_files import SnapshotFiles
from kvorum.runtime.errors import (
    ConfigError,
    CorruptData,
    DirectoryUnusable,
    NewerFormat,
    disk_failure,
)
from kvorum.runtime.machine import Machine
from kvorum.runtime.text import address_text
from kvorum.snapshots.store import SnapshotStore

logger = logging.getLogger("kvorum.raft")


def metadata_directory(directory: str) -> str:
    """Path of the metadata log in a data directory."""
    return f"{directory}/{FOLDER_NAME}"


async def open_log(
    machine: Machine, config: NodeConfig, directory_id: bytes
) -> tuple[RaftConfig, MetadataLog]:
    """Recover a node's metadata log; return it with the node's quorum configuration.

    Raises DirectoryUnusable for a disk failure and for damage that is not a torn tail. Raises
    ConfigError for a directory made for the other kind of voter set (static or dynamic).
    """
    path = metadata_directory(config.directory)
    files = SnapshotFiles(SnapshotStore(machine.async_disk, path), config.snapshots)
    is_dynamic = config.raft.is_dynamic
    disk, now_ms = machine.disk, machine.clock.wall_ms()
    try:
        disk.make_dirs(path)
        disk.sync_dir(config.directory)
        opened = await open_metadata_log(disk, path, files, is_dynamic=is_dynamic, now_ms=now_ms)
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
    raft = dataclasses.replace(
        config.raft,
        directory_id=directory_id,
        committed_offset=min(
            read_committed(machine.disk, config.directory), opened.replica_log.log.end_offset
        ),
    )
    return raft, opened


def _way_out(config: NodeConfig) -> str:
    """The remedy for a node whose metadata cannot be trusted."""
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


def listener_complaint(
    config: NodeConfig, directory_id: bytes, voters: VoterSet, log_end_offset: int
) -> str | None:
    """A sentence for a controller whose listener differs from the one that the voters use; or None.

    voters: in force by its log, or by the bootstrap checkpoint. Bad sequence:
    1. kvorum init writes the files and checkpoints for 127.0.0.1.
    2. Each file is edited to its own host.
    3. Every vote request goes to 127.0.0.1, and no leader is ever elected.
    """
    listens = f"node {config.node_id} listens on {address_text(*config.advertised)}"
    if not config.raft.is_dynamic:
        expected = config.voter_addresses[config.node_id]
        if expected == config.advertised:
            return None
        return (
            f"{listens}, but controller.quorum.voters sends the other nodes to "
            f"{address_text(*expected)}; give both the same address, on every node"
        )
    own = voters.get(config.node_id)
    if own is None or not own.is_key(config.node_id, directory_id):
        return None
    if (own.host, own.port) == config.advertised:
        return None
    at = address_text(own.host, own.port)
    if log_end_offset > 0:
        return (
            f"{listens}, but the voter set has it at {at}: the next leader is told; if none is "
            f"elected, set peer.address.overrides={config.node_id}="
            f"{address_text(*config.advertised)} on the other controllers"
        )
    return (
        f"{listens}, but the bootstrap checkpoint in {metadata_directory(config.directory)} has it "
        f"at {at}: the other controllers look for it there, and cannot elect it or hear its vote. "
        "Listen there, or make the cluster anew with kvorum init FOLDER --controller "
        "ID@HOST[:PORT] for each controller: that writes one address into all files and checkpoints"
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
