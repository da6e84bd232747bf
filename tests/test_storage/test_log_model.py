"""The log against a list, through every operation, clean and unclean reopening, and power cuts.

Model: the batches in the log as (bytes, base offset, end offset, epoch), and the offset below which
they are durable. After a power cut the log may have lost batches from the end, but none below the
durable offset; the batches that it has are unchanged.
"""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvorum.runtime.memory_disk import MemoryDisk, PowerCut
from kvorum.storage.format.batch import build_batch, iter_headers
from kvorum.storage.log.log import Log, LogConfig
from kvorum.storage.log.retention import apply_retention, remove_deleted
from kvorum.storage.log.timestamp_lookup import find_by_timestamp

DIRECTORY = "data/t-0"
CONFIG = LogConfig(
    segment_bytes=700, index_interval_bytes=100, retention_ms=-1, file_delete_delay_ms=10
)


class LogMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1 << 32))
    def start(self, seed: int) -> None:
        self.disk = MemoryDisk(random.Random(seed))
        self.disk.make_dirs("data")
        self.disk.sync_dir(".")
        self.now_ms = 1_000_000
        self.batches: list[tuple[bytes, int, int, int]] = []
        self.start_offset = 0
        self.end_offset = 0
        self.epoch = 0
        self.config = replace(CONFIG, keeps_recovery_state=seed % 2 == 0)
        self.log = self.opened()

    def opened(self, *, recovery_point: int = 0, is_clean: bool = False) -> Log:
        return Log.open(
            self.disk,
            DIRECTORY,
            self.config,
            now_ms=self.now_ms,
            recovery_point=recovery_point,
            is_clean=is_clean,
            log_start_offset=self.start_offset,
        )

    def made(self, sizes: list[int]) -> bytearray:
        self.now_ms += 7
        parts = [
            build_batch([(b"k", bytes(size))] * (1 + size % 3), timestamp_ms=self.now_ms + size)
            for size in sizes
        ]
        return bytearray().join(parts)

    def remember(self, data: bytes) -> None:
        for at, header in iter_headers(data):
            batch = data[at : at + header.size_bytes]
            self.batches.append((batch, header.base_offset, header.end_offset, header.leader_epoch))
            self.end_offset = header.end_offset

    @rule(sizes=st.lists(st.integers(0, 190), min_size=1, max_size=6), new_epoch=st.booleans())
    def append_as_leader(self, sizes: list[int], new_epoch: bool) -> None:
        self.epoch += new_epoch
        data = self.made(sizes)
        done = self.log.append_as_leader(data, leader_epoch=self.epoch, now_ms=self.now_ms)
        assert (done.base_offset, done.size_bytes) == (self.end_offset, len(data))
        self.remember(bytes(data))
        assert done.last_offset + 1 == self.end_offset

    @rule(sizes=st.lists(st.integers(0, 190), min_size=1, max_size=6))
    def append_as_follower(self, sizes: list[int]) -> None:
        data = self.made(sizes)
        Log.open(
            MemoryDisk(random.Random(0)),
            "other",
            CONFIG,
            now_ms=0,
            log_start_offset=self.end_offset,
        ).append_as_leader(data, leader_epoch=self.epoch, now_ms=self.now_ms)
        self.log.append_as_follower(bytes(data), now_ms=self.now_ms)
        self.remember(bytes(data))

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.durable_end_offset == self.end_offset

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = self.start_offset + int(share * (self.end_offset - self.start_offset))
        durable = self.log.durable_end_offset
        self.log.truncate_to(offset)
        self.cut_model(offset)
        assert self.log.durable_end_offset == min(durable, self.end_offset)

    def cut_model(self, offset: int) -> None:
        while self.batches and self.batches[-1][2] > offset:
            self.end_offset = self.batches.pop()[1]
        self.start_offset = min(self.start_offset, self.end_offset)

    @rule()
    def roll(self) -> None:
        self.log.roll(now_ms=self.now_ms)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self.start_offset + int(share * (self.end_offset - self.start_offset))
        self.log.advance_start_offset(offset)
        apply_retention(self.log, now_ms=self.now_ms, high_watermark=self.end_offset)
        remove_deleted(self.log, self.now_ms)
        self.start_offset = max(self.start_offset, offset)
        self.batches = [batch for batch in self.batches if batch[2] > self.start_offset]

    @rule(jump=st.integers(0, 50))
    def start_elsewhere(self, jump: int) -> None:
        offset = self.end_offset + jump
        self.log.truncate_fully_and_start_at(offset)
        self.batches.clear()
        self.start_offset = self.end_offset = offset

    @rule()
    def close_and_open_clean(self) -> None:
        self.log.close()
        self.log = self.opened(is_clean=True)

    @rule()
    def open_again_without_closing(self) -> None:
        """A killed process: its writes are in the page cache."""
        self.log = self.opened(recovery_point=self.log.durable_end_offset)

    @rule()
    def power_cut(self) -> None:
        self.recover_from_crash(self.log.durable_end_offset)

    @precondition(lambda self: self.end_offset > 0)
    @rule(operations=st.integers(0, 12), sizes=st.lists(st.integers(0, 190), min_size=4))
    def power_cut_on_the_way(self, operations: int, sizes: list[int]) -> None:
        durable = self.log.durable_end_offset
        self.disk.cut_power_after(operations)
        data = self.made(sizes)
        try:
            self.log.append_as_leader(data, leader_epoch=self.epoch, now_ms=self.now_ms)
            self.log.flush()
            durable = self.log.durable_end_offset
            self.log.close()
        except PowerCut:
            durable = max(durable, self.log.durable_end_offset)
        self.remember(bytes(data))
        self.recover_from_crash(durable)

    def recover_from_crash(self, durable: int) -> None:
        self.disk.crash()
        self.log = self.opened(recovery_point=durable)
        assert durable <= self.log.end_offset <= self.end_offset
        start_offset = self.start_offset
        self.cut_model(self.log.end_offset)
        if self.end_offset < start_offset:
            # All remaining records are below the start offset: the log starts empty there.
            self.batches.clear()
            self.start_offset = self.end_offset = start_offset
        assert self.log.end_offset == self.end_offset

    @invariant()
    def log_equals_model(self) -> None:
        log = self.log
        assert (log.start_offset, log.end_offset) == (self.start_offset, self.end_offset)
        assert log.durable_end_offset <= log.end_offset
        expected = [batch for batch in self.batches if batch[2] > self.start_offset]
        stored: list[bytes] = []
        offset = self.start_offset
        while offset < self.end_offset:
            found = log.read(offset, bytes_max=450, end_offset=self.end_offset)
            data = found.read()
            assert len(data) == found.length > 0
            for at, header in iter_headers(data):
                stored.append(data[at : at + header.size_bytes])
                offset = header.end_offset
        assert stored == [batch[0] for batch in expected]

    @invariant()
    def epochs_equal_model(self) -> None:
        expected: list[tuple[int, int]] = []
        for _, base_offset, _, epoch in self.batches:
            if not expected or expected[-1][0] != epoch:
                expected.append((epoch, max(base_offset, self.start_offset)))
        assert self.log.epochs.entries[: len(expected)] == expected

    @invariant()
    def timestamp_lookups_equal_a_linear_scan(self) -> None:
        stored = []
        for data, _, end, _ in self.batches:
            for _, header in iter_headers(data):
                for offset in range(max(header.base_offset, self.start_offset), end):
                    stored.append((header.max_timestamp_ms, offset, header.leader_epoch))
        for timestamp_ms in {1, self.now_ms - 20, *(s[0] for s in stored[:: 1 + len(stored) // 3])}:
            expected = next((item for item in stored if item[0] >= timestamp_ms), None)
            found = find_by_timestamp(self.log, timestamp_ms, end_offset=self.end_offset)
            assert found == expected


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
