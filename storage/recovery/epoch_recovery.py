"""The leader epochs of a log at its start: as the checkpoint has them, and as the batches do."""

from __future__ import annotations

import logging
import sys

from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData
from kvorum.storage.format.batch import BatchHeader
from kvorum.storage.log.leader_epochs import CHECKPOINT_NAME, LeaderEpochCache, read_epochs
from kvorum.storage.log.segment import Segment
from kvorum.storage.recovery.segment_state import Resumed

logger = logging.getLogger("kvorum.storage")


def read_checkpoint(disk: Disk, directory: str) -> LeaderEpochCache | None:
    """None if it is missing or damaged: it is derived data."""
    path = f"{directory}/{CHECKPOINT_NAME}"
    if disk.exists(path):
        try:
            return read_epochs(disk, path)
        except CorruptData as error:
            logger.warning("%s; it is made anew from the batches", error)
    return None


def load_epochs(
    checkpoint: LeaderEpochCache | None,
    segments: list[Segment],
    first: int,
    resumed: Resumed | None,
    log_start_offset: int,
) -> LeaderEpochCache:
    """The epochs of the segments before `first`; the walk from there on assigns the others.

    resumed: what is known of that segment, so that the walk begins only there. A flush wrote the
    checkpoint before a recovery point came to be as high. One that the batches contradict does not
    count: it has no checksum, and an epoch above the cluster's would keep the replica from leading.
    """
    if checkpoint is not None and resumed is not None:
        if resumed.end_offset <= log_start_offset:
            # The epoch of the checkpoint begins at the log's start. The batch before is the witness
            # for it.
            return LeaderEpochCache([(resumed.last_epoch, resumed.end_offset - 1)])
        epochs = LeaderEpochCache(checkpoint.entries)
        epochs.truncate_from_end(resumed.end_offset)
        if _says(epochs, segments, resumed.end_offset - 1, resumed.last_epoch):
            return epochs
        return _of_batches(segments[: first + 1], resumed.end_offset)
    # If all is walked, what the checkpoint says of offsets before may belong to a log that is gone:
    # `LeaderEpochCache.restore` takes of it what fits between the batches.
    # Bad sequence: 1. a log of epoch 12 is replaced by an empty one that begins at 119, 2. the
    # power fails before the checkpoint follows, 3. its entry (12, 71) would become (12, 119),
    # though the record before 119 is of epoch 14.
    if first == 0:
        return LeaderEpochCache()
    known = segments[:first]
    if checkpoint is not None:
        epochs = LeaderEpochCache(checkpoint.entries)
        if first < len(segments):
            epochs.truncate_from_end(segments[first].base_offset)
        if _fits(epochs, known, log_start_offset, is_clean=first == len(segments)):
            return epochs
    return _of_batches(known)


def _of_batches(segments: list[Segment], end_offset: int = sys.maxsize) -> LeaderEpochCache:
    """As the headers below `end_offset` have it."""
    epochs = LeaderEpochCache()
    for segment in segments:
        for _, header in segment.headers(0):
            if header.base_offset >= end_offset:
                break
            epochs.assign(header.leader_epoch, header.base_offset)
    return epochs


def _fits(
    epochs: LeaderEpochCache, segments: list[Segment], log_start_offset: int, *, is_clean: bool
) -> bool:
    """True if the last batch is of the epoch that the checkpoint says, and after an orderly stop
    the first one: after another, batches may be back below all that it knows (`start_of_epochs`).
    """
    headers = [_last_header(segments)]
    if is_clean:
        headers.append(next((h for segment in segments for _, h in segment.headers(0)), None))
    return all(
        _says(epochs, segments, max(header.base_offset, log_start_offset), header.leader_epoch)
        for header in headers
        if header is not None and header.end_offset > log_start_offset
    )


def _says(
    epochs: LeaderEpochCache, segments: list[Segment], offset: int, leader_epoch: int
) -> bool:
    """`offset` lies in a batch of `leader_epoch`, as the checkpoint has it; a warning if not so."""
    epoch = epochs.epoch_of(offset)
    if epoch != leader_epoch:
        logger.warning(
            "%s/%s says epoch %d of offset %d, the batch there epoch %d; it is made anew from the "
            "batches",
            segments[0].directory, CHECKPOINT_NAME, epoch, offset, leader_epoch,
        )  # fmt: skip
    return epoch == leader_epoch


def epoch_of_last(segments: list[Segment]) -> int:
    """Of the last batch, -1 without one."""
    header = _last_header(segments)
    return -1 if header is None else header.leader_epoch


def _last_header(segments: list[Segment]) -> BatchHeader | None:
    for segment in reversed(segments):
        try:
            position = segment.indexes[0].last_position()
        except CorruptData:
            position = 0
        found: BatchHeader | None = None
        for _, header in segment.headers(position):
            found = header
        if found is not None:
            return found
    return None


def start_of_epochs(
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


def _has_batches_below(
    segments: list[Segment], epochs: LeaderEpochCache, start_offset: int
) -> bool:
    """True if batches lie below the first known epoch. If none do, what was there was compacted
    away, and the log begins where it began: readers from there on miss nothing."""
    if not epochs.start_offsets or epochs.start_offsets[0] <= start_offset:
        return False
    for segment in segments:
        for _, header in segment.headers(0):
            return header.base_offset < epochs.start_offsets[0]
    return False
