"""Putting a cleaned segment in the place of those it was made from, whatever a crash interrupts.

Steps, each durable before the next:
1. All files of the new segment, named after the first old one, are written with `.cleaned` behind
   and fsynced. Then the snapshots of producers at offsets of the old segments go.
2. Its .log.cleaned becomes .log.swap. From here on the swap is never undone, only finished.
3. Its indexes become .swap too.
4. The old segments are put aside, oldest first: a record goes before the tombstone that hides it.
5. .log.swap becomes .log, then the indexes follow.
A snapshot that outlived its segment's batches would be wrong: 1. it has a transaction open, 2. the
marker is compacted away, 3. an unclean start replays from there, and nothing ends the transaction:
the last stable offset stands still for ever. Without it the replay begins further below, and what
the clean has left there tells all that is to be known.
So at a start: a .log.swap means that 3 to 5 are due (again); other .swap files without one mean
that 5 was under way; what then is `.cleaned` was never agreed on and goes. Kafka has the same
suffixes and the same rule for which segments a swap replaces: those whose base lies within it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvorum.runtime.disk import Disk, overwrite
from kvorum.storage.log.file_names import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    file_name,
    offsets_of,
    put_aside,
)
from kvorum.storage.log.segment import Segment

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
SEGMENT_SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES)


def write_cleaned(disk: Disk, segment: Segment) -> None:
    """Step 1, for a segment whose .log.cleaned holds its batches. Raises OSError."""
    segment.file.sync()
    for suffix, data in zip(INDEX_SUFFIXES, segment.index_bytes(), strict=True):
        if data or suffix in INDEX_SUFFIXES[:2]:
            path = cleaned_path(segment.directory, segment.base_offset, suffix)
            overwrite(disk, path, data)
    disk.sync_dir(segment.directory)


def remove_stale_snapshots(disk: Disk, directory: str, base_offset: int, end_offset: int) -> None:
    """The end of step 1: of the snapshots from `base_offset` up to `end_offset`, where the segment
    behind the old ones begins. Those below went when what lies there was swapped."""
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
    """Step 1 undone; missing files are fine."""
    for suffix in SEGMENT_SUFFIXES:
        disk.remove(cleaned_path(directory, base_offset, suffix))


def cleaned_path(directory: str, base_offset: int, suffix: str) -> str:
    return f"{directory}/{file_name(base_offset, suffix)}{CLEANED_SUFFIX}"


def finish_swaps(disk: Disk, directory: str, names: list[str]) -> bool:
    """What a start does about files of unfinished swaps. True if there were any.

    Raises CorruptData when a .log.swap, which was fsynced whole, cannot be walked; OSError.
    """
    if not any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names):
        return False
    for base_offset in offsets_of(names, LOG_SUFFIX + SWAP_SUFFIX):
        end_offset = _end_offset(disk, directory, base_offset)
        # The base among them, whether or not its .log was put aside before the crash: its indexes
        # may not have been, and an old .txnindex would stay beside the new .log.
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
    """Steps 3 to 5, from wherever a crash has left them."""
    for suffix in INDEX_SUFFIXES:
        path = f"{directory}/{file_name(base_offset, suffix)}"
        if disk.exists(path + CLEANED_SUFFIX):
            disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
    disk.sync_dir(directory)
    for offset in replaced:
        put_aside(disk, directory, offset)
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
