"""Compaction over several cleans: the state that one clean leaves, and how the next clean or a
start uses it.

Each test begins with the steps by which a log once lost or revived a record.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kvorum.runtime.disk import Disk, OsDisk
from kvorum.runtime.memory_disk import MemoryDisk, PowerCut
from kvorum.storage.cleaning.cleaner import CleanerConfig, CleaningJob
from kvorum.storage.files.file_names import LOG_SUFFIX, SNAPSHOT_SUFFIX, file_name, offsets_of
from kvorum.storage.files.model import CompactionConfig
from kvorum.storage.format.batch import build_batch, read_header
from kvorum.storage.log import log_cleaning
from kvorum.storage.log.log import Log, LogConfig
from kvorum.storage.log.retention import apply_retention
from tests.test_storage.cleaning_steps import Writer, as_dictionary, batches, clean, records
from tests.test_storage.compacted import COMPACTION, DAY_MS, kept, opened, put, seal
from tests.test_storage.small_logs import DIRECTORY, new_disk

ONE_SEGMENT = LogConfig(
    segment_bytes=1 << 20, index_interval_bytes=1, retention_ms=-1, compaction=COMPACTION
)
FORGETFUL = replace(ONE_SEGMENT, compaction=CompactionConfig(delete_retention_ms=10))
"""Tombstones and markers go soon."""


def begun(log: Log) -> CleaningJob:
    """A clean that is about to swap its first segment."""
    plan = log_cleaning.plan(log, checkpoint=None, high_watermark=log.end_offset, now_ms=0)
    assert plan is not None
    job = log_cleaning.begin(log, plan, CleanerConfig(), now_ms=0)
    while job.pending is None:
        job.advance()
    return job


# --- transactions ---------------------------------------------------------------------------------


def test_a_tombstone_committed_after_an_aborted_transaction_hides_the_value_for_good() -> None:
    # 1. Producer 7 aborts, and a clean passes the marker. 2. The producer commits a tombstone. The
    # next clean skips the marker, takes the tombstone for aborted, and keeps both it and the old
    # value. 3. The tombstone expires, and the old value is back.
    log = opened(new_disk(), ONE_SEGMENT)
    writer = Writer(log)
    writer.plain(b"k")
    writer.put(7, b"x")
    writer.end(7, is_commit=False)
    seal(log)
    job = clean(log, now_ms=0)
    assert job is not None and job.end_offset == 3
    tombstone = writer.put(7, b"k", value=None)
    writer.end(7, is_commit=True)
    seal(log)
    job = clean(log, now_ms=0, checkpoint=3)
    assert job is not None and job.stats.keys == 1
    assert [(r.offset, r.key, r.value) for r in records(log)] == [(tombstone, b"k", None)]


def test_a_second_aborted_transaction_of_a_producer_hides_no_committed_value() -> None:
    # 1. Producer 7 aborts, and a clean passes the marker. 2. The producer aborts again. If the next
    # clean took the first transaction for the open one, the records of the second would count as
    # committed.
    log = opened(new_disk(), ONE_SEGMENT)
    writer = Writer(log)
    writer.put(7, b"x")
    writer.end(7, is_commit=False)
    seal(log)
    clean(log, now_ms=0)
    writer.plain(b"k")
    writer.put(7, b"k")
    writer.end(7, is_commit=False)
    seal(log)
    clean(log, now_ms=0, checkpoint=2)
    assert as_dictionary(records(log)) == {b"k": b"plain"}


# --- swaps that break off -------------------------------------------------------------------------


def test_a_process_that_dies_at_any_call_of_a_clean_leaves_no_index_of_the_old_segment() -> None:
    # 1. A clean removes the last record of an aborted transaction, so the new segment has no
    # .txnindex. 2. The process ends when the old .log is put aside but the old .txnindex is not,
    # and the start leaves that file beside the new .log. 3. The same happens in the clean that
    # removes the marker. Then readers were told of the aborted transaction, and took later
    # committed records of its producer for aborted.
    calls, is_done = 0, False
    while not is_done:
        disk = new_disk()
        log = opened(disk, FORGETFUL)
        writer = Writer(log)
        writer.put(7, b"x")
        aborted = writer.end(7, is_commit=False)
        writer.put(7, b"a", b"b")
        writer.end(7, is_commit=True)
        seal(log)
        clean(log, now_ms=10)
        writer.plain(b"c")
        seal(log)
        end_offset = log.end_offset
        disk.cut_power_after(calls)
        try:
            clean(log, now_ms=20)
        except PowerCut:
            disk.kill_process()
        else:
            is_done = True
            log.abandon()
        disk.calm()
        again = opened(disk, FORGETFUL, recovery_point=end_offset)
        found = again.read(0, bytes_max=1 << 20, end_offset=end_offset)
        told = [
            entry.last_offset for entry in again.segments.aborted_in(found, end_offset=end_offset)
        ]
        (marker,) = [header for _, _, header in batches(again) if header.base_offset == aborted]
        # The clean gives a delete horizon to a marker that ends no transaction.
        assert told == ([] if marker.has_delete_horizon else [aborted]), calls
        assert [record.key for record in records(again)][-3:] == [b"a", b"b", b"c"]
        calls += 1
    assert calls > 15


def test_a_swap_that_fails_once_it_was_agreed_on_keeps_what_a_start_needs_to_finish_it() -> None:
    # 1. A .log.swap exists, and a disk call fails. 2. The clean is given up, and removes the
    # indexes of the swap. The next start took the gap at the end of the new segment for a torn
    # tail, and dropped the segments behind it.
    disk = new_disk()
    log = opened(disk, replace(ONE_SEGMENT, segment_bytes=170))
    for pairs in ([(b"b", b"1")], [(b"a", b"1")]):
        put(log, *pairs)
    seal(log)
    put(log, (b"a", b"2"))
    seal(log)
    put(log, (b"c", b"1"))
    log.flush()
    job = begun(log)
    disk.fail("rename", path_part=".index.cleaned")
    with pytest.raises(OSError):
        job.swap()
    job.discard()
    log_cleaning.end(log, job)
    log.abandon()
    again = opened(disk)
    assert again.torn_tail is None
    assert kept(again) == [(0, b"b", b"1"), (2, b"a", b"2"), (3, b"c", b"1")]


# --- producers ------------------------------------------------------------------------------------


LARGER = replace(FORGETFUL, segment_bytes=1500)


def with_snapshot_inside_a_transaction(disk: Disk) -> tuple[Log, int]:
    """A log whose second segment begins inside of a transaction that is aborted in it; with the
    base of that segment."""
    log = opened(disk, LARGER)
    writer = Writer(log)
    writer.put(3, b"x")
    for at in range(18):
        writer.plain(b"p%d" % at)
    seal(log)
    base_offset = log.end_offset
    assert log.segments.bases[-1] == base_offset
    writer.end(3, is_commit=False)
    for at in range(8):
        writer.plain(b"q%d" % at)
    seal(log)
    return log, base_offset


def cleaned_twice(disk: Disk, *, starts_inside: bool = False) -> tuple[Log, int]:
    """The same log when the next clean will drop the marker: the producer has been forgotten.

    starts_inside: the log begins with the second segment, since the first has been deleted.
    """
    log, base_offset = with_snapshot_inside_a_transaction(disk)
    if starts_inside:
        log.advance_start_offset(base_offset)
        assert apply_retention(log, now_ms=0, high_watermark=log.end_offset) == [0]
    log.producers.expire(DAY_MS + 1000, expiration_ms=log.config.producer_id_expiration_ms)
    for now_ms in (1000, 1005):
        clean(log, now_ms=now_ms)
        put(log, (b"r", b"%d" % now_ms))
        seal(log)
    return log, base_offset


@pytest.mark.parametrize("starts_inside", [False, True])
def test_no_snapshot_knows_of_a_transaction_whose_marker_was_compacted_away(
    starts_inside: bool,
) -> None:
    # 1. A segment's producer snapshot has an open transaction. 2. Compaction removes the records of
    # the transaction, and its marker. 3. An unclean start replays from that snapshot, because the
    # recovery point lags behind the cleaner. The transaction stayed open for ever, and the last
    # stable offset stayed at its beginning.
    calls, is_done = 0, False
    while not is_done:
        disk = new_disk(calls)
        log, base_offset = cleaned_twice(disk, starts_inside=starts_inside)
        end_offset = log.end_offset
        assert base_offset in list(log.segments.bases)
        disk.cut_power_after(calls)
        try:
            clean(log, now_ms=2000)
        except PowerCut:
            disk.crash()
        else:
            is_done = True
            disk.calm()
            assert not any(header.is_control for _, _, header in batches(log))
            log.abandon()
        again = opened(
            disk,
            FORGETFUL,
            recovery_point=base_offset,
            log_start_offset=base_offset if starts_inside else 0,
        )
        assert again.last_stable_offset(end_offset) == end_offset, calls
        calls += 1
    assert calls > 30


def test_a_snapshot_that_cannot_be_removed_keeps_its_segment_from_being_swapped() -> None:
    # If the segment were swapped first, a process that ends in between would leave the stale
    # snapshot.
    disk = new_disk()
    log, base_offset = with_snapshot_inside_a_transaction(disk)
    end_offset = log.end_offset
    for now_ms in (1000, 1005, 2000):
        log.producers.expire(DAY_MS + 1000, expiration_ms=log.config.producer_id_expiration_ms)
        disk.fail("remove", path_part=file_name(base_offset, SNAPSHOT_SUFFIX))
        with pytest.raises(OSError):
            clean(log, now_ms=now_ms)
        log.abandon()
        log = opened(disk, LARGER, recovery_point=end_offset)
    log.abandon()
    log = opened(disk, LARGER, recovery_point=base_offset)
    assert log.last_stable_offset(end_offset) == end_offset


def test_a_cut_into_the_cleaned_part_opens_no_transaction_again() -> None:
    log, base_offset = cleaned_twice(new_disk())
    clean(log, now_ms=2000)
    log.truncate_to(log.end_if_cut(base_offset + 4))
    assert base_offset < log.end_offset
    assert log.last_stable_offset(log.end_offset) == log.end_offset


def test_the_snapshot_where_a_clean_ends_stays() -> None:
    # The records above it have not changed; without this snapshot each start would replay the whole
    # log.
    disk = new_disk()
    log, _ = cleaned_twice(disk)
    clean(log, now_ms=2000)
    assert offsets_of(disk.list_dir(DIRECTORY), SNAPSHOT_SUFFIX) == [log.segments.bases[-1]]


# --- cuts -----------------------------------------------------------------------------------------


def test_where_a_cut_will_end_is_told_of_the_segments_that_it_cuts() -> None:
    # 1. A swapped segment is on disk, but not in memory yet. 2. A follower asks where a truncation
    # would end, lowers its recovery point to that offset, and truncates. The truncation worked on
    # the new segment, which has a gap there: the recovery point stayed above the end of the log.
    disk = new_disk()
    log = opened(disk)
    for key in (b"a", b"a", b"a", b"a", b"b", b"b"):
        put(log, (key, b"v"))
        seal(log)
    job = begun(log)
    job.swap()
    told = log.end_if_cut(5)
    log.truncate_to(told)
    log_cleaning.end(log, job)
    assert (told, log.end_offset, kept(log)) == (4, 4, [(3, b"a", b"v")])


# --- age ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_real", [False, True])
def test_a_segment_without_timestamps_is_no_younger_for_being_cleaned(
    tmp_path: Path, is_real: bool
) -> None:
    # The age of such a segment is that of its file, and each clean makes a new file: so it was
    # never older than retention.ms.
    disk: Disk = OsDisk() if is_real else MemoryDisk(new_disk().rng)
    disk.make_dirs(str(tmp_path))
    config = replace(ONE_SEGMENT, retention_ms=DAY_MS)
    log = Log.open(disk, str(tmp_path / "t-0"), config, now_ms=0)
    for at in range(3):
        put(log, (b"a", b"%d" % at), timestamp_ms=-1)
        seal(log)
    for base_offset, modified_ms in ((0, 1000), (1, 9000), (2, 5000)):
        disk.set_modified_ms(f"{log.directory}/{file_name(base_offset, LOG_SUFFIX)}", modified_ms)
    clean(log, now_ms=DAY_MS)
    assert log.segments.bases == [0, 3]
    assert apply_retention(log, now_ms=9000 + DAY_MS, high_watermark=3) == []
    assert apply_retention(log, now_ms=9001 + DAY_MS, high_watermark=3) == [0]


@pytest.mark.parametrize("harm", ["killed before the flush", "damaged"])
def test_a_producer_is_known_by_batches_that_a_clean_took(harm: str) -> None:
    # 1. No producer snapshot is left where the active segment begins. 2. A clean removes older
    # batches of a producer, because its last batch lies behind them. 3. That batch is truncated:
    # repeats of the older ones were taken for new batches.
    config = replace(ONE_SEGMENT, keeps_recovery_state=True)
    disk = new_disk()
    log = opened(disk, config)

    def produce(sequence: int, key: bytes) -> None:
        put(log, (key, b"v"), producer_id=7, producer_epoch=0, base_sequence=sequence)

    produce(0, b"a")
    produce(1, b"a")
    put(log, (b"a", b"later"))
    log.flush()
    log.roll(now_ms=0)
    if harm == "damaged":
        log.flush()
        path = f"{DIRECTORY}/{file_name(3, SNAPSHOT_SUFFIX)}"
        disk.flip_bits(path, len(disk.read_bytes(path)) - 1)
    else:
        disk.kill_process()
        log = opened(disk, config, recovery_point=3)
    log.flush()
    put(log, (b"z", b"z"))
    produce(2, b"b")
    log.flush()
    assert clean(log, now_ms=0, high_watermark=4)
    log.truncate_to(4)
    repeated = build_batch(
        [(b"a", b"v")], timestamp_ms=1, producer_id=7, producer_epoch=0, base_sequence=1
    )
    assert log.producers.check(read_header(repeated, 0)) is not None
