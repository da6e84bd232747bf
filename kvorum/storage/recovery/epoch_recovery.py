"""The leader epochs of a log at its start, from the checkpoint and from the batches."""

from __future__ import annotations

import logging
import sys

from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData
from kvorum.storage.files.leader_epochs import CHECKPOINT_NAME, LeaderEpochCache, read_epochs
from kvorum.storage.files.segment import Segment
from kvorum.storage.format.batch import BatchHeader
from kvorum.storage.recovery.recovery_state import Resumed

logger = logging.getLogger("kvorum.storage")


def read_checkpoint(disk: Disk, directory: str) -> LeaderEpochCache | None:
    """The epoch checkpoint; None if it is missing or damaged, because it is derived data."""
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

    resumed: the recovery state of segment `first`; the walk then begins after the records that this
    state covers. The checkpoint has their epochs: a flush writes it before the recovery point rises
    above them.

    A checkpoint that the batches contradict is not used. It has no checksum, and an epoch above the
    cluster's would keep the replica from leading.
    """
    if checkpoint is not None and resumed is not None:
        if resumed.end_offset <= log_start_offset:
            # The batches that the recovery state covers lie below the log start. The checkpoint
            # says nothing of them: its first entry was moved up to the log start. Begin with the
            # epoch that is certain, that of the last of these batches; the later ones are walked.
            return LeaderEpochCache([(resumed.last_epoch, resumed.end_offset - 1)])
        epochs = LeaderEpochCache(checkpoint.entries)
        epochs.truncate_from_end(resumed.end_offset)
        if _has_epoch_at(epochs, segments, resumed.end_offset - 1, resumed.last_epoch):
            return epochs
        return _of_batches(segments[: first + 1], resumed.end_offset)
    # If every batch is walked, the checkpoint may describe an earlier log. Only
    # `LeaderEpochCache.restore` uses it then, and takes what fits between the batches. Bad sequence
    # otherwise:
    # 1. A log of epoch 12 is replaced by an empty one that begins at 119.
    # 2. The power fails before the checkpoint is replaced.
    # 3. Its entry (12, 71) becomes (12, 119), although the record before 119 has epoch 14.
    if first == 0:
        return LeaderEpochCache()
    known = segments[:first]
    if checkpoint is not None:
        epochs = LeaderEpochCache(checkpoint.entries)
        if first < len(segments):
            epochs.truncate_from_end(segments[first].base_offset)
        if _matches_batches(epochs, known, log_start_offset, is_clean=first == len(segments)):
            return epochs
    return _of_batches(known)


def _of_batches(segments: list[Segment], end_offset: int = sys.maxsize) -> LeaderEpochCache:
    """The epochs of the batch headers below `end_offset`."""
    epochs = LeaderEpochCache()
    for segment in segments:
        for _, header in segment.headers(0):
            if header.base_offset >= end_offset:
                break
            epochs.assign(header.leader_epoch, header.base_offset)
    return epochs


def _matches_batches(
    epochs: LeaderEpochCache, segments: list[Segment], log_start_offset: int, *, is_clean: bool
) -> bool:
    """True if the checkpoint has the last batch's epoch and, after a clean stop, the first one's.

    After an unclean stop, batches may be back below every epoch in the checkpoint
    (`start_of_epochs`).
    """
    headers = [_last_header(segments)]
    if is_clean:
        headers.append(next((h for segment in segments for _, h in segment.headers(0)), None))
    return all(
        _has_epoch_at(
            epochs, segments, max(header.base_offset, log_start_offset), header.leader_epoch
        )
        for header in headers
        if header is not None and header.end_offset > log_start_offset
    )


def _has_epoch_at(
    epochs: LeaderEpochCache, segments: list[Segment], offset: int, leader_epoch: int
) -> bool:
    """True if the checkpoint has `leader_epoch` at `offset`, like the batch there; else warns."""
    epoch = epochs.epoch_of(offset)
    if epoch != leader_epoch:
        logger.warning(
            "%s/%s says epoch %d of offset %d, the batch there epoch %d; it is made anew from the "
            "batches",
            segments[0].directory, CHECKPOINT_NAME, epoch, offset, leader_epoch,
        )  # fmt: skip
    return epoch == leader_epoch


def epoch_of_last(segments: list[Segment]) -> int:
    """Leader epoch of the last batch, -1 if there is none."""
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
    """`start_offset`, or the start of the first known epoch if batches of unknown epochs lie below
    it.

    Such batches come from deleted segments that a crash brought back: the log start had been
    raised, and only the epoch checkpoint reached the disk. If readers could read these batches,
    they would take the first known epoch for the batches' epoch.
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
    """True if batches lie below the first known epoch.

    If there are none, compaction removed them and the log begins where it did: readers miss
    nothing.
    """
    if not epochs.start_offsets or epochs.start_offsets[0] <= start_offset:
        return False
    for segment in segments:
        for _, header in segment.headers(0):
            return header.base_offset < epochs.start_offsets[0]
    return False
