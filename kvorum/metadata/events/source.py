"""The metadata that events are made of: this node's copy of the log, and its snapshots."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from kvorum.metadata.events.quorum import NO_QUORUM, QuorumState
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.metadata.image.publisher import MetadataPublisher
from kvorum.metadata.image.snapshot_job import load_image
from kvorum.metadata.inspect.history import LogEntry, entries_of
from kvorum.raft.node.raft_node import RaftNode
from kvorum.runtime.errors import CorruptData, required
from kvorum.storage.format.batch import iter_headers

_log = logging.getLogger(__name__)

READ_BYTES = 64 << 10
"""Bytes of the log in one `read`, unless a single batch is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """An image to start from. timestamp_ms: of the last record in it, 0 for the empty image.

    quorum: at the image's end.
    """

    image: ClusterImage
    timestamp_ms: int
    quorum: QuorumState = NO_QUORUM


class MetadataSource(Protocol):
    """The metadata of one broker."""

    @property
    def image(self) -> ClusterImage:
        """The published image; the log is read up to its end."""
        ...

    @property
    def start_offset(self) -> int:
        """The first offset that the log still has."""
        ...

    def read(self, offset: int, end_offset: int) -> Iterator[LogEntry]:
        """The first records of [offset, end_offset), at least one; end_offset is at most the
        image's."""
        ...

    async def base(self, offset: int) -> Base:
        """The newest image at or below `offset`; if the log no longer has that one, the oldest.

        Raises CorruptData, UnreadableRecord, OSError if no snapshot can be read.
        """
        ...


class PublishedMetadata:
    """The metadata that a broker's publisher follows."""

    def __init__(self, publisher: MetadataPublisher) -> None:
        self._publisher = publisher

    @property
    def image(self) -> ClusterImage:
        return self._publisher.image

    @property
    def start_offset(self) -> int:
        return self._node.log.start_offset

    def read(self, offset: int, end_offset: int) -> Iterator[LogEntry]:
        # Up to the image's end, where a batch ends: one that reached beyond end_offset would not be
        # read.
        piece = self._node.log.read(offset, bytes_max=READ_BYTES, end_offset=self.image.end_offset)
        # Read now: the log may be trimmed before the caller takes the last record.
        return entries_within(piece.read(), offset, end_offset)

    async def base(self, offset: int) -> Base:
        last_failure: CorruptData | FileNotFoundError | None = None
        tried = set()
        # A snapshot may be removed during the read; the list is then another one.
        while True:
            snapshots = [s for s in self._node.core.log.snapshots if s not in tried]
            below = [s for s in snapshots if s.offset <= offset]
            if not below and self.start_offset == 0:
                return Base(image=EMPTY_IMAGE, timestamp_ms=0)
            if not snapshots:
                raise required(last_failure, "a trimmed metadata log has a snapshot")
            chosen = below[-1] if below else snapshots[0]
            try:
                files = self._node.files
                header, image = await load_image(files.store.disk, files.path(chosen))
            except (CorruptData, FileNotFoundError) as failure:
                _log.warning("events of the metadata: snapshot %s is unusable: %s", chosen, failure)
                tried.add(chosen)
                last_failure = failure
                continue
            quorum = QuorumState(kraft_version=header.kraft_version, voters=header.voters)
            return Base(image=image, timestamp_ms=header.timestamp_ms, quorum=quorum)

    @property
    def _node(self) -> RaftNode:
        return self._publisher.node


def entries_within(data: bytes, offset: int, end_offset: int) -> Iterator[LogEntry]:
    """The records of whole batches with offsets in [offset, end_offset)."""
    for position, header in iter_headers(data):
        for entry in entries_of(data, position, header, with_fields=header.is_control):
            if offset <= entry.offset < end_offset:
                yield entry
