"""Detects that files of a log were removed or emptied by hand.

A log that continued with the remaining files would skip the hole silently. As leader, it would make
its followers delete the records below its first segment. So the start fails, and `kvorum partitions
restore` fetches the replica again. Three cheap proofs:

1. An index without its .log. When a segment is dropped, its indexes are removed first, or its .log
   is renamed to .log.deleted before them (`file_names.mark_deleted`); names become durable in that
   order.
2. A first leader epoch that begins below the first segment. When a segment is retired, the epoch
   checkpoint is written before its .log.deleted is removed (`retention.take_deleted`).
3. A sealed .log that ends before an offset in its indexes, which were written when it was whole.

Two losses can go unnoticed: all files of a segment between two others, and the end of a sealed .log
after its last index entries. Compaction leaves such gaps as well. `kvorum log verify`, and a
warning of the first read across a gap, report them.
"""

from __future__ import annotations

from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData
from kvorum.storage.files.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    RECOVERY_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
    offsets_of,
)
from kvorum.storage.files.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from kvorum.storage.files.leader_epochs import CHECKPOINT_NAME, LeaderEpochCache
from kvorum.storage.files.segment import Segment

_RELATIVE_OFFSET_BYTES = 4


def orphans(directory: str, names: list[str]) -> list[str]:
    """Leftover files of segments that a crash interrupted while they were renamed to `.deleted`.

    names: all names in the folder, with no compaction swap under way. Raises CorruptData for
        indexes without any .log. A .recovery file proves nothing, because it may outlive a segment
        that a clean stop has sealed.
    """
    logs = set(offsets_of(names, LOG_SUFFIX))
    mark_deleted = set(offsets_of(names, LOG_SUFFIX + DELETED_SUFFIX))
    found: list[str] = []
    for suffix in (*INDEX_SUFFIXES, RECOVERY_SUFFIX):
        for base_offset in offsets_of(names, suffix):
            if base_offset in logs:
                continue
            if base_offset in mark_deleted or suffix == RECOVERY_SUFFIX:
                found.append(file_name(base_offset, suffix))
            else:
                raise CorruptData(
                    f"{directory}/{file_name(base_offset, LOG_SUFFIX)}",
                    0,
                    f"it is gone, though {file_name(base_offset, suffix)} is there, which goes "
                    "first when a segment is removed",
                )
    return found


def check_first_segment(
    directory: str, names: list[str], epochs: LeaderEpochCache | None, first_base_offset: int
) -> None:
    """Raise CorruptData if a known epoch begins below the first segment.

    epochs: from the checkpoint, None if there is none. Files that retention renamed to `.deleted`
        explain such an epoch: the checkpoint had not been written yet.
    """
    if epochs is None or not epochs.start_offsets:
        return
    known = epochs.start_offsets[0]
    if known >= first_base_offset or offsets_of(names, LOG_SUFFIX + DELETED_SUFFIX):
        return
    raise CorruptData(
        f"{directory}/{file_name(first_base_offset, LOG_SUFFIX)}",
        0,
        f"the log begins here, though {CHECKPOINT_NAME} knows of records from {known} on: .log "
        "files before are gone",
    )


def check_sealed(disk: Disk, segment: Segment, following: int) -> None:
    """Raise CorruptData if the .log of a sealed segment is shorter than its indexes say.

    following: base offset of the next segment. The check reads the last entries of the indexes and
    the headers after the last offset index entry. It reads all headers if those do not fit, to see
    which of the two is wrong, or if a small segment has no entry. A .log truncated after the first
    record with the largest timestamp cannot be told from a compacted one.
    """
    log_bytes, _ = _tail(disk, segment.path(LOG_SUFFIX), 0)
    index_bytes, entry = _tail(disk, segment.path(INDEX_SUFFIX), OFFSET_ENTRY_BYTES)
    position = int.from_bytes(entry[OFFSET_ENTRY_BYTES // 2 :], "big")
    time_index_bytes, time_entry = _tail(disk, segment.path(TIME_INDEX_SUFFIX), TIME_ENTRY_BYTES)
    if log_bytes == 0:
        # The indexes are empty too if compaction left the segment empty.
        if index_bytes or time_index_bytes:
            raise CorruptData(
                segment.path(LOG_SUFFIX), 0, "it is empty, though its indexes are not"
            )
        return
    is_indexed = position < log_bytes
    known = segment.base_offset + int.from_bytes(time_entry[-_RELATIVE_OFFSET_BYTES:], "big")
    end_offset = _end_offset(segment, position if is_indexed else 0)
    if end_offset >= following:
        return
    if not is_indexed or (time_entry and end_offset <= known):
        what = f"offset {known}" if is_indexed else f"byte {position}"
        raise CorruptData(
            segment.path(LOG_SUFFIX),
            log_bytes,
            f"it ends at offset {end_offset}, the next segment begins at {following}, and its "
            f"indexes know of {what}",
        )


def _end_offset(segment: Segment, position: int) -> int:
    """End offset of the segment's last batch. position: start of a batch, from the offset index."""
    end_offset = segment.base_offset
    try:
        for _, header in segment.headers(position):
            end_offset = header.end_offset
    except CorruptData:
        if position == 0:
            raise
        # The index may be wrong and not the .log.
        return _end_offset(segment, 0)
    return end_offset


def _tail(disk: Disk, path: str, length: int) -> tuple[int, bytes]:
    """Size in bytes of the file and its last `length` bytes."""
    file = disk.open(path)
    try:
        size = file.size()
        return size, file.pread(length, size - length) if 0 < length <= size else b""
    finally:
        file.close()
