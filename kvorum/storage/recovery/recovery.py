"""Loads a log's folder at a start: its segments, epochs and producers.

After an unclean stop every batch from the recovery point on is checked (`batch_walk.py`). Batches
before it in the same segment are checked too, unless the log keeps a recovery state that covers
them (`recovery_state.py`).
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData
from kvorum.storage.cleaning.segment_swap import finish_swaps
from kvorum.storage.files.checkpoints import LOG_START_OFFSET
from kvorum.storage.files.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    RECOVERY_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
    offsets_of,
)
from kvorum.storage.files.leader_epochs import CHECKPOINT_NAME, LeaderEpochCache
from kvorum.storage.files.model import LogConfig
from kvorum.storage.files.producer_state import ProducerStateTable
from kvorum.storage.files.segment import Segment
from kvorum.storage.recovery.batch_walk import (
    BatchWalk,
    OffsetGap,
    TornTail,
    close_files,
    remove_segments,
)
from kvorum.storage.recovery.epoch_recovery import (
    epoch_of_last,
    load_epochs,
    read_checkpoint,
    start_of_epochs,
)
from kvorum.storage.recovery.missing_files import check_first_segment, check_sealed, orphans
from kvorum.storage.recovery.producer_rebuild import (
    prune_snapshots,
    rebuild_aborted,
    rebuild_producers,
    remove_snapshots_above,
)
from kvorum.storage.recovery.recovery_state import Resumed, resume_segment

logger = logging.getLogger("kvorum.storage")


@dataclass(slots=True, kw_only=True)
class Loaded:
    """A log as found on disk. Mutable, because `Log` takes it over.

    torn_tail: what was truncated.
    last_gap: the last gap found by a walk over all batches.
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
    """See `Log.open`. The returned log is fsynced."""
    names = _tidied_names(disk, directory)
    bases = offsets_of(names, LOG_SUFFIX)
    checkpoint = read_checkpoint(disk, directory)
    if bases:
        if config.refuses_missing_segments:
            check_first_segment(directory, names, checkpoint, bases[0])
        segments = _found_segments(disk, directory, names, bases, config, now_ms)
        try:
            loaded = _load_segments(
                disk,
                directory,
                segments,
                checkpoint,
                recovery_point=recovery_point,
                is_clean=is_clean,
                log_start_offset=log_start_offset,
                keeps_recovery_state=config.keeps_recovery_state,
            )
        except (CorruptData, OSError):
            close_files(segments)
            raise
    else:
        _check_end(directory, log_start_offset, recovery_point)
        loaded = _begin_anew(disk, directory, [], checkpoint, log_start_offset)
    if loaded.segments:
        prune_snapshots(disk, directory, loaded.segments, loaded.end_offset)
        _drop_leftover_states(disk, directory, names, loaded.segments[-1])
    # The .deleted files of retention and compaction are removed last. As long as they exist, they
    # show that the epoch checkpoint may be out of date (`check_first_segment`).
    for name in names:
        if name.endswith(DELETED_SUFFIX):
            disk.remove(f"{directory}/{name}")
    return loaded


def _load_segments(
    disk: Disk,
    directory: str,
    segments: list[Segment],
    checkpoint: LeaderEpochCache | None,
    *,
    recovery_point: int,
    is_clean: bool,
    log_start_offset: int,
    keeps_recovery_state: bool,
) -> Loaded:
    """Load the files of at least one segment. checkpoint: the epochs, as found on disk."""
    first, resumed = len(segments), None
    if not is_clean:
        bases = [segment.base_offset for segment in segments]
        first = max(0, bisect_right(bases, recovery_point) - 1)
        if keeps_recovery_state and checkpoint is not None:
            resumed = _resumed(disk, segments, first, recovery_point)
    for segment, following in pairwise(segments[: first + 1]):
        if segment.has_saved_indexes:
            check_sealed(disk, segment, following.base_offset)
            # Most segments are not read for a long time, and thousands of files would stay open.
            close_files([segment])
    epochs = load_epochs(checkpoint, segments, first, resumed, log_start_offset)
    _load_aborted(disk, directory, segments, first)
    torn_tail: TornTail | None = None
    last_gap: OffsetGap | None = None
    if is_clean:
        segments[-1].load_tail()
        end_offset = segments[-1].end_offset
        producers = rebuild_producers(disk, directory, segments, end_offset=end_offset)
    else:
        walk = BatchWalk(disk, directory, segments, epochs, recovery_point)
        torn_tail = walk.run(first, resumed, keeps_recovery_state=keeps_recovery_state)
        producers, last_gap = walk.producers, walk.last_gap
        end_offset = segments[-1].end_offset
        if checkpoint is not None:
            epochs.restore(checkpoint.entries, walk.batch_ends)
    _check_end(directory, max(end_offset, log_start_offset), recovery_point)
    if end_offset < log_start_offset:
        _check_start(directory, log_start_offset, segments[0], end_offset, is_clean=is_clean)
        return _begin_anew(disk, directory, segments, checkpoint, log_start_offset)
    start_offset = max(log_start_offset, segments[0].base_offset)
    epochs.truncate_from_end(end_offset)
    start_offset = start_of_epochs(directory, segments, epochs, start_offset, end_offset)
    epochs.truncate_from_start(start_offset)
    if start_offset == end_offset and epochs.epoch_before_start < 0:
        epochs.epoch_before_start = epoch_of_last(segments)
    if epochs.is_dirty or (checkpoint is not None and checkpoint.entries != epochs.entries):
        # The records below the end count as durable from now on, so their epochs must be durable as
        # well: the next start may scan less. The rewrite also matters for a log that retention has
        # left without a batch. Its checkpoint may have epochs below its start, which only the
        # .deleted files explain. Those are removed now, and the next start would report missing
        # records.
        disk.write_atomic(f"{directory}/{CHECKPOINT_NAME}", epochs.to_bytes())
        epochs.is_dirty = False
    return Loaded(
        segments=segments,
        start_offset=start_offset,
        end_offset=end_offset,
        epochs=epochs,
        producers=producers,
        torn_tail=torn_tail,
        last_gap=last_gap,
    )


def _tidied_names(disk: Disk, directory: str) -> list[str]:
    """Finish or undo an interrupted compaction, remove leftovers, and return the remaining names.
    Raises CorruptData (`missing_files.orphans`)."""
    if finish_swaps(disk, directory, disk.list_dir(directory)):
        logger.info("%s: finished or undid a compaction that a crash had cut short", directory)
    names = disk.list_dir(directory)
    gone = {*orphans(directory, names), *(name for name in names if name.endswith(".tmp"))}
    for name in sorted(gone):
        disk.remove(f"{directory}/{name}")
    return [name for name in names if name not in gone]


def _begin_anew(
    disk: Disk,
    directory: str,
    segments: list[Segment],
    checkpoint: LeaderEpochCache | None,
    start_offset: int,
) -> Loaded:
    """An empty log in place of `segments`, if there are any."""
    if checkpoint is not None and checkpoint.epochs:
        # The checkpoint first: no old epoch may be taken for an epoch of later records.
        disk.write_atomic(f"{directory}/{CHECKPOINT_NAME}", LeaderEpochCache().to_bytes())
    remove_segments(disk, segments)
    remove_snapshots_above(disk, directory, -1)
    return empty(start_offset)


def _check_end(directory: str, end_offset: int, recovery_point: int) -> None:
    """Refuse a log that ends below its recovery point.

    A truncation lowers the recovery point first. So flushed files, perhaps with acknowledged
    records, are missing.
    """
    if end_offset < recovery_point:
        raise CorruptData(
            directory,
            0,
            f"its .log files end at {end_offset}, and were flushed up to {recovery_point}: "
            "one or more of them are gone, or the end of the last is",
        )


def _check_start(
    directory: str, start_offset: int, first: Segment, end_offset: int, *, is_clean: bool
) -> None:
    """Accept that a log ends below its start: an empty log will begin at the start offset.

    After a power loss the records above the log's end are gone. Raises CorruptData after a clean
    stop.
    """
    if is_clean:
        raise CorruptData(
            directory,
            0,
            f"its .log files end at {end_offset}, below its start {start_offset} in "
            f"{LOG_START_OFFSET}, though it was closed in good order",
        )
    if end_offset > first.base_offset:
        logger.warning(
            "%s ends at %d, below its start %d: an empty log begins there",
            directory, end_offset, start_offset,
        )  # fmt: skip


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
    """The recovery state of segment `first`; None if it is missing or unusable (`resume_segment`).

    A recovery state beside a sealed segment is a leftover: compaction may have replaced the
    segment.
    """
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


def _load_aborted(disk: Disk, directory: str, segments: list[Segment], first: int) -> None:
    """Read the transaction indexes of the segments before `first`; rebuild damaged ones.

    A sealed segment whose index files were removed by hand gets new ones, as in Kafka, because the
    cleaner does not pass a segment without them. Its .log is durable: it lies below the recovery
    point, or the log was closed cleanly.
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


def _drop_leftover_states(disk: Disk, directory: str, names: list[str], active: Segment) -> None:
    """Remove the recovery states of sealed segments, which a crash may have left."""
    for base in offsets_of(names, RECOVERY_SUFFIX):
        if base != active.base_offset:
            disk.remove(f"{directory}/{file_name(base, RECOVERY_SUFFIX)}")
