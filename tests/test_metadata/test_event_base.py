"""The image to start from, by a node's snapshots: damaged and removed ones are passed over."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kvorum.metadata.events.source import PublishedMetadata
from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.metadata.image.records import FeatureLevel, Record
from kvorum.metadata.image.snapshot_job import header_of, payloads_of
from kvorum.raft.model.values import OffsetAndEpoch
from kvorum.raft.node.snapshot_files import SnapshotFiles
from kvorum.runtime.async_disk import OsAsyncDisk
from kvorum.runtime.errors import CorruptData
from kvorum.snapshots.store import SnapshotStore
from tests.test_metadata.event_source import image_of

RECORDS: list[Record] = [FeatureLevel(f"feature-{number}", 1) for number in range(9)]
VOTERS = ((1, "directory", "host", 9_001),)


class Node:
    """The snapshots at offsets 3, 6 and 9 of one node, and the source over them."""

    def __init__(self, folder: Path, start_offset: int) -> None:
        folder.mkdir(exist_ok=True)
        self.files = SnapshotFiles(SnapshotStore(OsAsyncDisk(), str(folder)))
        self.log = SimpleNamespace(start_offset=start_offset)
        self.snapshots = [asyncio.run(self._take(offset)) for offset in (3, 6, 9)]
        self.core = SimpleNamespace(log=SimpleNamespace(snapshots=self.snapshots))
        self.source = PublishedMetadata(cast("Any", SimpleNamespace(node=self)))

    async def _take(self, offset: int) -> OffsetAndEpoch:
        image = image_of(RECORDS[:offset])
        header = header_of(image, timestamp_ms=100 + offset, kraft_version=1, voters=VOTERS)
        await self.files.store.write(header, payloads_of(image))
        return OffsetAndEpoch(offset, image.epoch)

    def path(self, index: int) -> Path:
        return Path(self.files.path(self.snapshots[index]))

    def damage(self, index: int) -> None:
        data = bytearray(self.path(index).read_bytes())
        data[len(data) // 2] ^= 0xFF
        self.path(index).write_bytes(data)

    def end_offset_at(self, offset: int) -> int:
        """End of the image to start from for `offset`, whose content is checked."""
        base = asyncio.run(self.source.base(offset))
        reached = base.image.end_offset
        assert base.image == (image_of(RECORDS[:reached]) if reached else EMPTY_IMAGE)
        assert base.timestamp_ms == (100 + reached if reached else 0)
        assert base.quorum.voters == (VOTERS if reached else ())
        return reached


@pytest.mark.parametrize(("offset", "reached"), [(3, 3), (5, 3), (6, 6), (8, 6), (20, 9)])
def test_the_newest_snapshot_at_or_below_the_offset(
    tmp_path: Path, offset: int, reached: int
) -> None:
    assert Node(tmp_path, start_offset=3).end_offset_at(offset) == reached


def test_below_the_oldest_snapshot_a_whole_log_starts_at_nothing_and_a_trimmed_one_at_it(
    tmp_path: Path,
) -> None:
    assert Node(tmp_path / "whole", start_offset=0).end_offset_at(2) == 0
    assert Node(tmp_path / "trimmed", start_offset=3).end_offset_at(2) == 3


def test_a_damaged_snapshot_falls_back_to_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path, start_offset=3)
    node.damage(1)
    assert node.end_offset_at(8) == 3
    assert "snapshot OffsetAndEpoch(offset=6, epoch=1) is unusable" in caplog.text


def test_a_removed_snapshot_falls_back_to_those_that_are_left(tmp_path: Path) -> None:
    """Retention removes the file, and then the entry: the log was trimmed to the next one."""
    node = Node(tmp_path, start_offset=3)
    node.path(0).unlink()
    assert node.end_offset_at(4) == 6
    del node.snapshots[0]
    assert node.end_offset_at(4) == 6


def test_a_damaged_snapshot_of_a_whole_log_is_no_loss(tmp_path: Path) -> None:
    node = Node(tmp_path, start_offset=0)
    node.damage(0)
    assert node.end_offset_at(5) == 0


def test_without_a_snapshot_that_can_be_read_the_damage_is_raised(tmp_path: Path) -> None:
    node = Node(tmp_path, start_offset=3)
    for index in range(3):
        node.damage(index)
    with pytest.raises(CorruptData):
        node.end_offset_at(5)
