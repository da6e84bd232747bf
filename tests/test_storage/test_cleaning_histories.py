"""Compaction over several cleans: what one leaves behind, and what the next or a start makes of it.

Each test tells in its first lines by which steps a log once lost or revived something.
"""

from __future__ import annotations

from dataclasses import replace

from storage.cleaner import CleanerConfig, CleaningJob
from storage.log import Log, LogConfig
from storage.model import CompactionConfig
from tests.test_storage.cleaning_steps import Writer, as_dictionary, clean, records
from tests.test_storage.compacted import (
    COMPACTION,
    new_disk,
    opened,
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
