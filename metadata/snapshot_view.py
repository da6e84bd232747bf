"""An image and its history out of raw metadata batches, for inspection and export."""

from __future__ import annotations

from metadata.delta import Delta
from metadata.image import EMPTY_IMAGE, ClusterImage
from metadata.loader import committed_records


def image_of(data: bytes, *, at_offset: int | None = None) -> ClusterImage:
    """The cluster as records from offset 0 on say; with at_offset only those below it."""
    delta = Delta(EMPTY_IMAGE)
    end_offset, last_epoch = 0, 0
    for offset, epoch, _, record in committed_records(data):
        if at_offset is not None and offset >= at_offset:
            break
        if record is not None:
            delta.replay(record)
        end_offset, last_epoch = offset + 1, epoch
    return delta.apply(end_offset=end_offset, epoch=last_epoch)
