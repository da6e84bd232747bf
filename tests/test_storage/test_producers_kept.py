"""Producers whose batches retention or compaction took are known after every start, from snapshots.

Each test tells in its first lines by which steps a repeated batch was once taken for a new one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvorum.storage.cleaning.cleaner import CleanerConfig, CleaningJob
from kvorum.storage.files.file_names import LOG_SUFFIX, SNAPSHOT_SUFFIX, file_name, offsets_of
from kvorum.storage.files.model import CompactionConfig
from kvorum.storage.files.producer_state import Duplicate, ProducerStateTable, write_snapshot
from kvorum.storage.files.segment import Segment
from kvorum.storage.format.batch import build_batch, read_header
from kvorum.storage.format.markers import build_marker
from kvorum.storage.log import log_cleaning
from kvorum.storage.log.log import Log, LogConfig
from kvorum.storage.log.retention import apply_retention
from tests.test_storage.cleaning_steps import batches, clean
from tests.test_storage.compacted import opened, put, seal
from tests.test_storage.small_logs import DIRECTORY, new_disk

CONFIG = LogConfig(
    retention_ms=-1,
    keeps_recovery_state=True,
    refuses_missing_segments=True,
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
    return offsets_of(log.disk.list_dir(DIRECTORY), SNAPSHOT_SUFFIX)


@pytest.mark.parametrize("recovery_point", [0, 1, 2, 3, 4])
def test_a_snapshot_above_the_recovery_point_tells_what_no_batch_does(recovery_point: int) -> None:
    # 1. Retention removes all batches of producer 7. 2. A clean removes the producer snapshots
    # below its end. 3. The process is killed before the recovery-point checkpoint is written, or
    # the checkpoint is damaged.
    disk = new_disk()
    log = opened(disk, CONFIG)
    produce(log, 7, 0)
    seal(log)
    for sequence in range(2):
        produce(log, 8, sequence)
        seal(log)
    log.advance_start_offset(1)
    assert apply_retention(log, now_ms=1, high_watermark=3) == [0]
    produce(log, 8, 2)
    log.flush()
    assert clean(log, now_ms=9)
    assert snapshots(log) == [3]
    disk.kill_process()
    log = opened(disk, CONFIG, recovery_point=recovery_point, log_start_offset=1)
    assert log.producers.check(header(7, 0)) == Duplicate(0, 0, 1000)
    assert log.producers.check(header(8, 2)) == Duplicate(3, 3, 1000)


@pytest.mark.parametrize("is_expired", [False, True])
def test_a_clean_keeps_the_last_batch_that_is_sure_to_stay(is_expired: bool) -> None:
    # 1. A clean removes the last batch of producer 7 in its range, because a later one lies behind
    # the range. 2. A new replica has copied the log up to that later batch. 3. It leads: the
    # removed batch was committed, but this leader takes its repeat for a new one.
    log = opened(new_disk(), CONFIG)
    produce(log, 7, 0)
    put(log, (b"k", b"newer"))
    seal(log)
    produce(log, 7, 1, b"other")
    if is_expired:
        assert log.producers.expire(
            CONFIG.producer_id_expiration_ms + 1000,
            expiration_ms=log.config.producer_id_expiration_ms,
        ) == [7]
    assert clean(log, now_ms=9, high_watermark=2)
    found = [header.base_offset for _, _, header in batches(log)]
    assert found == ([1, 2] if is_expired else [0, 1, 2])


@pytest.mark.parametrize("is_damaged", [False, True])
def test_retention_reads_nothing_of_what_it_takes(
    monkeypatch: pytest.MonkeyPatch, is_damaged: bool
) -> None:
    # Bug: retention read all headers of the segments, on the loop, and damage in them took the
    # replica offline.
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
    assert apply_retention(log, now_ms=9, high_watermark=300) == [0]
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
    assert apply_retention(log, now_ms=9, high_watermark=3) == [0]
    log.flush()
    disk.kill_process()
    log = opened(disk, CONFIG, recovery_point=2, log_start_offset=2)
    assert log.producers.check(header(7, 0)) == Duplicate(0, 0, 1000)
    log.truncate_to(2)
    # Producer 8's second batch was truncated, so its repeat is a new batch.
    assert log.producers.check(header(8, 0)) == Duplicate(1, 1, 1000)
    assert log.producers.check(header(8, 1)) is None


def test_a_clean_whose_snapshot_is_damaged_forgets_no_open_transaction() -> None:
    # The snapshot must not come from the current producer state, which lacks a transaction that was
    # open there and has ended since. After a kill its marker would end nothing, and read-committed
    # consumers would get aborted records.
    disk = new_disk()
    log = opened(disk, CONFIG)
    for at in range(2):
        put(
            log,
            (b"k%d" % at, b"aborted"),
            producer_id=8,
            producer_epoch=0,
            base_sequence=at,
            is_transactional=True,
        )
    seal(log)
    end = build_marker(
        producer_id=8, producer_epoch=0, is_commit=False, coordinator_epoch=1, timestamp_ms=2000
    )
    log.append_as_leader(end, leader_epoch=0, now_ms=0)
    put(log, (b"z", b"v"))
    path = f"{DIRECTORY}/{file_name(2, SNAPSHOT_SUFFIX)}"
    disk.flip_bits(path, len(disk.read_bytes(path)) - 1)
    plan = log_cleaning.plan(log, checkpoint=None, high_watermark=4, now_ms=9)
    assert plan is not None
    log_cleaning.begin(log, plan, CleanerConfig(), now_ms=9)
    disk.kill_process()
    log = opened(disk, CONFIG, recovery_point=2)
    (aborted,) = [entry for segment in log.segments.items for entry in segment.aborted]
    assert (aborted.first_offset, aborted.last_offset) == (0, 2)


def test_a_snapshot_knows_a_later_batch_than_a_clean_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # 1. A clean removes an acknowledged batch, because its producer has a later one behind (Apache
    # Kafka's cleaner does this, ours did). 2. A power cut loses the later one. 3. The start knows
    # only an earlier batch, and writes that over the snapshot.
    begin = CleaningJob.__init__

    def begin_as_kafka(job: CleaningJob, *args: Any, **options: Any) -> None:
        begin(job, *args, **{**options, "producers": log.producers.ends()})

    monkeypatch.setattr(CleaningJob, "__init__", begin_as_kafka)
    for seed in range(40):
        disk = new_disk(seed)
        log = opened(disk, CONFIG)
        produce(log, 7, 0, b"only once")
        produce(log, 7, 1)
        produce(log, 9, 0)
        seal(log)
        produce(log, 7, 2, b"z")
        assert clean(log, now_ms=9, high_watermark=3)
        disk.crash()
        log = opened(disk, CONFIG, recovery_point=0)
        if log.end_offset == 3:
            break
    assert log.producers.check(header(7, 1)) == Duplicate(1, 1, 1000)
    assert log.producers.check(header(7, 0)) == Duplicate(0, 0, 1000)
    assert log.producers.check(header(7, 2)) is None


def test_a_cut_takes_the_snapshots_above_it_for_good() -> None:
    # 1. An orderly stop leaves a producer snapshot. 2. The log is truncated below it, and the new
    # leader's records follow. 3. The power fails: the snapshot is back, and the next truncation
    # believes it.
    for seed in range(60):
        disk = new_disk(seed)
        log = opened(disk, CONFIG)
        for sequence in range(3):
            produce(log, 9, sequence)
        produce(log, 7, 0)
        log.close()
        log = opened(disk, CONFIG, is_clean=True, recovery_point=4)
        log.truncate_to(3)
        for sequence in range(5):
            produce(log, 8, sequence)
        disk.crash()
        assert snapshots(log) == []
        log = opened(disk, CONFIG, recovery_point=3)
        log.truncate_to(log.end_offset - 1)
        assert 7 not in log.producers.entries, seed


def test_a_walk_trusts_no_snapshot_within_a_segment() -> None:
    disk = new_disk()
    log = opened(disk, CONFIG)
    for sequence in range(3):
        produce(log, 9, sequence)
    log.flush()
    stray = ProducerStateTable()
    stray.record(header(7, 0), 1)
    write_snapshot(disk, f"{DIRECTORY}/{file_name(2, SNAPSHOT_SUFFIX)}", stray)
    disk.kill_process()
    log = opened(disk, CONFIG, recovery_point=0)
    assert snapshots(log) == []


def test_a_cut_below_a_later_snapshot_forgets_nobody() -> None:
    # Bug: retention found a later snapshot, and left none at the end of the segments that it
    # removed.
    disk = new_disk()
    log = opened(disk, CONFIG)
    produce(log, 7, 0)
    disk.kill_process()
    log = opened(disk, CONFIG)
    log.roll(now_ms=0)
    produce(log, 8, 0)
    log.flush()
    disk.remove(f"{DIRECTORY}/{file_name(1, SNAPSHOT_SUFFIX)}")
    seal(log)
    assert snapshots(log) == [2]
    log.advance_start_offset(1)
    assert apply_retention(log, now_ms=9, high_watermark=1) == [0]
    log.truncate_to(1)
    assert log.producers.check(header(7, 0)) == Duplicate(0, 0, 1000)


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
