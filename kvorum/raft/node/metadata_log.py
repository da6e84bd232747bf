"""A node's metadata log as found on disk: log, vote and snapshots, made consistent.

This runs before the node takes part in the quorum. A crash may have interrupted a trim, or the
replacement of the log by a snapshot. This module completes either, and never guesses about a record
that was acknowledged.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from kvorum.raft.model.values import OffsetAndEpoch
from kvorum.raft.model.voters import NO_VOTERS, VoterSet
from kvorum.raft.node.replica_log import ReplicaLog, voter_sets_in
from kvorum.raft.node.snapshot_files import FoundSnapshots, SnapshotFiles, voters_of
from kvorum.raft.node.vote_store import FILE_NAME, VoteStore
from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData
from kvorum.storage.files.file_names import METADATA_LOG_FOLDER
from kvorum.storage.files.leader_epochs import CHECKPOINT_NAME, read_epochs
from kvorum.storage.log.log import Log, LogConfig

logger = logging.getLogger("kvorum.raft")

FOLDER_NAME = METADATA_LOG_FOLDER


@dataclass(frozen=True, slots=True)
class MetadataLog:
    """The state on disk that a node starts from.

    newest: the snapshot to load the state from, None for none.
    damaged: snapshots that failed their check, for the node to report.
    was_dynamic: True if the directory was written with dynamic voters; None if nothing in it tells.
    """

    replica_log: ReplicaLog
    files: SnapshotFiles
    newest: OffsetAndEpoch | None
    damaged: tuple[CorruptData, ...]
    was_dynamic: bool | None


def recover_log(
    disk: Disk,
    directory: str,
    found: FoundSnapshots,
    *,
    is_dynamic: bool,
    now_ms: int,
    segment_bytes: int,
) -> tuple[ReplicaLog, OffsetAndEpoch | None]:
    """Open log and vote store and make them fit the snapshots found; all of the log is flushed.

    A clean shutdown shortens nothing here (KIP-595): the records that a voter acknowledged must be
    proven whole before it votes or fetches again. Raises CorruptData for damage that is not a torn
    tail, also for a trimmed log whose snapshots are all gone or damaged.
    """
    config = LogConfig(
        segment_bytes=segment_bytes,
        retention_ms=-1,
        retention_bytes=-1,
        max_message_bytes=1 << 30,
        file_delete_delay_ms=0,
    )
    written = _written_epochs(disk, directory)
    log = Log.open(disk, directory, config, now_ms=now_ms)
    _check_nothing_is_gone(log, written)
    first_offset = log.start_offset
    # A crash between ReplaceLog and the removal of the older snapshots leaves snapshots with no log
    # behind them. The newest snapshot contains all that they hold.
    good = [snapshot for snapshot in found.good if snapshot.offset >= first_offset]
    if not good and first_offset > 0:
        reasons = "; ".join(str(error) for error in found.damaged) or "there is none"
        raise CorruptData(
            directory,
            0,
            f"the log begins at offset {first_offset} and no good snapshot covers what was before "
            f"it ({reasons})",
        )
    if good and not _is_prefix(log, good[-1]):
        # A crash between the arrival of the leader's snapshot and ReplaceLog leaves the old log. A
        # snapshot holds only committed records, so a record of the log that differs from it is
        # uncommitted.
        log.truncate_fully_and_start_at(good[-1].offset, now_ms=now_ms)
        good = good[-1:]
    if good:
        log.advance_start_offset(good[0].offset)
    gap = log.last_gap
    # A snapshot covers a gap below the start offset, and a replaced log is empty.
    if gap is not None and log.start_offset < gap.next_offset <= log.end_offset:
        raise CorruptData(
            gap.path,
            gap.position,
            f"offset {gap.next_offset} follows {gap.offset - 1}: what was between is missing",
        )
    log.flush()
    base_voters: VoterSet | None = None
    if is_dynamic:
        base_voters = voters_of(found.headers[good[0]]) if good else found.bootstrap_voters
        base_voters = NO_VOTERS if base_voters is None else base_voters
    replica_log = ReplicaLog(
        log,
        VoteStore(disk, directory, version=int(is_dynamic)),
        snapshots=good,
        base_voters=base_voters,
    )
    return replica_log, (good[-1] if good else None)


def _written_epochs(disk: Disk, directory: str) -> list[tuple[int, int]]:
    """(epoch, start offset) pairs of the leader epoch checkpoint; none if it is missing or
    damaged."""
    path = f"{directory}/{CHECKPOINT_NAME}"
    if not disk.exists(path):
        return []
    try:
        return list(read_epochs(disk, path).entries)
    except CorruptData as error:
        logger.warning("%s; it is made anew from the batches", error)
        return []


def _check_nothing_is_gone(log: Log, written: list[tuple[int, int]]) -> None:
    """Refuse a log that ends below the start of an epoch in its checkpoint.

    An epoch enters the checkpoint after its first record was fsynced, and leaves it before that
    record is truncated. So the records of such an epoch were lost, by hand or by the disk.
    """
    for epoch, start_offset in written:
        if start_offset > log.end_offset or log.end_offset == 0:
            raise CorruptData(
                log.directory,
                0,
                f"the log ends at offset {log.end_offset}, but epoch {epoch} began at "
                f"{start_offset} on this disk: files of the log are gone",
            )


async def open_metadata_log(
    disk: Disk, directory: str, files: SnapshotFiles, *, is_dynamic: bool, now_ms: int
) -> MetadataLog:
    """Recover the metadata log in `directory`, which exists. Raises CorruptData, OSError."""
    found = await files.open()
    replica_log, newest = recover_log(
        disk,
        directory,
        found,
        is_dynamic=is_dynamic,
        now_ms=now_ms,
        segment_bytes=files.policy.metadata_log_segment_bytes,
    )
    if replica_log.log.end_offset > 0 and replica_log.vote_store.stored_version() is None:
        # The quorum-state file is written before the first record; without it the votes are
        # forgotten.
        raise CorruptData(
            f"{directory}/{FILE_NAME}", 0, "the file is missing, and with it what this node voted"
        )
    _check_state(directory, replica_log)
    known = set(replica_log.snapshots)
    await files.remove(snapshot for snapshot in found.good if snapshot not in known)
    return MetadataLog(replica_log, files, newest, found.damaged, _was_dynamic(found, replica_log))


def _check_state(directory: str, replica_log: ReplicaLog) -> None:
    """Refuse a quorum-state file whose epoch is below that of the last record.

    An epoch is written to that file before its first record is appended. So the file is an older
    copy, and the votes that this node has cast since are forgotten.
    """
    epoch = replica_log.vote_store.load().epoch
    if epoch < replica_log.log.epochs.latest_epoch:
        raise CorruptData(
            f"{directory}/{FILE_NAME}",
            0,
            f"it says epoch {epoch}, the log has records of epoch "
            f"{replica_log.log.epochs.latest_epoch}: what this node voted since is forgotten",
        )


def _was_dynamic(found: FoundSnapshots, replica_log: ReplicaLog) -> bool | None:
    if found.bootstrap_voters is not None:
        return True
    if found.headers:
        return max(found.headers.values(), key=lambda header: header.id).kraft_version > 0
    if voter_sets_in(replica_log.log):
        return True
    version = replica_log.vote_store.stored_version()
    return None if version is None else version == 1


def _is_prefix(log: Log, snapshot: OffsetAndEpoch) -> bool:
    """True if the log has the last record that the snapshot covers, with the same epoch."""
    if snapshot.offset > log.end_offset:
        return False
    if snapshot.offset == log.start_offset:
        return True
    return log.epochs.epoch_of(snapshot.offset - 1) == snapshot.epoch
