"""Recovery of a node's disk at a start, and its result in the form that the checks need."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from kvorum.chaos.sim.kernel.async_disk import SimAsyncDisk, run_now
from kvorum.chaos.sim.quorum.model.mirror import NO_KEYS, Mirror, log_entries
from kvorum.chaos.sim.quorum.model.state import ListState, VoterKeys, keys_of_set, state_of
from kvorum.raft.model.voters import VoterSet
from kvorum.raft.node.metadata_log import MetadataLog, open_metadata_log
from kvorum.raft.node.snapshot_files import SnapshotFiles, SnapshotPolicy, header_voters, voters_of
from kvorum.runtime.async_disk import AsyncDisk
from kvorum.runtime.memory_disk import MemoryDisk
from kvorum.snapshots.format import BOOTSTRAP_ID, SnapshotHeader, iter_payloads, read_header
from kvorum.snapshots.store import SnapshotStore

DIRECTORY = "/node/__cluster_metadata-0"
SEGMENT_BYTES = 3_000
"""Segment size: small, so that every run rolls segments."""


LoadState = Callable[[AsyncDisk, str], Coroutine[Any, Any, ListState]]
"""Reads the state in a snapshot and verifies the whole file. Raises CorruptData, OSError."""


async def load_state(disk: AsyncDisk, path: str) -> ListState:
    """A `LoadState` of the replicated list."""
    header = await read_header(disk, path)
    payloads = [payload async for payload in iter_payloads(disk, path)]
    return state_of(payloads, end_offset=header.end_offset, epoch=header.epoch, path=path)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSettings:
    """The log settings of a run's nodes.

    static_voters: empty if the voter set is dynamic.
    load_state: reads the state in the nodes' snapshots.
    """

    static_voters: VoterKeys = NO_KEYS
    retention_bytes: int = 0
    load_state: LoadState = load_state

    @property
    def is_dynamic(self) -> bool:
        return not self.static_voters


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredNode:
    """The result of recovery.

    mirror: of the log from the oldest snapshot on.
    state: of the newest snapshot.
    """

    metadata: MetadataLog
    mirror: Mirror
    state: ListState


def empty_disk(rng: random.Random) -> MemoryDisk:
    """A disk with its folders, whose names are already durable."""
    disk = MemoryDisk(rng)
    disk.make_dirs(DIRECTORY)
    for parent in ("/", "/node"):
        disk.sync_dir(parent)
    return disk


def format_voters(disk: MemoryDisk, voters: VoterSet) -> None:
    """Write the bootstrap checkpoint, as `kvorum init` does."""
    header = SnapshotHeader(
        end_offset=BOOTSTRAP_ID.end_offset,
        epoch=BOOTSTRAP_ID.epoch,
        timestamp_ms=0,
        kraft_version=1,
        voters=header_voters(voters),
    )
    run_now(SnapshotStore(SimAsyncDisk(disk), DIRECTORY).write(header, []))


def open_node(disk: MemoryDisk, settings: DiskSettings, *, now_ms: int) -> RecoveredNode:
    """Recover as a starting node does. Raises CorruptData, OSError, PowerCut."""
    policy = SnapshotPolicy(
        metadata_log_segment_bytes=SEGMENT_BYTES,
        metadata_max_retention_bytes=settings.retention_bytes,
    )
    files = SnapshotFiles(SnapshotStore(SimAsyncDisk(disk), DIRECTORY), policy)
    metadata = run_now(
        open_metadata_log(disk, DIRECTORY, files, is_dynamic=settings.is_dynamic, now_ms=now_ms)
    )
    log = metadata.replica_log.log
    state, base, voters = ListState(), ListState(), settings.static_voters
    if metadata.replica_log.snapshots:
        # The mirror begins at the oldest snapshot: from there the log must reach all later ones.
        base, voters = read_state(disk, files.path(metadata.replica_log.snapshots[0]), settings)
        state, _ = read_state(disk, files.path(metadata.replica_log.snapshots[-1]), settings)
    elif settings.is_dynamic:
        bootstrap = run_now(files.store.bootstrap())
        voters = NO_KEYS if bootstrap is None else _keys_of(bootstrap)
    entries = log_entries(log, log.start_offset, log.end_offset)
    mirror = Mirror(entries, base=base, voters=voters)
    return RecoveredNode(metadata=metadata, mirror=mirror, state=state)


def read_state(disk: MemoryDisk, path: str, settings: DiskSettings) -> tuple[ListState, VoterKeys]:
    """State and voters in a snapshot, read at once. Raises CorruptData, OSError."""
    disk_now = SimAsyncDisk(disk)
    state = run_now(settings.load_state(disk_now, path))
    header = run_now(read_header(disk_now, path))
    return state, _keys_of(header) if settings.is_dynamic else settings.static_voters


def _keys_of(header: SnapshotHeader) -> VoterKeys:
    voters = voters_of(header)
    return NO_KEYS if voters is None else keys_of_set(voters)
