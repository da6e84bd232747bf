"""Compaction over several cleans: what one leaves behind, and what the next or a start makes of it.

Each test tells in its first lines by which steps a log once lost or revived something.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaos.sim.disk import PowerCut
from storage.cleaner import CleanerConfig, CleaningJob
from storage.log import Log, LogConfig
from storage.model import CompactionConfig
from tests.test_storage.cleaning_steps import Writer, as_dictionary, batches, clean, records
from tests.test_storage.compacted import (
    COMPACTION,
    kept,
    new_disk,
    opened,
    put,
    seal,
)

ONE_SEGMENT = LogConfig(
    segment_bytes=1 << 20, index_interval_bytes=1, retention_ms=-1, compaction=COMPACTION
)
FORGETFUL = replace(ONE_SEGMENT, compaction=CompactionConfig(delete_retention_ms=10))
"""Tombstones and markers go soon."""


def begun(log: Log) -> CleaningJob:
    """A clean that is about to swap its first segment."""
    plan = log.plan_cleaning(checkpoint=None, high_watermark=log.end_offset, now_ms=0)
    assert plan is not None
    job = log.begin_cleaning(plan, CleanerConfig(), now_ms=0)
    while job.pending is None:
        job.advance()
    return job


# --- transactions ---------------------------------------------------------------------------------


def test_a_tombstone_committed_after_an_aborted_transaction_hides_the_value_for_good() -> None:
    # 1. Producer 7 aborts, and a clean goes past the marker, 2. it commits a tombstone. The next
    # clean skipped the marker, took the tombstone for aborted, and left both; 3. the tombstone
    # expired, and the old value was back.
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
    # 1. Producer 7 aborts, and a clean goes past the marker, 2. it aborts again. Were the first one
    # still its open transaction, the second one's records would count as committed.
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
    # 1. The last record of an aborted transaction goes, so the new segment has no .txnindex, 2. the
    # process ends when the old .log is put aside and the old .txnindex is not, and the start leaves
    # that beside the new .log, 3. once more, in the clean in which the marker goes. Readers were
    # told of the transaction, and what its producer committed later was aborted to them.
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
        told = [entry.last_offset for entry in again.aborted_in(found, end_offset=end_offset)]
        (marker,) = [header for _, _, header in batches(again) if header.base_offset == aborted]
        # The clean gives a marker that ends nothing a horizon.
        assert told == ([] if marker.has_delete_horizon else [aborted]), calls
        assert [record.key for record in records(again)][-3:] == [b"a", b"b", b"c"]
        calls += 1
    assert calls > 15


def test_a_swap_that_fails_once_it_was_agreed_on_keeps_what_a_start_needs_to_finish_it() -> None:
    # 1. There is a .log.swap, and a disk call fails, 2. the job is given up. It removed the indexes
    # that the swap was still to bring; the start took the new segment's gap for a torn tail, and
    # dropped the segments behind it.
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
    log.end_cleaning(job)
    log.abandon()
    again = opened(disk)
    assert again.torn_tail is None
    assert kept(again) == [(0, b"b", b"1"), (2, b"a", b"2"), (3, b"c", b"1")]
