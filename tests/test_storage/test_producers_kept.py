"""Producers whose batches retention or compaction took are known after every start, from snapshots.

Each test tells in its first lines by which steps a repeated batch was once taken for a new one.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.batch import build_batch, read_header
from storage.log import Log, LogConfig
from storage.model import CompactionConfig
from storage.names import LOG_SUFFIX, SNAPSHOT_SUFFIX, file_name, offsets_of
from storage.producer_state import Duplicate, ProducerStateTable
from storage.segment import Segment
from tests.test_storage.cleaning_steps import clean
from tests.test_storage.compacted import DIRECTORY, new_disk, opened, put, seal

CONFIG = LogConfig(
    retention_ms=-1,
    keeps_recovery_state=True,
    epochs_tell_start=True,
    compaction=CompactionConfig(min_cleanable_dirty_ratio=0.0),
)


def header(producer_id: int, sequence: int, *, is_transactional: bool = False):
    batch = build_batch(
        [(b"k", b"v")],
        timestamp_ms=1,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    return read_header(batch, 0)


def produce(log: Log, producer_id: int, sequence: int, key: bytes = b"k") -> None:
    put(log, (key, b"v"), producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def snapshots(log: Log) -> list[int]:
    return offsets_of(log._disk.list_dir(DIRECTORY), SNAPSHOT_SUFFIX)


@pytest.mark.parametrize("recovery_point", [0, 1, 2, 3, 4])
def test_a_snapshot_above_the_recovery_point_tells_what_no_batch_does(recovery_point: int) -> None:
    # 1. Retention takes all batches of producer 7, 2. a clean the snapshots below its end, 3. the
    # process is killed before the checkpoint of the recovery points is written, or it is damaged.
    disk = new_disk()
    log = opened(disk, CONFIG)
    produce(log, 7, 0)
    seal(log)
    for sequence in range(2):
        produce(log, 8, sequence)
        seal(log)
    log.advance_start_offset(1)
    assert log.apply_retention(now_ms=1, high_watermark=3) == [0]
    produce(log, 8, 2)
    log.flush()
    assert clean(log, now_ms=9)
    assert snapshots(log) == [3]
    disk.kill_process()
    log = opened(disk, CONFIG, recovery_point=recovery_point, log_start_offset=1)
    assert log.producers.check(header(7, 0)) == Duplicate(0, 0, 1000)
    assert log.producers.check(header(8, 2)) == Duplicate(3, 3, 1000)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_retention_reads_nothing_of_what_it_takes(
    monkeypatch: pytest.MonkeyPatch, is_damaged: bool
) -> None:
    # It walked over all headers, on the loop; and damage in what went cost the replica.
    disk = new_disk()
    log = opened(disk, replace(CONFIG, segment_bytes=10_000))
    for sequence in range(300):
        produce(log, 7, sequence, b"k%d" % sequence)
    seal(log)
    assert clean(log, now_ms=9)
    assert snapshots(log) == [300]
    if is_damaged:
        for position in range(5000, 5200):
            disk.flip_bits(f"{DIRECTORY}/{file_name(0, LOG_SUFFIX)}", position)
    walks: list[int] = []
    monkeypatch.setattr(Segment, "headers", lambda segment, _: walks.append(0) or iter(()))
    log.config = replace(log.config, retention_bytes=log.size_bytes - 10_000)
    assert log.apply_retention(now_ms=9, high_watermark=300) == [0]
    assert walks == []


def test_without_a_snapshot_retention_leaves_what_the_log_remembers() -> None:
    disk = new_disk()
    log = opened(disk, CONFIG)
    produce(log, 7, 0)
    produce(log, 8, 0)
    seal(log)
    produce(log, 8, 1)
    path = f"{DIRECTORY}/{file_name(2, SNAPSHOT_SUFFIX)}"
    disk.flip_bits(path, len(disk.read_bytes(path)) - 1)
    log.advance_start_offset(2)
    assert log.apply_retention(now_ms=9, high_watermark=3) == [0]
    log.flush()
    disk.kill_process()
    log = opened(disk, CONFIG, recovery_point=2, log_start_offset=2)
    assert log.producers.check(header(7, 0)) == Duplicate(0, 0, 1000)
    log.truncate_to(2)
    # Not the batch behind: it is cut off, and comes again.
    assert log.producers.check(header(8, 0)) == Duplicate(1, 1, 1000)
    assert log.producers.check(header(8, 1)) is None


def test_what_batches_below_an_offset_tell() -> None:
    table = ProducerStateTable()
    for at in range(7):
        table.record(header(7, at), at)
    table.record(header(8, 0, is_transactional=True), 7)
    table.record(header(8, 1, is_transactional=True), 8)
    table.record(header(9, 0, is_transactional=True), 9)
    until = table.until(8)
    assert {i: [b.last_offset for b in e.batches] for i, e in until.entries.items()} == {
        7: [2, 3, 4, 5, 6],
        8: [7],
    }
    assert until.ongoing == {7: 8}
    assert sorted(table.until(2).entries) == []


def test_a_snapshot_adds_whom_no_batch_tells_of_and_takes_no_window_away() -> None:
    table, snapshot = ProducerStateTable(), ProducerStateTable()
    for at in range(3):
        table.record(header(7, at), at)
    snapshot.record(header(7, 2), 2)
    snapshot.record(header(8, 5, is_transactional=True), 1)
    snapshot.entries[7].coordinator_epoch = 4
    table.complete(snapshot)
    assert len(table.entries[7].batches) == 3
    assert table.entries[7].coordinator_epoch == 4
    assert table.ongoing == {1: 8}
