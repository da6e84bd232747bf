"""What shows that somebody has taken files of a log away, or emptied them.

A log that simply went on with the files that are left would serve a hole as if nothing had been
there, or, elected, have its followers delete what they hold below its first segment. So a start
refuses; `kvorum partitions restore` fetches the replica anew. Three proofs, all of them cheap:

1. An index beside a .log that is not there. Whoever drops a segment removes its indexes first, or
   renames its .log to .log.deleted before them (`names.put_aside`); names become durable in order.
2. The first known leader epoch begins below the first segment. Who retires a segment writes the
   checkpoint of the epochs before the .log.deleted goes (`retention.take_deleted`).
3. A sealed .log that ends before what its indexes know of. They were written when it was whole.

All files of a segment between two others may go unseen, and a sealed .log cut behind what its
indexes know: compaction leaves such gaps as well.
`kvorum log verify` and a warning of the first read that passes over one tell of them.
"""

from __future__ import annotations

from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData
from kvorum.storage.log.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    RECOVERY_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
    offsets_of,
)
from kvorum.storage.log.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from kvorum.storage.log.leader_epochs import CHECKPOINT_NAME, LeaderEpochCache
from kvorum.storage.log.segment import Segment

_RELATIVE_OFFSET_BYTES = 4


def orphans(directory: str, names: list[str]) -> list[str]:
    """Files of segments whose .log a crash kept from following to `.deleted`, or the reverse.

    names: all in the folder, no swap of a compaction being under way. Raises CorruptData for
    indexes of a .log that is gone altogether. A .recovery proves nothing: that of a segment which
    an orderly stop has sealed outlives it.
    """
    logs = set(offsets_of(names, LOG_SUFFIX))
    put_aside = set(offsets_of(names, LOG_SUFFIX + DELETED_SUFFIX))
    found: list[str] = []
    for suffix in (*INDEX_SUFFIXES, RECOVERY_SUFFIX):
        for base_offset in offsets_of(names, suffix):
            if base_offset in logs:
                continue
            if base_offset in put_aside or suffix == RECOVERY_SUFFIX:
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
    """Raise CorruptData if an epoch is known that begins below the first segment.

    epochs: as the checkpoint has them, None if there is none. Files that retention has put aside
    explain it: the checkpoint was yet to follow.
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

    following: base offset of the next segment. Reads the last entries of the indexes and the
    headers behind the last one of the offset index; all headers only if that does not fit, to see
    which of the two is wrong, or if there is none, as of a segment of a few kilobytes. A .log cut
    behind the first record with the largest timestamp looks as if it had been compacted.
    """
    log_bytes, _ = _tail(disk, segment.path(LOG_SUFFIX), 0)
    index_bytes, entry = _tail(disk, segment.path(INDEX_SUFFIX), OFFSET_ENTRY_BYTES)
    position = int.from_bytes(entry[OFFSET_ENTRY_BYTES // 2 :], "big")
    time_index_bytes, time_entry = _tail(disk, segment.path(TIME_INDEX_SUFFIX), TIME_ENTRY_BYTES)
    if log_bytes == 0:
        # Of a segment that compaction has left empty they are empty as well.
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
    """Where its batches end. position: of one of them, as the offset index has it."""
    end_offset = segment.base_offset
    try:
        for _, header in segment.headers(position):
            end_offset = header.end_offset
    except CorruptData:
        if position == 0:
            raise
        # Perhaps it is the index that is wrong.
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
