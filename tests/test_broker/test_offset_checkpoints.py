"""The offset checkpoints: the entries that are collected while threads write and logs are
deleted."""

from __future__ import annotations

import asyncio
import random
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kvorum.broker.fetch.log_start_ack import LogStartAcks
from kvorum.broker.log_dirs.offset_checkpoints import OffsetCheckpoints
from kvorum.runtime.errors import CorruptData
from kvorum.runtime.memory_disk import MemoryDisk
from kvorum.storage.files.checkpoints import (
    HIGH_WATERMARK,
    LOG_START_OFFSET,
    RECOVERY_POINT,
    TopicPartition,
    read_offsets,
    write_offsets,
)

KEY: TopicPartition = ("t", 0)


def made(disk: MemoryDisk, directory: str = "data") -> OffsetCheckpoints:
    disk.make_dirs(directory)
    checkpoints = OffsetCheckpoints(disk, directory, lambda: ())
    checkpoints.load()
    return checkpoints


def replica(topic: str = "t", *, offset: int = 10, is_offline: bool = False) -> Any:
    core = SimpleNamespace(topic=topic, partition_id=0, high_watermark=offset)
    log = SimpleNamespace(
        durable_end_offset=offset,
        start_offset=offset,
        segments=SimpleNamespace(durable_first_offset=0),
    )
    # Hashable, as a replica is.
    made = type("FakeReplica", (), {})()
    made.__dict__.update(
        core=core, topic_partition=(topic, 0), high_watermark=offset, log=log,
        is_offline=is_offline, is_closed=False,
    )  # fmt: skip
    return made


class GatedOffsets(dict[TopicPartition, int]):
    """Offsets that call `then` after they were copied for the first time."""

    def __init__(self, offsets: dict[TopicPartition, int], then: Any) -> None:
        super().__init__(offsets)
        self._then = then

    def copy(self) -> GatedOffsets:
        copied = dict(self)
        then, self._then = self._then, lambda: None
        then()
        return copied  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("name", "cost"),
    [
        (LOG_START_OFFSET, "then deleted records come back"),
        (HIGH_WATERMARK, "then high watermarks begin at the log starts"),
    ],
)
def test_a_damaged_checkpoint_says_whether_it_may_be_removed(name: str, cost: str) -> None:
    disk = MemoryDisk(random.Random(1))
    disk.make_dirs("data")
    disk.write_atomic(f"data/{name}", b"junk")
    said = f"data/{name} at byte 0: not an offset checkpoint: 'junk' in line 1; put it back"
    with pytest.raises(CorruptData, match=f"{said} from a copy, or remove it: {cost}"):
        made(disk)


def test_a_log_that_begins_while_its_predecessor_is_written_is_not_named() -> None:
    disk = MemoryDisk(random.Random(1))
    checkpoints = made(disk)
    begun = threading.Thread(target=checkpoints.forget, args=(KEY,))

    def begin() -> None:
        begun.start()
        begun.join(0.05)

    checkpoints.recovery_points = GatedOffsets({KEY: 100}, begin)
    checkpoints.write_log_offsets()
    begun.join()
    assert read_offsets(disk, f"data/{RECOVERY_POINT}") == {}


def test_a_replica_that_failed_half_way_through_a_cut_does_not_bring_its_offsets_back() -> None:
    # Bug: the next start found records missing that had been truncated on purpose.
    disk = MemoryDisk(random.Random(1))
    for name in (RECOVERY_POINT, HIGH_WATERMARK, LOG_START_OFFSET):
        disk.make_dirs("data")
        write_offsets(disk, f"data/{name}", {KEY: 10})
    checkpoints = made(disk)
    checkpoints.lower(*KEY, 4)
    failed = [replica(offset=10, is_offline=True), replica("u", offset=7)]
    checkpoints.collect_log_offsets(failed)
    checkpoints.collect_high_watermarks(failed)
    checkpoints.write_log_offsets()
    checkpoints.write_high_watermarks()
    for name in (RECOVERY_POINT, HIGH_WATERMARK, LOG_START_OFFSET):
        assert read_offsets(disk, f"data/{name}") == {KEY: 4, ("u", 0): 7}


def test_the_start_of_a_log_that_went_while_another_directory_was_written_is_not_noted() -> None:
    # Bug: the next log with that name was discarded up to the old log start.
    disk = MemoryDisk(random.Random(1))
    first, second = made(disk, "x"), made(disk, "y")
    going, staying = replica("t", offset=5), replica("a", offset=3)
    homes = [
        SimpleNamespace(store=SimpleNamespace(checkpoints=checkpoints), is_offline=False)
        for checkpoints in (first, second)
    ]
    for it, log_dir in ((staying, homes[0]), (going, homes[1])):
        it.log_dir = type("FakeHome", (), log_dir.__dict__)()
    write = first.write_log_starts

    def write_slowly() -> None:
        going.is_closed = True
        write()

    first.write_log_starts = write_slowly  # type: ignore[method-assign]

    async def tell() -> None:
        starts = LogStartAcks(lambda *failure: None)
        saved = asyncio.Event()
        for it in (staying, going):
            starts.reportable_start(it, saved.set)
        await saved.wait()

    asyncio.run(tell())
    assert read_offsets(disk, f"x/{LOG_START_OFFSET}") == {("a", 0): 3}
    assert read_offsets(disk, f"y/{LOG_START_OFFSET}") == {}
