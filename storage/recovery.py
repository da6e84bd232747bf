"""What a log's folder holds after a start, clean or not: its files, epochs and producers.

After an unclean stop every batch from the recovery point on is checked: `batch_walk.py`. Of those
before in the same segment `recovery_state.py` tells, if the log keeps that.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

from runtime.disk import Disk
from runtime.errors import CorruptData
from storage.batch_walk import BatchWalk, OffsetGap, TornTail, remove_segments
from storage.epochs import CHECKPOINT_NAME, LeaderEpochCache, read_epochs
from storage.model import LogConfig
from storage.names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    NAME_DIGITS,
    RECOVERY_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
    offsets_of,
)
from storage.producer_rebuild import (
    prune_snapshots,
    rebuild_aborted,
    rebuild_producers,
    remove_snapshots_above,
)
from storage.producer_state import ProducerStateTable
from storage.recovery_state import Resumed, resume_segment
from storage.segment import Segment
from storage.swapping import finish_swaps

logger = logging.getLogger("kvorum.storage")


@dataclass(slots=True, kw_only=True)
class Loaded:
    """A log as found. Mutable because `Log` takes it over.

    torn_tail: what was cut off it. last_gap: of those that a walk over all batches came upon.
    """

    segments: list[Segment]
    start_offset: int
    end_offset: int
    epochs: LeaderEpochCache
    producers: ProducerStateTable
    torn_tail: TornTail | None = None
    last_gap: OffsetGap | None = None


def load(
    disk: Disk,
    directory: str,
    *,
    config: LogConfig,
    now_ms: int,
    recovery_point: int,
    is_clean: bool,
    log_start_offset: int,
) -> Loaded:
    """See `Log.open`. What is returned is fsynced."""
    names = _clean_names(disk, directory)
    bases = offsets_of(names, LOG_SUFFIX)
    if not bases:
        _check_end(directory, log_start_offset, recovery_point)
        return empty(log_start_offset)
    segments = _found_segments(disk, directory, names, bases, config, now_ms)
    checkpoint = _read_checkpoint(disk, directory)
    first, resumed = len(segments), None
    if not is_clean:
        first = max(0, bisect_right(bases, recovery_point) - 1)
        if config.keeps_recovery_state and checkpoint is not None:
            resumed = _resumed(disk, segments, first, recovery_point)
    epochs = _load_epochs(checkpoint, segments, first, resumed)
    _load_aborted(disk, directory, segments, first)
    torn_tail: TornTail | None = None
    last_gap: OffsetGap | None = None
    if is_clean:
        segments[-1].load_tail()
        end_offset = segments[-1].end_offset
        producers = rebuild_producers(disk, directory, segments, end_offset=end_offset)
    else:
        walk = BatchWalk(disk, directory, segments, epochs, recovery_point)
        torn_tail = walk.run(first, resumed, keeps_recovery_state=config.keeps_recovery_state)
        producers, last_gap = walk.producers, walk.last_gap
        end_offset = segments[-1].end_offset
        if checkpoint is not None:
            epochs.restore(checkpoint.entries, walk.batch_ends)
    _check_end(directory, max(end_offset, log_start_offset), recovery_point)
    if end_offset < log_start_offset:
        remove_segments(disk, segments)
        remove_snapshots_above(disk, directory, -1)
        return empty(log_start_offset)
    start_offset = max(log_start_offset, segments[0].base_offset)
    epochs.truncate_from_end(end_offset)
    start_offset = _start_of_epochs(directory, segments, epochs, start_offset, end_offset)
    epochs.truncate_from_start(start_offset)
    if epochs.is_dirty:
        # What lies below the end counts as durable from now on, so its epochs must be as well: the
        # next start may scan less.
        disk.write_atomic(f"{directory}/{CHECKPOINT_NAME}", epochs.to_bytes())
        epochs.is_dirty = False
    prune_snapshots(disk, directory, segments, end_offset)
    _drop_leftover_states(disk, directory, names, segments[-1])
    return Loaded(
        segments=segments,
        start_offset=start_offset,
        end_offset=end_offset,
        epochs=epochs,
        producers=producers,
        torn_tail=torn_tail,
        last_gap=last_gap,
    )


def _check_end(directory: str, end_offset: int, recovery_point: int) -> None:
    """Whoever cuts a log lowers its recovery point first: one above the end means that files of
    records that were flushed, and perhaps acknowledged, have gone."""
    if end_offset < recovery_point:
        raise CorruptData(
            directory,
            0,
            f"its .log files end at {end_offset}, and were flushed up to {recovery_point}: "
            "one or more of them are gone, or the end of the last is",
        )


def _found_segments(
    disk: Disk,
    directory: str,
    names: list[str],
    bases: list[int],
    config: LogConfig,
    now_ms: int,
) -> list[Segment]:
    present = set(names)
    segments = [
        Segment(
            disk,
            directory,
            base,
            created_ms=now_ms,
            index_interval_bytes=config.index_interval_bytes,
            has_saved_indexes=file_name(base, INDEX_SUFFIX) in present
            and file_name(base, TIME_INDEX_SUFFIX) in present,
        )
        for base in bases
    ]
    for segment, following in pairwise(segments):
        segment.end_offset = following.base_offset
    return segments


def _resumed(
    disk: Disk, segments: list[Segment], first: int, recovery_point: int
) -> Resumed | None:
    """See `resume_segment`. A sealed segment's file is a leftover: compaction may have made the
    segment anew since."""
    segment = segments[first]
    is_sealed = segment.has_saved_indexes and first + 1 < len(segments)
    return None if is_sealed else resume_segment(disk, segment, recovery_point)


def empty(start_offset: int) -> Loaded:
    """A log without records and files."""
    return Loaded(
        segments=[],
        start_offset=start_offset,
        end_offset=start_offset,
        epochs=LeaderEpochCache(),
        producers=ProducerStateTable(),
    )


def _clean_names(disk: Disk, directory: str) -> list[str]:
    """Names in the folder after leftovers of a crash were removed."""
    kept: list[str] = []
    if finish_swaps(disk, directory, disk.list_dir(directory)):
        logger.info("%s: finished or undid a compaction that a crash had cut short", directory)
    for name in disk.list_dir(directory):
        path = f"{directory}/{name}"
        if name.endswith((DELETED_SUFFIX, ".tmp")):
            disk.remove(path)
        else:
            kept.append(name)
    logs = {name[:NAME_DIGITS] for name in kept if name.endswith(LOG_SUFFIX)}
    for name in kept:
        if name.endswith((*INDEX_SUFFIXES, RECOVERY_SUFFIX)) and name[:NAME_DIGITS] not in logs:
            disk.remove(f"{directory}/{name}")
    return kept


def _load_aborted(disk: Disk, directory: str, segments: list[Segment], first: int) -> None:
    """The transaction indexes of the segments before `first`, made anew where they are unfit.

    Sealed segments without index files, which somebody has removed, get new ones, as in Kafka: the
    cleaner does not pass a segment without. Their .log files are durable, for they lie below the
    recovery point or were closed in good order.
    """
    has_made_files = False
    for at, segment in enumerate(segments[:first]):
        try:
            if segment.has_saved_indexes:
                _ = segment.aborted
                continue
        except CorruptData as error:
            logger.warning("%s; it is made anew from the batches", error)
        rebuild_aborted(disk, directory, segments, at)
        if not segment.has_saved_indexes and at + 1 < len(segments):
            logger.warning("%s: made anew from the batches", segment.path(INDEX_SUFFIX))
            segment.save_indexes(segment.index_bytes())
            has_made_files = True
    if has_made_files:
        disk.sync_dir(directory)


def _start_of_epochs(
    directory: str,
    segments: list[Segment],
    epochs: LeaderEpochCache,
    start_offset: int,
    end_offset: int,
) -> int:
    """`start_offset`, or where the first known epoch begins if batches of unknown ones lie below.

    The start was raised, and of that only the epochs' checkpoint had reached the disk: the segments
    before are back. Served, their epochs would be taken for the first one known.
    """
    if not _has_batches_below(segments, epochs, start_offset):
        return start_offset
    raised = min(epochs.start_offsets[0], end_offset)
    logger.warning(
        "%s: the log begins at %d and not at %d: epochs before are gone",
        directory, raised, start_offset,
    )  # fmt: skip
    return raised


def _drop_leftover_states(disk: Disk, directory: str, names: list[str], active: Segment) -> None:
    """A crash may come before that of a sealed segment is removed."""
    for base in offsets_of(names, RECOVERY_SUFFIX):
        if base != active.base_offset:
            disk.remove(f"{directory}/{file_name(base, RECOVERY_SUFFIX)}")


def _has_batches_below(
    segments: list[Segment], epochs: LeaderEpochCache, start_offset: int
) -> bool:
    """Whether batches lie below the first known epoch. If none do, what was there was compacted
    away, and the log begins where it began: readers from there on miss nothing."""
    if not epochs.start_offsets or epochs.start_offsets[0] <= start_offset:
        return False
    for segment in segments:
        for _, header in segment.headers(0):
            return header.base_offset < epochs.start_offsets[0]
    return False


def _read_checkpoint(disk: Disk, directory: str) -> LeaderEpochCache | None:
    """None if it is missing or damaged: it is derived data."""
    path = f"{directory}/{CHECKPOINT_NAME}"
    if disk.exists(path):
        try:
            return read_epochs(disk, path)
        except CorruptData as error:
            logger.warning("%s; it is made anew from the batches", error)
    return None


def _load_epochs(
    checkpoint: LeaderEpochCache | None,
    segments: list[Segment],
    first: int,
    resumed: Resumed | None,
) -> LeaderEpochCache:
    """The epochs of the segments before `first`; the walk from there on assigns the others.

    resumed: what is known of that segment, so that the walk begins only there. A flush wrote the
    checkpoint before a recovery point came to be as high.
    """
    if checkpoint is not None and resumed is not None:
        epochs = LeaderEpochCache(checkpoint.entries)
        epochs.truncate_from_end(resumed.end_offset)
        return epochs
    # If all is walked, what the checkpoint says of offsets before may belong to a log that is gone:
    # `LeaderEpochCache.restore` takes of it what fits between the batches.
    # Bad sequence: 1. a log of epoch 12 is replaced by an empty one that begins at 119, 2. the
    # power fails before the checkpoint follows, 3. its entry (12, 71) would become (12, 119),
    # though the record before 119 is of epoch 14.
    if first == 0:
        return LeaderEpochCache()
    if checkpoint is not None:
        epochs = LeaderEpochCache(checkpoint.entries)
        if first < len(segments):
            epochs.truncate_from_end(segments[first].base_offset)
        return epochs
    epochs = LeaderEpochCache()
    for segment in segments[:first]:
        for _, header in segment.headers(0):
            epochs.assign(header.leader_epoch, header.base_offset)
    return epochs
