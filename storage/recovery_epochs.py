"""The leader epochs of a log at its start: as the checkpoint has them, and as the batches do."""

from __future__ import annotations

import logging

from runtime.disk import Disk
from runtime.errors import CorruptData
from storage.epochs import CHECKPOINT_NAME, LeaderEpochCache, read_epochs
from storage.recovery_state import Resumed
from storage.segment import Segment

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
    """Whether batches lie below the first known epoch. If none do, what was there was compacted
    away, and the log begins where it began: readers from there on miss nothing."""
    if not epochs.start_offsets or epochs.start_offsets[0] <= start_offset:
        return False
    for segment in segments:
        for _, header in segment.headers(0):
            return header.base_offset < epochs.start_offsets[0]
    return False
