"""A small compacted log on a memory disk, for tests."""

from __future__ import annotations

from kvorum.runtime.memory_disk import MemoryDisk
from kvorum.storage.files.model import CompactionConfig
from kvorum.storage.format.batch import build_batch
from kvorum.storage.log.log import Log, LogConfig
from tests.test_storage.cleaning_steps import records
from tests.test_storage.small_logs import DIRECTORY

DAY_MS = 86_400_000
COMPACTION = CompactionConfig()
CONFIG = LogConfig(
    segment_bytes=900, index_interval_bytes=100, retention_ms=-1, compaction=COMPACTION
)
KEYS = [b"k%d" % at for at in range(6)]


def opened(disk: MemoryDisk, config: LogConfig = CONFIG, **options) -> Log:
    return Log.open(disk, DIRECTORY, config, now_ms=0, **options)


def put(log: Log, *pairs, timestamp_ms: int = 1000, **fields) -> int:
    """Append one batch of (key, value) records; its base offset."""
    batch = build_batch(list(pairs), timestamp_ms=timestamp_ms, **fields)
    return log.append_as_leader(batch, leader_epoch=0, now_ms=timestamp_ms).base_offset


def seal(log: Log) -> None:
    log.roll(now_ms=0)
    log.flush()


def kept(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(r.offset, r.key, r.value) for r in records(log)]
