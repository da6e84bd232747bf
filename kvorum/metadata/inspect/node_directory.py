"""Reads the metadata in a node's folder: a copy, or that of a stopped or running node.

It takes no lock, opens nothing for writing and repairs nothing. It uses what a start of the node
would use (`raft.node.metadata_log`): the newest undamaged snapshot and the log behind it.
"""

from __future__ import annotations

from kvorum.metadata.inspect.history import MetadataHistory
from kvorum.raft.node.metadata_log import FOLDER_NAME
from kvorum.runtime.errors import CorruptData, KvorumError
from kvorum.snapshots.format import (
    BOOTSTRAP_ID,
    SnapshotHeader,
    SnapshotId,
    decode_file,
    file_name,
    parse_file_name,
)
from kvorum.storage.files.file_names import LOG_SUFFIX, offsets_of
from kvorum.storage.format.batch import iter_headers
from kvorum.storage.tools.read_only import FoundLog, ReadableDisk, read_log

READ_ATTEMPTS_MAX = 4
"""A running node may trim, truncate or roll its log between two reads, so a failed read is
repeated. Real damage is reported after the last attempt."""


class NoMetadata(KvorumError):
    """A folder without a metadata log; the message names the folder to use."""


def history_of_directory(disk: ReadableDisk, path: str) -> MetadataHistory:
    """The metadata in a folder. path: a node's data directory or its __cluster_metadata-0.

    Raises NoMetadata, CorruptData with file and byte, OSError.
    """
    directory = _metadata_folder(disk, path.rstrip("/") or "/")
    for _ in range(READ_ATTEMPTS_MAX - 1):
        try:
            return _read(disk, directory)
        except (CorruptData, FileNotFoundError):
            continue
    return _read(disk, directory)


def history_of_file(disk: ReadableDisk, path: str) -> MetadataHistory:
    """The metadata in a checkpoint file: one image and no log. Raises CorruptData, OSError."""
    data = disk.read_bytes(path)
    header = _checked_header(path, data)
    return MetadataHistory(
        name=path,
        snapshots=((header, data),),
        log_start_offset=header.end_offset,
        end_offset=header.end_offset,
    )


def _metadata_folder(disk: ReadableDisk, path: str) -> str:
    inner = f"{path}/{FOLDER_NAME}"
    for directory in (inner, path):
        names = disk.list_dir(directory)
        has_log = bool(offsets_of(names, LOG_SUFFIX))
        # A partition's folder has segments too, but no quorum-state beside them.
        is_quorums = directory == inner or "quorum-state" in names
        if (has_log and is_quorums) or any(map(parse_file_name, names)):
            return directory
    raise NoMetadata(
        f"no metadata log in {path}: name a node's data directory or its {FOLDER_NAME}"
    )


def _read(disk: ReadableDisk, directory: str) -> MetadataHistory:
    # Read the snapshots first. Bad sequence with the log first:
    # 1. The log is read up to 450.
    # 2. The node takes a snapshot at 500.
    # 3. The log seems to end before the snapshot, as if it had not been replaced by it.
    snapshots, notes = _snapshots(disk, directory)
    log = read_log(disk, directory)
    if log is not None and log.torn_end is not None:
        notes.append(str(log.torn_end))
    start_offset = 0 if log is None else log.start_offset
    # The log cannot continue a snapshot that ends below the log start.
    snapshots = [held for held in snapshots if held[0].end_offset >= start_offset]
    if not snapshots and start_offset > 0:
        reasons = "; ".join(notes) or "there is none"
        raise CorruptData(
            directory,
            0,
            f"the log begins at offset {start_offset} and no good snapshot covers what was before "
            f"it ({reasons})",
        )
    if log is not None and snapshots and not _is_prefix(log, snapshots[-1][0]):
        newest = snapshots[-1][0]
        notes.append(
            f"{directory}: the log does not lead on from the snapshot "
            f"{file_name(newest.end_offset, newest.epoch)}: a start would drop the log, so it is "
            "left out"
        )
        log, snapshots = None, snapshots[-1:]
    if log is None:
        end_offset = snapshots[-1][0].end_offset if snapshots else 0
        # Without a log between them the snapshots are separate images; the newest is the state.
        return MetadataHistory(
            name=directory,
            snapshots=tuple(snapshots[-1:]),
            log_start_offset=end_offset,
            end_offset=end_offset,
            notes=tuple(notes),
        )
    start_offset, batches = _behind_gap(log, snapshots[0][0].end_offset if snapshots else 0)
    notes.append(
        f"{directory}: read up to offset {log.end_offset}; of what lies above the node's high "
        "watermark nobody knows here whether it is committed"
    )
    return MetadataHistory(
        name=directory,
        snapshots=tuple(snapshots),
        records=batches,
        log_start_offset=start_offset,
        end_offset=log.end_offset,
        notes=tuple(notes),
    )


def _snapshots(
    disk: ReadableDisk, directory: str
) -> tuple[list[tuple[SnapshotHeader, bytes]], list[str]]:
    """The undamaged snapshots, ascending, and a sentence on each damaged one."""
    good: list[tuple[SnapshotHeader, bytes]] = []
    notes: list[str] = []
    for name in disk.list_dir(directory):
        named = parse_file_name(name)
        if named is None or SnapshotId(*named) == BOOTSTRAP_ID:
            continue
        path = f"{directory}/{name}"
        data = disk.read_bytes(path)
        try:
            good.append((_checked_header(path, data), data))
        except CorruptData as error:
            notes.append(f"a damaged snapshot is passed over: {error}")
    good.sort(key=lambda held: held[0].id)
    return good, notes


def _checked_header(path: str, data: bytes) -> SnapshotHeader:
    """The header of a whole, valid file; a snapshot's file name must fit it. Raises CorruptData."""
    header, _ = decode_file(data, path)
    named = parse_file_name(path.rpartition("/")[2])
    if named is not None and SnapshotId(*named) != header.id:
        held = file_name(header.end_offset, header.epoch)
        raise CorruptData(path, 0, f"by its header this is {held}")
    return header


def _is_prefix(log: FoundLog, snapshot: SnapshotHeader) -> bool:
    """True if the log has the last record that the snapshot covers, with the same epoch."""
    if snapshot.end_offset > log.end_offset:
        return False
    if snapshot.end_offset == log.start_offset:
        return True
    last_offset = snapshot.end_offset - 1
    epoch = -1
    for _, header in iter_headers(log.batches):
        if header.base_offset > last_offset:
            break
        epoch = header.leader_epoch
    return epoch == snapshot.epoch


def _behind_gap(log: FoundLog, snapshot_end: int) -> tuple[int, bytes]:
    """Start offset and batches of the part of the log behind its last gap.

    snapshot_end: end of the oldest snapshot, which covers gaps below it. Raises CorruptData for a
        gap above.
    """
    gap = log.last_gap
    if gap is None:
        return log.start_offset, log.batches
    if gap.next_offset > snapshot_end:
        raise CorruptData(
            gap.path,
            gap.position,
            f"offset {gap.next_offset} follows {gap.offset - 1}: what was between is missing",
        )
    for position, header in iter_headers(log.batches):
        if header.base_offset >= gap.next_offset:
            return header.base_offset, log.batches[position:]
    return log.end_offset, b""
