"""Producer state of a log, through retention, compaction, truncation, kills and power cuts, against
a list of all records that were ever appended and not truncated."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kvorum.runtime.memory_disk import MemoryDisk
from kvorum.storage.files.model import CompactionConfig
from kvorum.storage.format.batch import build_batch
from kvorum.storage.format.markers import build_marker
from kvorum.storage.log.log import Log, LogConfig
from kvorum.storage.log.retention import apply_retention, remove_deleted
from tests.test_storage.cleaning_steps import clean
from tests.test_storage.small_logs import DIRECTORY

TRANSACTIONAL = 3
"""Producers from this id on write in transactions."""
FOREVER = 1 << 60


class Written(NamedTuple):
    """sequence: of the last record; None for a marker."""

    last_offset: int
    producer_id: int
    sequence: int | None


class Producers(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 1 << 32),
        segment_bytes=st.sampled_from((400, 900, 2_000)),
        is_compacted=st.booleans(),
    )
    def begin(self, seed: int, segment_bytes: int, is_compacted: bool) -> None:
        self.disk = MemoryDisk(random.Random(seed))
        self.disk.make_dirs("data")
        self.disk.sync_dir(".")
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=200,
            retention_ms=-1,
            keeps_recovery_state=True,
            refuses_missing_segments=True,
            producer_id_expiration_ms=FOREVER,
            compaction=CompactionConfig(min_cleanable_dirty_ratio=0.0) if is_compacted else None,
        )
        self.log = Log.open(self.disk, DIRECTORY, self.config, now_ms=0)
        self.written: list[Written] = []
        self.recovery_point = self.log_start = self.high_watermark = 0
        self.cleaned_to: int | None = None

    # Invariants.

    def sequences(self) -> dict[int, int]:
        return {w.producer_id: w.sequence for w in self.written if w.sequence is not None}

    def opened(self) -> set[int]:
        found: set[int] = set()
        for _, producer_id, sequence in self.written:
            if sequence is None:
                found.discard(producer_id)
            elif producer_id >= TRANSACTIONAL:
                found.add(producer_id)
        return found

    @invariant()
    def the_log_knows_them(self) -> None:
        producers = self.log.producers
        last = {i: e.batches[-1].last_sequence for i, e in producers.entries.items() if e.batches}
        assert last == self.sequences()
        ongoing, opened = set(producers.ongoing.values()), self.opened()
        assert ongoing <= opened
        # An open transaction whose records are all deleted holds no reader back, and its marker
        # ends nothing. After retention without a snapshot, the log does not know it.
        start_offset = self.log.start_offset
        assert {w.producer_id for w in self.written if w.last_offset >= start_offset} & (
            opened - ongoing
        ) == set()

    # Operations on the log.

    def append(self, batch: bytearray, producer_id: int, sequence: int | None, is_behind: bool):
        at = self.log.append_as_leader(batch, leader_epoch=0, now_ms=1)
        self.written.append(Written(at.last_offset, producer_id, sequence))
        if not is_behind:
            self.high_watermark = self.log.end_offset

    @rule(
        producer_id=st.integers(0, TRANSACTIONAL + 2),
        keys=st.lists(st.integers(0, 5), min_size=1, max_size=3),
        size=st.integers(1, 60),
        is_behind=st.booleans(),
    )
    def produce(self, producer_id: int, keys: list[int], size: int, is_behind: bool) -> None:
        sequence = self.sequences().get(producer_id, -1) + 1
        batch = build_batch(
            [(b"k%d" % key, b"v" * size) for key in keys],
            timestamp_ms=1,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=producer_id >= TRANSACTIONAL,
        )
        self.append(batch, producer_id, sequence + len(keys) - 1, is_behind)

    @precondition(lambda self: self.opened())
    @rule(data=st.data(), is_commit=st.booleans(), is_behind=st.booleans())
    def end_transaction(self, data: st.DataObject, is_commit: bool, is_behind: bool) -> None:
        producer_id = data.draw(st.sampled_from(sorted(self.opened())))
        marker = build_marker(
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            is_commit=is_commit,
            timestamp_ms=1,
        )
        self.append(marker, producer_id, None, is_behind)

    @rule()
    def roll(self) -> None:
        self.log.roll(now_ms=1)

    @rule(is_checkpointed=st.booleans())
    def flush(self, is_checkpointed: bool) -> None:
        self.log.flush()
        if is_checkpointed:
            self.recovery_point = self.log.durable_end_offset

    @rule()
    def lose_the_checkpoint(self) -> None:
        self.recovery_point = 0

    @rule(retention_bytes=st.sampled_from((0, 300, 1_200)))
    def retire(self, retention_bytes: int) -> None:
        self.log.config = replace(self.config, retention_bytes=retention_bytes)
        apply_retention(self.log, now_ms=1, high_watermark=self.high_watermark)
        self.log.config = self.config
        remove_deleted(self.log, FOREVER)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        low = self.log.start_offset
        to = data.draw(st.integers(low, max(low, self.high_watermark)))
        self.log.advance_start_offset(to)
        self.log_start = self.log.start_offset

    @precondition(lambda self: self.config.compaction is not None)
    @rule()
    def compact(self) -> None:
        self.log.flush()
        job = clean(
            self.log, now_ms=1, checkpoint=self.cleaned_to, high_watermark=self.high_watermark
        )
        if job is not None:
            self.cleaned_to = job.end_offset

    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        low = max(self.high_watermark, self.log.start_offset)
        if low < self.log.end_offset:
            to = self.log.end_if_cut(data.draw(st.integers(low, self.log.end_offset)))
            self.recovery_point = min(self.recovery_point, to)
            self.log.truncate_to(to)
            self.look_what_is_left()

    @rule()
    def kill(self) -> None:
        self.disk.kill_process()
        end_offset = self.log.end_offset
        self.open(is_clean=False)
        assert self.log.end_offset == end_offset

    @rule()
    def lose_power(self) -> None:
        self.disk.crash()
        self.open(is_clean=False)

    @rule()
    def close(self) -> None:
        self.log.close()
        self.recovery_point, self.log_start = self.log.end_offset, self.log.start_offset
        self.open(is_clean=True)

    def open(self, *, is_clean: bool) -> None:
        self.log = Log.open(
            self.disk,
            DIRECTORY,
            self.config,
            now_ms=1,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start,
            is_clean=is_clean,
        )
        self.look_what_is_left()
        self.recovery_point = self.log.end_offset

    def look_what_is_left(self) -> None:
        end_offset = self.log.end_offset
        if not self.log.segment_count:
            self.written = []
        self.written = [w for w in self.written if w.last_offset < end_offset]
        self.high_watermark = max(min(self.high_watermark, end_offset), self.log.start_offset)
        if self.cleaned_to is not None:
            self.cleaned_to = min(self.cleaned_to, end_offset)


def test_a_log_knows_every_producer_and_open_transaction() -> None:
    run_state_machine_as_test(
        Producers, settings=settings(max_examples=120, stateful_step_count=50, deadline=None)
    )
