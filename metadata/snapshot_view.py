"""An image and its history out of a copy of the metadata log, for inspection and export."""

from __future__ import annotations

from dataclasses import dataclass

from metadata.delta import Delta
from metadata.image import EMPTY_IMAGE, ClusterImage
from metadata.loader import committed_records
from metadata.snapshot_job import last_timestamp_ms, records_in
from snapshots.format import SnapshotDecoder, SnapshotHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataCopy:
    """Committed metadata as a node sent it.

    snapshot: a whole checkpoint file, empty if the log begins at offset 0. records: the batches
    behind it. high_watermark: where they end (exclusive).
    """

    snapshot: bytes = b""
    records: bytes = b""
    high_watermark: int = 0


def image_of(copy: MetadataCopy, *, at_offset: int | None = None) -> ClusterImage:
    """The cluster as the copy says; with at_offset as only the records below it say.

    Raises CorruptData, and ValueError for an at_offset below the end of the copy's snapshot.
    """
    base = base_image(copy)
    if at_offset is not None and at_offset < base.end_offset:
        raise ValueError(f"offset {at_offset} lies in a snapshot that ends at {base.end_offset}")
    delta = Delta(base)
    end_offset, last_epoch = base.end_offset, base.epoch
    for offset, epoch, _, record in committed_records(copy.records):
        if offset < base.end_offset:
            continue
        if at_offset is not None and offset >= at_offset:
            break
        if record is not None:
            delta.replay(record)
        end_offset, last_epoch = offset + 1, epoch
    return delta.apply(end_offset=end_offset, epoch=last_epoch)


def base_image(copy: MetadataCopy) -> ClusterImage:
    """What the copy's snapshot holds, the empty image if it has none. Raises CorruptData."""
    if not copy.snapshot:
        return EMPTY_IMAGE
    delta = Delta(EMPTY_IMAGE)
    header, payloads = _decode(copy.snapshot)
    for payload in payloads:
        delta.replay_all(records_in(payload))
    return delta.apply(end_offset=header.end_offset, epoch=header.epoch)


def timestamp_of(copy: MetadataCopy) -> int:
    """Timestamp (ms) of the newest record that the copy stands for; 0 for an empty one."""
    if copy.records:
        return last_timestamp_ms(copy.records)
    return _decode(copy.snapshot)[0].timestamp_ms if copy.snapshot else 0


def _decode(data: bytes) -> tuple[SnapshotHeader, list[bytes]]:
    decoder = SnapshotDecoder("the snapshot received")
    payloads = []
    while decoder.needs_more(len(data)):
        piece = data[decoder.position : decoder.position + decoder.wanted]
        payload = decoder.accept(piece)
        if payload is not None:
            payloads.append(payload)
    return decoder.finish(), payloads
