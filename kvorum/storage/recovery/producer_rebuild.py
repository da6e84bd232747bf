"""Producer state after a start: the newest usable snapshot, and a replay from there."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Collection

from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData
from kvorum.storage.files.file_names import SNAPSHOT_SUFFIX, file_name, offsets_of
from kvorum.storage.files.producer_state import ProducerStateTable, read_snapshot
from kvorum.storage.files.segment import Segment
from kvorum.storage.files.transaction_index import AbortedTransaction
from kvorum.storage.format.batch import BatchError, BatchHeader

logger = logging.getLogger("kvorum.storage")


def rebuild_producers(
    disk: Disk, directory: str, segments: list[Segment], *, end_offset: int
) -> ProducerStateTable:
    """Producer state at `end_offset`: the newest usable snapshot at or below it, and a replay.

    Snapshots above `end_offset` are removed, because they describe records that are gone.
    """
    remove_snapshots_above(disk, directory, end_offset)
    return producers_at(disk, directory, segments, end_offset=end_offset)


def producers_at(
    disk: Disk, directory: str, segments: list[Segment], *, end_offset: int
) -> ProducerStateTable:
    """Like `rebuild_producers`, for an offset that may lie below the end of the log."""
    table, snapshot_offset = ProducerStateTable(), -1
    for offset in reversed(offsets_of(disk.list_dir(directory), SNAPSHOT_SUFFIX)):
        if offset > end_offset:
            continue
        path = f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"
        try:
            table, snapshot_offset = read_snapshot(disk, path), offset
            break
        except CorruptData as damage:
            # A snapshot is derived data: an older one and a longer replay give the same state.
            logger.warning("%s; it goes, and older ones and the batches say the same", damage)
            disk.remove(path)
    bases = [segment.base_offset for segment in segments]
    at = max(0, bisect_right(bases, snapshot_offset) - 1)
    for segment in segments[at:]:
        if segment.base_offset >= end_offset or snapshot_offset >= end_offset:
            break
        for position, header in segment.headers(segment.position_of(snapshot_offset) or 0):
            if header.base_offset >= end_offset:
                break
            if header.base_offset >= snapshot_offset:
                replay(table, segment, position, header)
    return table


def replay(
    table: ProducerStateTable, segment: Segment, position: int, header: BatchHeader
) -> AbortedTransaction | None:
    """Update `table` with the batch at `position`; only control batches are read as a whole.

    Raises CorruptData on a control batch that is not a marker.
    """
    if header.producer_id < 0:
        return None
    batch = segment.file.pread(header.size_bytes, position) if header.is_control else b""
    try:
        return table.update(header, header.last_offset, batch, 0)
    except BatchError as error:
        raise CorruptData(segment.file.path, position, error.reason) from error


def rebuild_aborted(disk: Disk, directory: str, segments: list[Segment], at: int) -> None:
    """Rebuild the aborted transactions of segment `at` from the batches."""
    segment = segments[at]
    table = producers_at(disk, directory, segments[:at], end_offset=segment.base_offset)
    found = [replay(table, segment, position, header) for position, header in segment.headers(0)]
    segment.aborted = [entry for entry in found if entry is not None]


def remove_snapshots_above(
    disk: Disk, directory: str, offset: int, *, kept: Collection[int] = ()
) -> None:
    """Remove producer snapshots above `offset`, except those at `kept`. Durable on return.

    Bad sequence without the fsync:
    1. A log is truncated and grows with other records.
    2. The power fails, and the removed snapshot is back.
    3. A new batch is answered as a duplicate, although no log holds it.
    """
    removed = [
        snapshot_offset
        for snapshot_offset in offsets_of(disk.list_dir(directory), SNAPSHOT_SUFFIX)
        if snapshot_offset > offset and snapshot_offset not in kept
    ]
    for snapshot_offset in removed:
        disk.remove(f"{directory}/{file_name(snapshot_offset, SNAPSHOT_SUFFIX)}")
    if removed:
        disk.sync_dir(directory)


def prune_snapshots(disk: Disk, directory: str, segments: list[Segment], end_offset: int) -> None:
    """Keep only the newest snapshot and those at the start of a segment."""
    bases = {segment.base_offset for segment in segments}
    offsets = offsets_of(disk.list_dir(directory), SNAPSHOT_SUFFIX)
    for offset in offsets[:-1]:
        if offset not in bases:
            disk.remove(f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}")
    remove_snapshots_above(disk, directory, end_offset)
