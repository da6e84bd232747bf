"""Applies committed log bytes to an image, for nodes that follow the log.

Standby controllers and brokers use it; the active controller has the images already.
"""

from __future__ import annotations

import contextlib

from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.features import SUPPORTED, unsupported
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.record_codec import UnreadableRecord, decode_record
from kvorum.runtime.memory import long_lived_objects
from kvorum.storage.format.batch import iter_headers, iter_records
from kvorum.storage.log.log import Log

LARGE_BYTES = 32 << 10
"""From this many bytes on, some thousand records, the garbage collector skips the new objects."""

CHUNK_BYTES = 1 << 20
"""Log bytes applied at once: a few tens of milliseconds of the loop at most."""


def advance(
    log: Log, image: ClusterImage, high_watermark: int, *, bytes_max: int = CHUNK_BYTES
) -> tuple[Delta, ClusterImage]:
    """Apply the next chunk of committed records after `image`, at least one batch.

    Returns the delta and the new image; call again until its end_offset is the high watermark.
    """
    piece = log.read(image.end_offset, bytes_max=bytes_max, end_offset=high_watermark)
    delta = Delta(image)
    end_offset, epoch = image.end_offset, image.epoch
    data = piece.read()
    with long_lived_objects() if len(data) > LARGE_BYTES else contextlib.nullcontext():
        for position, header in iter_headers(data):
            if not header.is_control:
                for record in iter_records(data, position, header):
                    if record.offset >= image.end_offset and record.value is not None:
                        delta.replay(decode_record(record.value))
            end_offset, epoch = header.end_offset, header.leader_epoch
        after = delta.apply(end_offset=end_offset, epoch=epoch)
    if after.features != image.features:
        check_features(after)
    return delta, after


def check_features(image: ClusterImage) -> None:
    """Raise UnreadableRecord if a level is finalised that this build cannot read or write."""
    problem = unsupported(image.features, SUPPORTED)
    if problem is not None:
        raise UnreadableRecord(f"this node cannot go on: {problem}; run a newer Kvorum")
