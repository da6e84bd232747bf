"""The metadata as a node sent it, and the image it makes."""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.inspect.history import history_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataCopy:
    """Committed metadata as a node sent it.

    snapshot: a whole checkpoint file, empty if the log begins at offset 0. records: the batches
    behind it. high_watermark: where they end (exclusive).
    """

    snapshot: bytes = b""
    records: bytes = b""
    high_watermark: int = 0


def image_of(copy: MetadataCopy) -> ClusterImage:
    """The cluster as the copy says. Raises CorruptData, UnreadableRecord."""
    return history_of(copy, name="the copy received").image_at()
