"""The records of fetched batches that a consumer sees: no control records, no aborted ones under
read_committed, none outside the range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvorum.storage.format.batch import (
    BatchHeader,
    Record,
    check_crc,
    iter_headers,
    iter_records,
)
from kvorum.storage.format.markers import read_marker


class DamagedBatch(ValueError):
    """A batch whose checksum or records are wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Offsets of one partition that are wanted: from `first` on, below `end` (None: no limit)."""

    first: int
    end: int | None = None

    def has(self, offset: int) -> bool:
        """True if the offset is wanted."""
        return offset >= self.first and (self.end is None or offset < self.end)


def end_position(data: bytes, first: int) -> int:
    """The offset behind the last whole batch of an answer, at least `first`."""
    position = first
    for _, header in iter_headers(data):
        position = max(position, header.end_offset)
    return position


def visible_records(
    data: bytes, wanted: Range, aborted: Sequence[tuple[int, int]] | None
) -> Iterator[Record]:
    """The wanted records of an answer, in order.

    aborted: (producer id, first offset) of the aborted transactions that touch the answer; None
    shows their records too (read_uncommitted). Raises DamagedBatch.
    """
    upcoming = sorted(aborted or (), key=lambda row: row[1], reverse=True)
    open_aborted: set[int] = set()
    for position, header in iter_headers(data):
        if not check_crc(data, position, header):
            raise DamagedBatch(f"the batch at offset {header.base_offset} fails its checksum")
        while upcoming and upcoming[-1][1] <= header.last_offset:
            open_aborted.add(upcoming.pop()[0])
        if header.is_control:
            _close(data, position, header, open_aborted)
            continue
        if header.is_transactional and header.producer_id in open_aborted:
            continue
        for record in iter_records(data, position, header):
            if wanted.has(record.offset):
                yield record


def _close(data: bytes, position: int, header: BatchHeader, open_aborted: set[int]) -> None:
    """An abort marker ends its producer's aborted transaction; the next one may commit."""
    if header.producer_id in open_aborted:
        marker = read_marker(data, position, header)
        if marker is not None and not marker.is_commit:
            open_aborted.discard(header.producer_id)
