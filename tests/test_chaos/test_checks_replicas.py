"""Divergent replicas on the disks of stopped brokers, in logs that Kvorum's log engine wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kvorum.chaos.checks.replicas import divergent_replicas
from kvorum.runtime.disk import OsDisk
from kvorum.storage.files.checkpoints import (
    HIGH_WATERMARK,
    LOG_START_OFFSET,
    write_offsets,
    write_partition_metadata,
)
from kvorum.storage.format.batch import build_batch
from kvorum.storage.log.log import Log, LogConfig

DISK = OsDisk()
#: A batch: its records' keys and values, and its leader epoch.
Batch = tuple[Sequence[tuple[bytes, bytes]], int]

ONE, TWO, THREE = ([(b"k", b"1")], 0), ([(b"k", b"2"), (b"l", b"3")], 0), ([(b"m", b"4")], 1)


class Brokers:
    """Stopped brokers with one data directory each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.log_dirs: dict[str, list[str]] = {}

    def replica(
        self,
        broker: str,
        batches: Sequence[Batch],
        *,
        high_watermark: int,
        topic: str = "orders",
        topic_id: bytes = b"t" * 16,
        start_offset: int = 0,
        torn: bytes = b"",
    ) -> None:
        directory = self._folder / broker
        replica = directory / f"{topic}-0"
        replica.mkdir(parents=True)
        log = Log.open(DISK, str(replica), LogConfig(segment_bytes=150), now_ms=0)
        for records, epoch in batches:
            log.append_as_leader(
                build_batch(records, timestamp_ms=1000), leader_epoch=epoch, now_ms=0
            )
        log.close()
        if torn:
            last = max(replica.glob("*.log"))
            last.write_bytes(last.read_bytes() + torn)
        write_partition_metadata(DISK, str(replica), topic_id)
        write_offsets(DISK, f"{directory}/{HIGH_WATERMARK}", {(topic, 0): high_watermark})
        write_offsets(DISK, f"{directory}/{LOG_START_OFFSET}", {(topic, 0): start_offset})
        self.log_dirs[broker] = [str(directory)]


@pytest.fixture
def brokers(tmp_path: Path) -> Brokers:
    return Brokers(tmp_path)


def findings(brokers: Brokers, **options: frozenset[str]) -> list[str]:
    found = divergent_replicas(DISK, brokers.log_dirs, **options)
    assert found.check == "divergent-replicas"
    return [finding.message for finding in found.findings]


def test_equal_replicas_are_compared_batch_by_batch(brokers):
    for broker in "abc":
        brokers.replica(broker, [ONE, TWO, THREE], high_watermark=4)
    found = divergent_replicas(DISK, brokers.log_dirs)
    assert (found.count, found.examined, found.notes) == (0, 6, ())


def test_what_is_not_committed_may_differ_or_be_torn(brokers):
    brokers.replica("a", [ONE, TWO, THREE], high_watermark=4)
    brokers.replica("b", [ONE, TWO, ONE], high_watermark=3, torn=b"\x00" * 30)
    assert findings(brokers) == []


def test_another_record_below_the_high_watermark_is_divergent(brokers):
    brokers.replica("a", [ONE, TWO, THREE], high_watermark=4)
    brokers.replica("b", [ONE, ([(b"k", b"9"), (b"l", b"3")], 0), THREE], high_watermark=4)
    (message,) = findings(brokers)
    assert message.startswith("orders-0 differs at offset 1: a has [1, 3) epoch 0, CRC 0x")


def test_the_same_records_of_another_epoch_are_divergent(brokers):
    brokers.replica("a", [ONE, TWO], high_watermark=3)
    brokers.replica("b", [ONE, (TWO[0], 1)], high_watermark=3)
    assert "epoch 1" in findings(brokers)[0]


def test_a_log_that_ends_below_the_high_watermark_is_divergent(brokers):
    brokers.replica("a", [ONE, TWO, THREE], high_watermark=4)
    brokers.replica("b", [ONE, TWO], high_watermark=4)
    assert findings(brokers)[0].endswith("b has nothing from there on")


def test_a_damaged_log_below_the_high_watermark_is_a_finding(brokers, tmp_path):
    for broker in "ab":
        brokers.replica(broker, [ONE, TWO, THREE], high_watermark=4)
    segment = min((tmp_path / "b" / "orders-0").glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    assert "a log is damaged" in findings(brokers)[0]


def test_records_below_a_log_start_are_not_compared(brokers):
    brokers.replica("a", [ONE, TWO], high_watermark=3)
    brokers.replica("b", [([(b"k", b"8")], 0), TWO], high_watermark=3, start_offset=1)
    assert findings(brokers) == []


def test_a_folder_of_a_deleted_topic_is_not_compared_with_its_namesake(brokers):
    brokers.replica("a", [ONE], high_watermark=1)
    brokers.replica("b", [THREE], high_watermark=1, topic_id=b"u" * 16)
    assert findings(brokers) == []


def test_of_a_compacted_topic_the_common_records_must_be_equal(brokers):
    compacted = frozenset({"orders"})
    brokers.replica("a", [ONE, TWO, THREE], high_watermark=4)
    brokers.replica("b", [ONE, ([(b"k", b"9"), (b"l", b"3")], 0), THREE], high_watermark=4)
    (message,) = findings(brokers, compacted_topics=compacted)
    assert message.startswith("orders-0 differs at offset 1: a has [1, 2) epoch 0, key b'k'")


def test_nothing_to_compare_is_told(brokers):
    brokers.replica("a", [ONE], high_watermark=1)
    brokers.replica("b", [ONE], high_watermark=0)
    found = divergent_replicas(DISK, brokers.log_dirs)
    assert found.examined == 0
    assert found.notes == ("orders-0 has no common record below the smallest high watermark, 0",)
