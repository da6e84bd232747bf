"""What a log's folder holds after a start, clean or not.

After an unclean stop every batch of the segments from the recovery point on is checked (CRC, magic,
rising offsets). Only a torn tail is repaired: bytes after which no valid batch follows, at or above
the recovery point. Anything else raises CorruptData naming file, byte and reason, because cutting
there would drop records that may have been acknowledged.

Later segments are dropped behind a torn one only if that one has no .index file: the index is
written after the .log was fsynced (flush.py), so without it nothing behind was ever durable.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

from crc32c import crc32c

from runtime.disk import Disk
from runtime.errors import CorruptData
from storage.batch import (
    BATCH_LENGTH_MIN,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
)
from storage.epochs import CHECKPOINT_NAME, LeaderEpochCache, read_epochs
from storage.producer_state import ProducerStateTable, read_snapshot, write_snapshot
from storage.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    file_name,
)

_READ_BYTES = 1 << 20
_RELATIVE_OFFSET_MAX = (1 << 31) - 1
_NAME_DIGITS = 20
_MAGIC_POSITION = 16
_LENGTH = struct.Struct(">i")


@dataclass(slots=True, kw_only=True)
class Loaded:
    """A log as found. Mutable because `Log` takes it over."""

    segments: list[Segment]
    start_offset: int
    end_offset: int
    epochs: LeaderEpochCache
    producers: ProducerStateTable


def load(
    disk: Disk,
    directory: str,
    *,
    index_interval_bytes: int,
    now_ms: int,
    recovery_point: int,
    is_clean: bool,
    log_start_offset: int,
) -> Loaded:
    """See `Log.open`. What is returned is fsynced."""
    names = _clean_names(disk, directory)
    bases = _offsets_of(names, LOG_SUFFIX)
    if not bases:
        return _empty(log_start_offset)
    present = set(names)
    segments = [
        Segment(
            disk,
            directory,
            base,
            created_ms=now_ms,
            index_interval_bytes=index_interval_bytes,
            has_saved_indexes=file_name(base, INDEX_SUFFIX) in present
            and file_name(base, TIME_INDEX_SUFFIX) in present,
        )
        for base in bases
    ]
    for segment, following in pairwise(segments):
        segment.end_offset = following.base_offset
    first = len(segments)
    if not is_clean:
        first = max(0, bisect_right(bases, recovery_point) - 1)
    epochs = _load_epochs(disk, directory, segments, first)
    if is_clean:
        segments[-1].load_tail()
        end_offset = segments[-1].end_offset
        producers = rebuild_producers(disk, directory, segments, end_offset=end_offset)
    else:
        producers = _recover(disk, directory, segments, first, recovery_point, epochs)
        end_offset = segments[-1].end_offset
    if end_offset < log_start_offset:
        _remove_segments(disk, segments)
        remove_snapshots_above(disk, directory, -1)
        return _empty(log_start_offset)
    start_offset = max(log_start_offset, segments[0].base_offset)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start_offset)
    if epochs.is_dirty:
        # What lies below the end counts as durable from now on, so its epochs must be as well: the
        # next start may scan less.
        disk.write_atomic(f"{directory}/{CHECKPOINT_NAME}", epochs.to_bytes())
        epochs.is_dirty = False
    _prune_snapshots(disk, directory, segments, end_offset)
    return Loaded(
        segments=segments,
        start_offset=start_offset,
        end_offset=end_offset,
        epochs=epochs,
        producers=producers,
    )


def _empty(start_offset: int) -> Loaded:
    return Loaded(
        segments=[],
        start_offset=start_offset,
        end_offset=start_offset,
        epochs=LeaderEpochCache(),
        producers=ProducerStateTable(),
    )


# --- files -------------------------------------------------------------------------------------


def _clean_names(disk: Disk, directory: str) -> list[str]:
    """Names in the folder after leftovers of a crash were removed."""
    kept: list[str] = []
    for name in disk.list_dir(directory):
        path = f"{directory}/{name}"
        if name.endswith((DELETED_SUFFIX, ".tmp", ".cleaned")):
            disk.remove(path)
        elif name.endswith(".swap"):
            raise CorruptData(path, 0, "an unfinished compaction; finishing it is not supported")
        else:
            kept.append(name)
    logs = {name[:_NAME_DIGITS] for name in kept if name.endswith(LOG_SUFFIX)}
    for name in kept:
        if name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX)) and name[:_NAME_DIGITS] not in logs:
            disk.remove(f"{directory}/{name}")
    return kept


def _offsets_of(names: list[str], suffix: str) -> list[int]:
    length = _NAME_DIGITS + len(suffix)
    return sorted(
        int(name[:_NAME_DIGITS])
        for name in names
        if len(name) == length and name.endswith(suffix) and name[:_NAME_DIGITS].isdigit()
    )


def _remove_segments(disk: Disk, segments: list[Segment]) -> None:
    # Newest first: a crash on the way leaves a shorter log and no hole.
    for segment in reversed(segments):
        file = segment.take_file()
        if file is not None:
            file.close()
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX):
            disk.remove(segment.path(suffix))
    if segments:
        disk.sync_dir(segments[0].directory)


def _load_epochs(
    disk: Disk, directory: str, segments: list[Segment], first: int
) -> LeaderEpochCache:
    """The checkpoint without what the scan from segment `first` on will assign again."""
    path = f"{directory}/{CHECKPOINT_NAME}"
    if disk.exists(path):
        epochs = read_epochs(disk, path)
    else:
        epochs = LeaderEpochCache()
        for segment in segments[:first]:
            for _, header in segment.headers(0):
                epochs.assign(header.leader_epoch, header.base_offset)
    if first == 0:
        # All batches are scanned, and what the checkpoint says of offsets before them belongs to
        # a log that is gone. Bad sequence: 1. a log of epoch 12 is replaced by an empty one that
        # begins at 119, 2. the power fails before the checkpoint follows, 3. its entry (12, 71)
        # would become (12, 119), though the record before 119 is of epoch 14.
        epochs.clear()
    elif first < len(segments):
        epochs.truncate_from_end(segments[first].base_offset)
    return epochs


# --- producers -----------------------------------------------------------------------------------


def rebuild_producers(
    disk: Disk, directory: str, segments: list[Segment], *, end_offset: int
) -> ProducerStateTable:
    """Producer state at `end_offset`: the newest fit snapshot at or below it, and a replay.

    Snapshots above `end_offset` are removed: they describe records that are gone.
    """
    remove_snapshots_above(disk, directory, end_offset)
    table, snapshot_offset = ProducerStateTable(), -1
    for offset in reversed(_offsets_of(disk.list_dir(directory), SNAPSHOT_SUFFIX)):
        path = f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"
        try:
            table, snapshot_offset = read_snapshot(disk, path), offset
            break
        except CorruptData:
            # Derived data: an older snapshot and a longer replay give the same state.
            disk.remove(path)
    bases = [segment.base_offset for segment in segments]
    at = max(0, bisect_right(bases, snapshot_offset) - 1)
    for segment in segments[at:]:
        if segment.base_offset >= end_offset or snapshot_offset >= end_offset:
            break
        for _, header in segment.headers(segment.position_of(snapshot_offset) or 0):
            if header.base_offset >= end_offset:
                break
            if header.base_offset >= snapshot_offset:
                table.update(header)
    return table


def remove_snapshots_above(disk: Disk, directory: str, offset: int) -> None:
    for snapshot_offset in _offsets_of(disk.list_dir(directory), SNAPSHOT_SUFFIX):
        if snapshot_offset > offset:
            disk.remove(f"{directory}/{file_name(snapshot_offset, SNAPSHOT_SUFFIX)}")


def _prune_snapshots(disk: Disk, directory: str, segments: list[Segment], end_offset: int) -> None:
    """Keep the snapshots that begin a segment, and the newest."""
    bases = {segment.base_offset for segment in segments}
    offsets = _offsets_of(disk.list_dir(directory), SNAPSHOT_SUFFIX)
    for offset in offsets[:-1]:
        if offset not in bases:
            disk.remove(f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}")
    remove_snapshots_above(disk, directory, end_offset)


# --- the walk over every batch -----------------------------------------------------------------


def _recover(
    disk: Disk,
    directory: str,
    segments: list[Segment],
    first: int,
    recovery_point: int,
    epochs: LeaderEpochCache,
) -> ProducerStateTable:
    """Check segments[first:], shorten the list to what is kept, fsync it; the producer state."""
    scan_start = segments[first].base_offset
    remove_snapshots_above(disk, directory, scan_start)
    producers = rebuild_producers(disk, directory, segments[:first], end_offset=scan_start)
    at = first
    while at < len(segments):
        segment = segments[at]
        following = segments[at + 1].base_offset if at + 1 < len(segments) else None
        # Of the last segment an index file proves nothing: it may be one that a clean close wrote
        # and whose removal before the next append was lost. `SegmentList.roll` fsyncs that removal.
        has_proof = segment.has_saved_indexes and following is not None
        torn = _scan_segment(segment, recovery_point, has_proof, epochs, producers)
        is_short = following is not None and not has_proof and segment.end_offset < following
        if following is not None and segment.end_offset > following:
            raise CorruptData(
                segment.file.path, segment.size_bytes, f"batches run past offset {following}"
            )
        segment.unseal()
        segment.file.sync()
        if torn or is_short:
            _remove_segments(disk, segments[at + 1 :])
            del segments[at + 1 :]
        elif following is not None:
            segment.forget_recent()
            segment.save_indexes(segment.index_bytes())
            snapshot_path = f"{directory}/{file_name(following, SNAPSHOT_SUFFIX)}"
            write_snapshot(disk, snapshot_path, producers)
        at += 1
    disk.sync_dir(directory)
    # The folder itself may be younger than the last flush.
    disk.sync_dir(directory.rpartition("/")[0] or ".")
    return producers


def _scan_segment(
    segment: Segment,
    recovery_point: int,
    has_proof: bool,
    epochs: LeaderEpochCache,
    producers: ProducerStateTable,
) -> bool:
    """Note every valid batch; cut a torn tail. True if something was cut."""
    file = segment.file
    size = file.size()
    segment.reset_for_scan()
    position = 0
    chunk, chunk_start = b"", 0
    while position < size:
        at = position - chunk_start
        needed = _batch_bytes_at(chunk, at)
        if at + needed > len(chunk) and chunk_start + len(chunk) < size:
            chunk = file.pread(max(_READ_BYTES, needed), position)
            chunk_start, at = position, 0
            needed = _batch_bytes_at(chunk, at)
            if needed > len(chunk) and position + len(chunk) < size:
                chunk = file.pread(min(needed, size - position), position)
        header, reason = _check_batch(chunk, at, segment.base_offset, segment.end_offset)
        if header is None:
            _refuse_unless_torn(segment, position, size, reason, recovery_point, has_proof)
            file.truncate(position)
            return True
        epochs_ok = header.leader_epoch >= epochs.latest_epoch
        if not epochs_ok:
            raise CorruptData(
                file.path,
                position,
                f"batch of epoch {header.leader_epoch} after epoch {epochs.latest_epoch}",
            )
        segment.note(
            header.base_offset, header.last_offset, header.max_timestamp_ms, header.size_bytes
        )
        epochs.assign(header.leader_epoch, header.base_offset)
        producers.update(header)
        position += header.size_bytes
    return False


def _batch_bytes_at(chunk: bytes, at: int) -> int:
    """Bytes that the batch at `at` claims, at least a header's; a senseless claim counts as that.

    So that a damaged length of two gigabytes is read as far as the file goes and no further.
    """
    if at + LENGTH_OVERHEAD > len(chunk):
        return HEADER_BYTES
    (length,) = _LENGTH.unpack_from(chunk, at + 8)
    return max(HEADER_BYTES, int(length) + LENGTH_OVERHEAD)


def _check_batch(
    data: bytes, at: int, base_offset: int, expected_offset: int
) -> tuple[BatchHeader | None, str]:
    """The header at `at` if the batch there is whole and sound, else None and the reason."""
    left = len(data) - at
    if left < HEADER_BYTES:
        return None, f"{left} bytes are no batch header"
    header = BatchHeader._make(HEADER.unpack_from(data, at))
    if header.magic != MAGIC or header.batch_length < BATCH_LENGTH_MIN:
        return None, f"no batch header: magic {header.magic}, length {header.batch_length}"
    if header.size_bytes > left:
        return None, f"batch of {header.size_bytes} bytes, {left} are there"
    if header.base_offset < expected_offset or header.last_offset_delta < 0:
        return None, f"batch [{header.base_offset}, {header.last_offset}] after {expected_offset}"
    if header.last_offset - base_offset > _RELATIVE_OFFSET_MAX:
        return None, f"offset {header.last_offset} too far above base {base_offset}"
    if crc32c(memoryview(data)[at + CRC_START : at + header.size_bytes]) != header.crc:
        return None, f"the CRC of batch {header.base_offset} does not match"
    return header, ""


def _refuse_unless_torn(
    segment: Segment, position: int, size: int, reason: str, recovery_point: int, has_proof: bool
) -> None:
    """Raise CorruptData unless the bytes from `position` on can be a write cut off by a crash."""
    path = segment.file.path
    if segment.end_offset < recovery_point:
        raise CorruptData(path, position, f"{reason}; below the recovery point {recovery_point}")
    if has_proof:
        raise CorruptData(path, position, f"{reason}; the segment had been fsynced whole")
    behind = _find_batch(segment, position + 1, size)
    if behind is not None:
        raise CorruptData(path, position, f"{reason}; a valid batch follows at byte {behind}")


def _find_batch(segment: Segment, start: int, size: int) -> int | None:
    """Byte of the first sound batch at or after `start`, wherever it may begin; None if none."""
    data = segment.file.pread(size - start, start)
    at = data.find(MAGIC, _MAGIC_POSITION)
    while at >= 0:
        candidate = at - _MAGIC_POSITION
        header, _ = _check_batch(data, candidate, segment.base_offset, segment.end_offset)
        if header is not None:
            return start + candidate
        at = data.find(MAGIC, at + 1)
    return None
