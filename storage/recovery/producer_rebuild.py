"""Producer state after a start: the newest snapshot that fits, and a replay from there."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Collection

from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData
from kvorum.storage.format.batch import BatchError, BatchHeader
from kvorum.storage.log.file_names import SNAPSHOT_SUFFIX, file_name, offsets_of
from kvorum.storage.log.producer_state import ProducerStateTable, read_snapshot
from kvorum.storage.log.segment import Segment
from kvorum.storage.log.transaction_index import AbortedTransaction

logger = logging.getLogger("kvorum.storage")


def rebuild_producers(
    disk: Disk, directory: str, segments: list[Segment], *, end_offset: int
) -> ProducerStateTable:
    """Producer state at `end_offset`: the newest fit snapshot at or below it, and a replay.

    Snapshots above `end_offset` are removed: they describe records that are gone.
    """
    remove_snapshots_above(disk, directory, end_offset)
    return producers_at(disk, directory, segments, end_offset=end_offset)


def producers_at(
    disk: Disk, directory: str, segments: list[Segment], *, end_offset: int
) -> ProducerStateTable:
    """As `rebuild_producers`, for an offset that need not be the log's end."""
    table, snapshot_offset = ProducerStateTable(), -1
    for offset in reversed(offsets_of(disk.list_dir(directory), SNAPSHOT_SUFFIX)):
        if offset > end_offset:
            continue
        path = f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"
        try:
            table, snapshot_offset = read_snapshot(disk, path), offset
            break
        except CorruptData as damage:
            # Derived data: an older snapshot and a longer replay give the same state.
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
    """Let `table` take in the batch at `position`; only control batches are read whole.

    Raises CorruptData on one that is no marker.
    """
    if header.producer_id < 0:
        return None
    batch = segment.file.pread(header.size_bytes, position) if header.is_control else b""
    try:
        return table.update(header, header.last_offset, batch, 0)
    except BatchError as error:
        raise CorruptData(segment.file.path, position, error.reason) from error


def rebuild_aborted(disk: Disk, directory: str, segments: list[Segment], at: int) -> None:
    """Find the aborted transactions of segment `at` again from the batches."""
    segment = segments[at]
    table = producers_at(disk, directory, segments[:at], end_offset=segment.base_offset)
    found = [replay(table, segment, position, header) for position, header in segment.headers(0)]
    segment.aborted = [entry for entry in found if entry is not None]


def remove_snapshots_above(
    disk: Disk, directory: str, offset: int, *, kept: Collection[int] = ()
) -> None:
    """But for those at the offsets `kept`. Durable on return.

    Else: 1. a log is cut, and grows with other records, 2. the power fails, and the snapshot is
    back, 3. a batch that is in no log is answered as one that is there already.
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
    """Keep the snapshots that begin a segment, and the newest."""
    bases = {segment.base_offset for segment in segments}
    offsets = offsets_of(disk.list_dir(directory), SNAPSHOT_SUFFIX)
    for offset in offsets[:-1]:
        if offset not in bases:
            disk.remove(f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}")
    remove_snapshots_above(disk, directory, end_offset)
