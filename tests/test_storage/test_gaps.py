"""The ends of batches in a log in which compaction has left gaps."""

from __future__ import annotations

import random

import pytest

from kvorum.runtime.memory_disk import MemoryDisk
from kvorum.storage.files.model import LogConfig
from kvorum.storage.format.batch import build_batch
from kvorum.storage.log.log import Log
from tests.test_storage.cleaning_steps import clean
from tests.test_storage.compacted import DAY_MS, kept, opened, put, seal
from tests.test_storage.small_logs import new_disk

DIRECTORY = "t-0"
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, keeps_recovery_state=True)
ENDS = (3, 4, 9, 10, 20, 21, 22, 40, 41, 50)


def with_gaps(disk: MemoryDisk) -> Log:
    """One batch of a record below each of ENDS."""
    log = Log.new(disk, DIRECTORY, CONFIG)
    for end in ENDS:
        data = build_batch([(None, bytes(30))], timestamp_ms=end, base_offset=end - 1)
        log.append_as_follower(bytes(data), now_ms=end)
    return log


def reopened(disk: MemoryDisk, log: Log) -> Log:
    log.close()
    return Log.open(disk, DIRECTORY, CONFIG, now_ms=0, is_clean=True)


@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize("start_offset", [0, 15])
def test_the_last_batch_below_an_offset_ends_where_the_gap_begins(
    is_reopened: bool, start_offset: int
) -> None:
    disk = MemoryDisk(random.Random(1))
    log = with_gaps(disk)
    log.advance_start_offset(start_offset)
    if is_reopened:
        log = reopened(disk, log)
        log.advance_start_offset(start_offset)
    assert len(log.segments.bases) > 2
    for offset in range(start_offset, 55):
        expected = max((end for end in ENDS if end <= offset), default=0)
        assert log.batch_end_below(offset) == max(expected, start_offset), offset


def test_a_gap_may_reach_over_the_beginning_of_a_segment() -> None:
    log = opened(new_disk())
    put(log, (b"a", bytes(500)))
    put(log, (b"b", None))
    seal(log)
    put(log, (b"c", None))
    put(log, (b"d", bytes(500)))
    seal(log)
    put(log, (b"e", b"1"))
    for day in (0, 3):
        clean(log, now_ms=day * DAY_MS)
    assert log.segments.bases == [0, 2, 4]
    assert [offset for offset, _, _ in kept(log)] == [0, 3, 4]
    assert [log.batch_end_below(offset) for offset in range(6)] == [0, 1, 1, 1, 4, 5]


def test_an_index_that_leads_too_far_is_made_anew() -> None:
    disk = MemoryDisk(random.Random(1))
    log = with_gaps(disk)
    base = log.segments.bases[1]
    log.close()
    path = f"{DIRECTORY}/{base:020d}.index"
    sound = disk.read_bytes(path)
    assert sound
    for at in range(len(sound)):
        flipped = bytearray(sound)
        flipped[at] ^= 1
        disk.write_atomic(path, bytes(flipped))
        log = Log.open(disk, DIRECTORY, CONFIG, now_ms=0, is_clean=True)
        for offset in range(55):
            expected = max((end for end in ENDS if end <= offset), default=0)
            assert log.batch_end_below(offset) == expected, (at, offset)
        log.close()
