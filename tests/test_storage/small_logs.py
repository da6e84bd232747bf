"""A log of small segments on a memory disk: filled, closed, cut and emptied by tests."""

from __future__ import annotations

import random
from dataclasses import replace

from kvorum.runtime.memory_disk import MemoryDisk
from kvorum.storage.format.batch import Buffer, build_batch
from kvorum.storage.log.log import Log, LogConfig

DIRECTORY = "data/t-0"
FIRST = f"{DIRECTORY}/00000000000000000000.log"
SMALL = LogConfig(segment_bytes=400, index_interval_bytes=80)
BROKERS = replace(
    SMALL,
    keeps_recovery_state=True,
    refuses_missing_segments=True,
    retention_ms=-1,
    file_delete_delay_ms=0,
)


def new_disk(seed: int = 1) -> MemoryDisk:
    disk = MemoryDisk(random.Random(seed))
    disk.make_dirs("data")
    disk.sync_dir(".")
    return disk


def batch(at: int = 0) -> bytearray:
    return build_batch([(None, bytes(50))], timestamp_ms=1000 + at)


def opened(disk: MemoryDisk, config: LogConfig = SMALL, **options: int) -> Log:
    return Log.open(disk, DIRECTORY, config, now_ms=0, **options)


def filled(disk: MemoryDisk, count: int, config: LogConfig = SMALL) -> Log:
    log = opened(disk, config)
    for at in range(count):
        log.append_as_leader(batch(at), leader_epoch=1, now_ms=at)
    return log


def append_bytes(disk: MemoryDisk, path: str, data: Buffer) -> None:
    file = disk.open(path)
    file.pwrite(data, file.size())
    file.sync()


def closed(config: LogConfig = BROKERS) -> MemoryDisk:
    """A log with segments at 0, 3, 6 and 9, closed in good order."""
    disk = new_disk()
    filled(disk, 10, config).close()
    return disk


def append(log: Log, leader_epoch: int) -> None:
    log.append_as_leader(
        build_batch([(None, b"x")], timestamp_ms=0), leader_epoch=leader_epoch, now_ms=0
    )


def path_of(base_offset: int, suffix: str) -> str:
    return f"{DIRECTORY}/{base_offset:020d}{suffix}"


def empty(disk: MemoryDisk, path: str, size: int = 0) -> None:
    file = disk.open(path)
    file.truncate(size)
    file.sync()
