"""Replaces old segments by the cleaned one that was made from them, across any crash.

Steps; each is durable before the next:
1. The files of the new segment, named after the first old one, are written with the suffix
   `.cleaned` and fsynced. Then the producer snapshots at offsets of the old segments are removed.
2. Its .log.cleaned is renamed to .log.swap. From here on the swap is only finished, never undone.
3. Its indexes are renamed to .swap too.
4. The old segments are renamed to .deleted, oldest first, so that a record is removed before the
   tombstone that hides it.
5. .log.swap is renamed to .log, then the indexes follow.

Bad sequence if a producer snapshot outlived the batches of its segment:
1. The snapshot has an open transaction.
2. Compaction removes the marker.
3. An unclean start replays from the snapshot. Nothing ends the transaction, and the last stable
   offset never advances again.

Without the snapshot the replay begins further below, and the cleaned batches there are enough.

At a start, a .log.swap means that steps 3 to 5 must be done (again). Other .swap files without a
.log.swap mean that step 5 was under way. Any `.cleaned` file left then was not complete and is
removed. Kafka has the same suffixes, and the same rule for the segments that a swap replaces: those
with a base offset within it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvorum.runtime.disk import Disk, overwrite
from kvorum.storage.files.file_names import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    file_name,
    mark_deleted,
    offsets_of,
)
from kvorum.storage.files.segment import Segment

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
SEGMENT_SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES)


def write_cleaned(disk: Disk, segment: Segment) -> None:
    """Step 1, for a segment whose .log.cleaned is already written. Raises OSError."""
    segment.file.sync()
    for suffix, data in zip(INDEX_SUFFIXES, segment.index_bytes(), strict=True):
        if data or suffix in INDEX_SUFFIXES[:2]:
            path = cleaned_path(segment.directory, segment.base_offset, suffix)
            overwrite(disk, path, data)
    disk.sync_dir(segment.directory)


def remove_stale_snapshots(disk: Disk, directory: str, base_offset: int, end_offset: int) -> None:
    """The end of step 1: remove the producer snapshots from `base_offset` up to `end_offset`, the
    base offset of the segment after the old ones. Earlier swaps removed those below."""
    for offset in offsets_of(disk.list_dir(directory), SNAPSHOT_SUFFIX):
        if base_offset <= offset < end_offset:
            disk.remove(f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}")
    disk.sync_dir(directory)


def swap_in(disk: Disk, directory: str, base_offset: int, replaced: Sequence[int]) -> None:
    """Steps 2 to 5. replaced: base offsets of all old segments, ascending. Raises OSError."""
    log_path = f"{directory}/{file_name(base_offset, LOG_SUFFIX)}"
    disk.rename(log_path + CLEANED_SUFFIX, log_path + SWAP_SUFFIX)
    disk.sync_dir(directory)
    _finish(disk, directory, base_offset, replaced)


def discard_cleaned(disk: Disk, directory: str, base_offset: int) -> None:
    """Undo step 1; missing files are no error."""
    for suffix in SEGMENT_SUFFIXES:
        disk.remove(cleaned_path(directory, base_offset, suffix))


def cleaned_path(directory: str, base_offset: int, suffix: str) -> str:
    return f"{directory}/{file_name(base_offset, suffix)}{CLEANED_SUFFIX}"


def finish_swaps(disk: Disk, directory: str, names: list[str]) -> bool:
    """Finish or undo interrupted swaps, at a start. True if there were any.

    Raises OSError, and CorruptData if a .log.swap, which was fsynced whole, has a damaged header.
    """
    if not any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names):
        return False
    for base_offset in offsets_of(names, LOG_SUFFIX + SWAP_SUFFIX):
        end_offset = _end_offset(disk, directory, base_offset)
        # Include the base offset, whether or not its .log was renamed before the crash. Its indexes
        # may still be there, and an old .txnindex would stay beside the new .log.
        replaced = [base_offset]
        replaced += [
            offset
            for offset in offsets_of(disk.list_dir(directory), LOG_SUFFIX)
            if base_offset < offset < end_offset
        ]
        _finish(disk, directory, base_offset, replaced)
    for name in disk.list_dir(directory):
        path = f"{directory}/{name}"
        if name.endswith(SWAP_SUFFIX):
            disk.rename(path, path.removesuffix(SWAP_SUFFIX))
        elif name.endswith(CLEANED_SUFFIX):
            disk.remove(path)
    disk.sync_dir(directory)
    return True


def _finish(disk: Disk, directory: str, base_offset: int, replaced: Sequence[int]) -> None:
    """Steps 3 to 5, from the point that a crash has left."""
    for suffix in INDEX_SUFFIXES:
        path = f"{directory}/{file_name(base_offset, suffix)}"
        if disk.exists(path + CLEANED_SUFFIX):
            disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
    disk.sync_dir(directory)
    for offset in replaced:
        mark_deleted(disk, directory, offset)
    disk.sync_dir(directory)
    for suffix in SEGMENT_SUFFIXES:
        path = f"{directory}/{file_name(base_offset, suffix)}"
        if disk.exists(path + SWAP_SUFFIX):
            disk.rename(path + SWAP_SUFFIX, path)
    disk.sync_dir(directory)


def _end_offset(disk: Disk, directory: str, base_offset: int) -> int:
    segment = Segment(
        disk,
        directory,
        base_offset,
        created_ms=0,
        index_interval_bytes=0,
        name_suffix=SWAP_SUFFIX,
    )
    end_offset = base_offset
    try:
        for _, header in segment.headers(0):
            end_offset = header.end_offset
    finally:
        segment.file.close()
    return end_offset
