"""Rules of idempotent producers (KIP-98, KIP-360)."""

from __future__ import annotations

import random

import pytest

from kvorum.runtime.errors import CorruptData, ErrorCode
from kvorum.runtime.memory_disk import MemoryDisk
from kvorum.storage.files.producer_state import ProducerStateTable, read_snapshot, write_snapshot
from kvorum.storage.format.batch import BatchError, BatchHeader, build_batch, read_header
from kvorum.storage.format.markers import build_marker

MAX_SEQUENCE = (1 << 31) - 1


def header(
    sequence: int, *, count: int = 1, epoch: int = 0, offset: int = 0, timestamp_ms: int = 1000
) -> BatchHeader:
    batch = build_batch(
        [(None, None)] * count,
        timestamp_ms=timestamp_ms,
        base_offset=offset,
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return read_header(batch, 0)


def took(table: ProducerStateTable, taken: BatchHeader, batch: bytes = b"") -> object:
    return table.update(taken, taken.last_offset, batch, 0)


def code_of(table: ProducerStateTable, wrong: BatchHeader) -> ErrorCode:
    with pytest.raises(BatchError) as caught:
        table.check(wrong)
    return caught.value.code


def test_an_unknown_producer_may_begin_with_any_sequence() -> None:
    assert ProducerStateTable().check(header(500)) is None


def test_the_next_sequence_is_taken_and_a_gap_refused() -> None:
    table = ProducerStateTable()
    took(table, header(0, count=3))
    assert table.check(header(3)) is None
    for sequence in (1, 2, 4):
        assert code_of(table, header(sequence)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_after_their_maximum() -> None:
    table = ProducerStateTable()
    took(table, header(MAX_SEQUENCE - 1, count=2))
    assert table.check(header(0)) is None
    took(table, header(MAX_SEQUENCE, count=2))
    assert table.entries[7].batches[-1].last_sequence == 0
    assert table.check(header(1)) is None


def test_the_last_five_batches_are_answered_with_their_first_offsets() -> None:
    table = ProducerStateTable()
    for at in range(6):
        took(table, header(2 * at, count=2, offset=100 + 2 * at, timestamp_ms=at))
    assert table.check(header(10, count=2)) == (110, 111, 5)
    assert table.check(header(2, count=2)) == (102, 103, 1)
    assert code_of(table, header(0, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(table, header(10, count=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced_and_a_newer_begins_at_zero() -> None:
    table = ProducerStateTable()
    took(table, header(0, epoch=3))
    assert code_of(table, header(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(table, header(1, epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert table.check(header(0, epoch=4)) is None
    took(table, header(0, epoch=4))
    assert len(table.entries[7].batches) == 1


def test_followers_take_what_the_leader_took() -> None:
    table = ProducerStateTable()
    took(table, header(9))
    took(table, header(3))
    assert table.entries[7].batches[-1].last_sequence == 3


def test_a_transaction_is_open_from_its_first_batch_to_its_marker() -> None:
    table = ProducerStateTable()
    took(table, header(0, offset=40)._replace(attributes=0x10))
    took(table, header(1, offset=41)._replace(attributes=0x10))
    assert table.entries[7].current_transaction_first_offset == 40
    assert table.expire(10**15, expiration_ms=1) == []
    marker = build_marker(
        is_commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=5, timestamp_ms=0
    )
    assert took(table, read_header(marker, 0)._replace(base_offset=42), marker) is None
    assert table.entries[7].current_transaction_first_offset == -1
    assert table.entries[7].coordinator_epoch == 5
    assert table.check(header(2)) is None


def test_silent_producers_expire() -> None:
    table = ProducerStateTable()
    took(table, header(0, timestamp_ms=1000))
    assert table.expire(1099, expiration_ms=100) == []
    assert table.expire(1100, expiration_ms=100) == [7]
    assert len(table) == 0


def test_an_empty_snapshot_has_the_bytes_of_a_real_broker() -> None:
    assert ProducerStateTable().to_bytes().hex() == "000148674bc700000000"


def test_a_snapshot_keeps_the_last_batch_of_each_producer() -> None:
    disk = MemoryDisk(random.Random(1))
    table = ProducerStateTable()
    took(table, header(0, count=2, offset=5))
    took(table, header(2, count=3, offset=7, timestamp_ms=2000))
    write_snapshot(disk, "s", table)
    again = read_snapshot(disk, "s")
    assert again.check(header(2, count=3)) == (7, 9, 2000)
    assert again.check(header(5)) is None
    assert code_of(again, header(0, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert again.to_bytes() == table.to_bytes()


@pytest.mark.parametrize("position", [0, 3, 8, 20])
def test_a_damaged_snapshot_is_reported(position: int) -> None:
    disk = MemoryDisk(random.Random(1))
    table = ProducerStateTable()
    took(table, header(0))
    write_snapshot(disk, "s", table)
    disk.flip_bits("s", position)
    with pytest.raises(CorruptData):
        read_snapshot(disk, "s")
