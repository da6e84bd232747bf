"""Recovery after a majority of the voters is lost for good: one survivor continues alone.

It is unsafe, and done offline, because it gives up Raft's guarantees. Records that only the lost
voters had are lost. Records that were never committed may become committed. Lost voters that return
may elect a second leader. So the caller must state this cost before anything is changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from kvorum.launch.config.properties import NodeConfig
from kvorum.launch.directories.identity import DirectoryLock, check_owner
from kvorum.launch.directories.metadata_log import check_kind, metadata_directory
from kvorum.raft.model.values import VoteState
from kvorum.raft.model.voters import Voter, VoterSet
from kvorum.raft.node.committed_mark import read_committed
from kvorum.raft.node.control_records import parse_leader_change, voters_batch
from kvorum.raft.node.metadata_log import MetadataLog, open_metadata_log
from kvorum.raft.node.snapshot_files import SnapshotFiles
from kvorum.runtime.async_disk import OsAsyncDisk
from kvorum.runtime.clock import wall_ms
from kvorum.runtime.disk import OsDisk
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.ids import UUID_ZERO
from kvorum.runtime.text import address_text
from kvorum.snapshots.store import SnapshotStore
from kvorum.storage.format.batch import iter_headers, iter_records
from kvorum.storage.log.log import Log


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivor:
    """The state of a directory, and the effect of making its node the only voter.

    end_offset: of the log, exclusive.
    epoch: of its last record.
    committed_offset: end (exclusive) of the surely committed records, by the newest snapshot and by
        what the node knew before it stopped.
    next_epoch: the epoch after the recovery, above any that this node has seen.
    """

    node_id: int
    directory: str
    voters: VoterSet
    end_offset: int
    epoch: int
    committed_offset: int
    next_epoch: int

    @property
    def lost(self) -> tuple[int, ...]:
        """The voters that are given up."""
        return tuple(i for i in self.voters.ids if i != self.node_id)


def inspect(config: NodeConfig) -> Survivor:
    """Examine a controller's directory; changes nothing, not even a torn tail.

    Raises ConfigError if the directory is not this node's or is in use, CorruptData.
    """
    directory_id = _directory_id(config)
    with _locked(config.directory), tempfile.TemporaryDirectory() as folder:
        copy = f"{folder}/log"
        shutil.copytree(metadata_directory(config.directory), copy)
        opened = _open(config, copy)
        try:
            return _survivor(config, directory_id, opened)
        finally:
            opened.replica_log.log.close()


def recover(config: NodeConfig) -> Survivor:
    """Make this node the only voter; return its state before. Durable on return.

    Dynamic voters: a VotersRecord with only this node is appended to the log, in an epoch above all
    known ones. Static voters: the configuration must name only this node already, and the epoch is
    raised. Raises ConfigError, CorruptData, OSError.
    """
    directory_id = _directory_id(config)
    with _locked(config.directory):
        _check_static_voters(config)
        opened = _open(config, metadata_directory(config.directory))
        log, vote_store = opened.replica_log.log, opened.replica_log.vote_store
        before = _survivor(config, directory_id, opened)
        if config.raft.is_dynamic and before.voters.ids == (config.node_id,):
            log.close()
            raise ConfigError(
                f"node {config.node_id} is the only voter already: nothing to recover"
            )
        # The vote state before the log, as always; a second attempt after a crash in between uses
        # one more epoch.
        vote_store.save(VoteState(epoch=before.next_epoch))
        if config.raft.is_dynamic:
            voters = VoterSet.of([Voter(config.node_id, directory_id, *config.advertised)])
            batch = voters_batch(
                voters,
                base_offset=before.end_offset,
                epoch=before.next_epoch,
                timestamp_ms=wall_ms(),
            )
            log.append_as_leader(batch, leader_epoch=before.next_epoch, now_ms=wall_ms())
            log.flush()
        log.close()
    return before


def _check_static_voters(config: NodeConfig) -> None:
    if not config.raft.is_dynamic and config.raft.voters != (config.node_id,):
        raise ConfigError(
            f"the voters are static: first set controller.quorum.voters={config.node_id}@"
            f"{address_text(*config.advertised)} in the configuration of every node, controllers "
            f"and brokers; it is {config.node.controller_quorum_voters}"
        )


def _voters_of_last_epoch(log: Log) -> tuple[int, ...]:
    """Ids of the voters in the newest LeaderChange record of a log."""
    found: tuple[int, ...] = ()
    offset = log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, bytes_max=1 << 20, end_offset=log.end_offset).read()
        for position, header in iter_headers(data):
            offset = header.end_offset
            for record in iter_records(data, position, header) if header.is_control else ():
                change = parse_leader_change(record.key or b"", record.value or b"")
                found = found if change is None else change.voters
    return found


def _directory_id(config: NodeConfig) -> bytes:
    owned = check_owner(
        OsDisk(), config.directory, node_id=config.node_id, cluster_id=config.cluster_id
    )
    if owned is None:
        raise ConfigError(f"{config.directory} is empty: there is nothing to recover from")
    return owned


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[None]:
    lock = DirectoryLock(directory)
    try:
        yield
    finally:
        lock.release()


def _open(config: NodeConfig, path: str) -> MetadataLog:
    files = SnapshotFiles(SnapshotStore(OsAsyncDisk(), path), config.snapshots)
    opened = asyncio.run(
        open_metadata_log(
            OsDisk(), path, files, is_dynamic=config.raft.is_dynamic, now_ms=wall_ms()
        )
    )
    check_kind(config, opened)
    return opened


def _survivor(config: NodeConfig, directory_id: bytes, opened: MetadataLog) -> Survivor:
    tail = opened.replica_log.tail()
    vote = opened.replica_log.vote_store.load()
    if config.raft.is_dynamic:
        voters = tail.voters.last
    else:
        # The configuration may name only the survivor already; the log knows the earlier voters.
        earlier = _voters_of_last_epoch(opened.replica_log.log)
        voters = VoterSet.static(sorted({*config.raft.voters, *earlier}))
    if config.raft.is_dynamic and directory_id == UUID_ZERO:
        raise ConfigError(f"{config.directory} has no directory id")
    known = read_committed(OsDisk(), config.directory)
    if opened.newest is not None:
        known = max(known, opened.newest.offset)
    return Survivor(
        node_id=config.node_id,
        directory=config.directory,
        voters=voters,
        end_offset=tail.end_offset,
        epoch=tail.last_epoch,
        committed_offset=min(max(known, 0), tail.end_offset),
        next_epoch=max(tail.last_epoch, vote.epoch) + 1,
    )
