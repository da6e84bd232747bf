"""Helpers for tests of the cleaner: write transactions, run a clean in one thread, read a log as a
dictionary."""

from __future__ import annotations

from kvorum.storage.cleaning.cleaner import CleanerConfig, CleaningJob
from kvorum.storage.format.batch import Record, build_batch, iter_headers, iter_records
from kvorum.storage.format.markers import build_marker
from kvorum.storage.log import log_cleaning
from kvorum.storage.log.log import Log


def clean(
    log: Log,
    *,
    now_ms: int,
    checkpoint: int | None = None,
    high_watermark: int | None = None,
    config: CleanerConfig | None = None,
) -> CleaningJob | None:
    """One whole clean, whatever the dirty ratio; None when nothing may be cleaned."""
    plan = log_cleaning.plan(
        log,
        checkpoint=checkpoint,
        high_watermark=log.end_offset if high_watermark is None else high_watermark,
        now_ms=now_ms,
    )
    if plan is None:
        return None
    job = log_cleaning.begin(log, plan, config or CleanerConfig(), now_ms=now_ms)
    while not job.is_done:
        job.advance()
        if job.pending is not None:
            job.swap()
            log_cleaning.apply_swap(log, now_ms)
    job.discard()
    log_cleaning.end(log, job)
    return job


def records(log: Log) -> list[Record]:
    """All records but those of markers, in order."""
    found: list[Record] = []
    for data, at, header in batches(log):
        if not header.is_control:
            found += iter_records(data, at, header)
    return found


def batches(log: Log):
    """(bytes, position, header) of every batch, as a reader from the start gets them."""
    offset = log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, bytes_max=1 << 20, end_offset=log.end_offset).read()
        if not data:
            return
        for at, header in iter_headers(data):
            yield data, at, header
            offset = header.end_offset


def as_dictionary(found: list[Record]) -> dict[bytes, bytes]:
    table: dict[bytes, bytes] = {}
    for record in found:
        assert record.key is not None
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table


class Writer:
    """Transactional producers of one log; sequences are kept."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.sequences: dict[int, int] = {}

    @property
    def epoch(self) -> int:
        return max(self.log.epochs.latest_epoch, 0)

    def put(self, producer_id: int, *keys: bytes, value: bytes = b"v") -> int:
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(keys)
        batch = build_batch(
            [(key, value) for key in keys],
            timestamp_ms=1000,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        return self.log.append_as_leader(batch, leader_epoch=self.epoch, now_ms=1000).base_offset

    def plain(self, key: bytes) -> int:
        batch = build_batch([(key, b"plain")], timestamp_ms=1000)
        return self.log.append_as_leader(batch, leader_epoch=self.epoch, now_ms=1000).base_offset

    def end(self, producer_id: int, *, is_commit: bool) -> int:
        marker = build_marker(
            is_commit=is_commit,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=3,
            timestamp_ms=1000,
        )
        return self.log.append_as_leader(marker, leader_epoch=self.epoch, now_ms=1000).base_offset
