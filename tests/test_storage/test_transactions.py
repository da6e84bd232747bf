"""Transactions in the log: markers, the transaction index, the last stable offset."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.runtime.errors import CorruptData, ErrorCode
from kvorum.runtime.memory_disk import MemoryDisk, PowerCut
from kvorum.storage.files.model import CompactionConfig
from kvorum.storage.files.producer_state import ProducerStateTable
from kvorum.storage.files.transaction_index import (
    AbortedTransaction,
    collect_aborted,
    pack_aborted,
    parse_aborted,
)
from kvorum.storage.format.batch import BatchError, build_batch, iter_records, read_header
from kvorum.storage.format.markers import build_marker, read_marker
from kvorum.storage.log.log import Log, LogConfig
from kvorum.storage.log.retention import apply_retention, remove_deleted
from tests.test_storage.cleaning_steps import Writer, batches, clean

DIRECTORY = "data/t-0"
CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100, retention_ms=-1)
COMPACTED = LogConfig(
    segment_bytes=500, index_interval_bytes=100, retention_ms=-1, compaction=CompactionConfig()
)
DAY_MS = 86_400_000


def new_disk(seed: int = 1) -> MemoryDisk:
    disk = MemoryDisk(random.Random(seed))
    disk.make_dirs("data")
    disk.sync_dir(".")
    return disk


def opened(disk: MemoryDisk, config: LogConfig = CONFIG, **options) -> Log:
    return Log.open(disk, DIRECTORY, config, now_ms=0, **options)


def aborted_between(log: Log, offset: int, end_offset: int) -> list[tuple[int, int]]:
    """The answers to a read-committed consumer that fetches from `offset` to the end."""
    found: dict[tuple[int, int], None] = {}
    while offset < end_offset:
        piece = log.read(offset, bytes_max=300, end_offset=end_offset)
        if not piece.length:
            break
        for entry in log.segments.aborted_in(piece, end_offset=end_offset):
            found[entry.producer_id, entry.first_offset] = None
        data = piece.read()
        at = 0
        while at < len(data):
            header = read_header(data, at)
            at += header.size_bytes
            offset = header.end_offset
    return sorted(found)


# --- formats --------------------------------------------------------------------------------------


def test_an_entry_of_the_index_is_the_one_seen_on_a_real_broker() -> None:
    entry = AbortedTransaction(2001, 300, 425, 426)
    data = bytes.fromhex("0000 00000000000007d1 000000000000012c 00000000000001a9 00000000000001aa")
    assert pack_aborted([entry]) == data
    assert parse_aborted(data, "x") == [entry]


@pytest.mark.parametrize(
    ("data", "position", "part"),
    [
        (bytes(33), 0, "no multiple of 34"),
        (b"\x00\x01" + bytes(32), 0, "version 1"),
        (pack_aborted([AbortedTransaction(1, 0, 5, 6)] * 2), 34, "do not rise"),
    ],
)
def test_an_unfit_index_is_told_with_its_place(data: bytes, position: int, part: str) -> None:
    with pytest.raises(CorruptData, match=part) as caught:
        parse_aborted(data, "p.txnindex")
    assert (caught.value.path, caught.value.position) == ("p.txnindex", position)


def test_a_marker_says_how_a_transaction_ended_and_in_which_epoch_of_the_coordinator() -> None:
    marker = build_marker(
        is_commit=False, producer_id=1, producer_epoch=2, coordinator_epoch=9, timestamp_ms=5
    )
    # Kafka's EndTransactionMarker batch is 78 bytes as well.
    assert len(marker) == 78
    header = read_header(marker, 0)
    assert header.is_control and header.is_transactional
    assert read_marker(marker, 0, header) == (False, 9)


def test_collecting_stops_where_all_that_began_below_the_end_was_decided() -> None:
    first, second = AbortedTransaction(1, 0, 5, 6), AbortedTransaction(2, 8, 20, 21)

    def later():
        yield [first, second]
        raise AssertionError("looked further than it must")

    assert collect_aborted(later(), 0, 6) == [first]
    assert collect_aborted([[first], [second]], 6, 30) == [second]
    assert collect_aborted([[first], [second]], 5, 30) == [first, second]


# --- producer state -------------------------------------------------------------------------------


def test_a_transaction_that_ends_behind_what_was_fetched_is_found() -> None:
    late = AbortedTransaction(producer_id=7, first_offset=5, last_offset=50, last_stable_offset=5)
    assert collect_aborted([[], [late]], 0, 10) == [late]
    assert collect_aborted([[late]], 20, 30) == [late]
    assert collect_aborted([[late]], 0, 5) == collect_aborted([[late]], 51, 60) == []


def test_the_last_stable_offset_waits_for_the_marker_and_for_its_replication() -> None:
    log = opened(new_disk())
    writer = Writer(log)
    assert log.last_stable_offset(0) == 0
    writer.plain(b"a")
    writer.put(7, b"b", b"c")
    writer.put(8, b"d")
    assert log.last_stable_offset(4) == 1
    assert log.last_stable_offset(1) == 1
    marker = writer.end(7, is_commit=True)
    assert log.last_stable_offset(marker) == 1, "the marker is not replicated"
    assert log.last_stable_offset(marker + 1) == 3, "8 is open"
    last = writer.end(8, is_commit=False)
    assert log.last_stable_offset(last + 1) == last + 1


def test_an_entry_says_which_offset_was_still_undecided() -> None:
    log = opened(new_disk())
    writer = Writer(log)
    writer.put(7, b"a")
    writer.put(8, b"b")
    writer.end(7, is_commit=False)
    writer.end(8, is_commit=False)
    assert log.segments.items[0].aborted == [
        AbortedTransaction(7, 0, 2, 1),
        AbortedTransaction(8, 1, 3, 4),
    ]


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_marker_that_cannot_be_read_is_refused_before_anything_is_written(is_leader) -> None:
    log = opened(new_disk())
    Writer(log).put(7, b"a")
    size_bytes = log.size_bytes
    bad = build_batch(
        [(b"\x00", b"")],
        timestamp_ms=0,
        base_offset=1,
        is_control=True,
        is_transactional=True,
        producer_id=7,
        producer_epoch=0,
    )
    with pytest.raises(BatchError, match="is no marker"):
        if is_leader:
            log.append_as_leader(bad, leader_epoch=0, now_ms=0)
        else:
            log.append_as_follower(bytes(bad), now_ms=0)
    assert (log.end_offset, log.size_bytes) == (1, size_bytes)
    Writer(log).end(7, is_commit=True)
    assert log.last_stable_offset(2) == 2


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_marker_on_disk_that_cannot_be_read_is_damage(is_clean: bool) -> None:
    disk = new_disk()
    log = opened(disk)
    Writer(log).put(7, b"a")
    log.roll(now_ms=0)
    Writer(log).plain(b"b")
    log.close()
    bad = build_batch([(b"", b"")], timestamp_ms=0, base_offset=2, is_control=True, producer_id=7)
    file = disk.open(f"{DIRECTORY}/{1:020d}.log")
    file.pwrite(bytes(bad), file.size())
    for name in disk.list_dir(DIRECTORY):
        if name.endswith((".index", ".snapshot")):
            disk.remove(f"{DIRECTORY}/{name}")
    with pytest.raises(CorruptData, match="is no marker"):
        opened(disk, is_clean=is_clean)


def test_a_producer_may_not_write_outside_its_open_transaction() -> None:
    log = opened(new_disk())
    Writer(log).put(7, b"a")
    plain = build_batch(
        [(b"b", b"1")], timestamp_ms=0, producer_id=7, producer_epoch=0, base_sequence=1
    )
    with pytest.raises(BatchError) as caught:
        log.producers.check(read_header(plain, 0))
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("is_clean", [True, False])
def test_open_transactions_survive_a_restart(is_clean: bool) -> None:
    disk = new_disk()
    log = opened(disk)
    writer = Writer(log)
    for at in range(6):
        writer.plain(b"k%d" % at)
    writer.put(7, b"b")
    log.roll(now_ms=0)
    writer.put(8, b"b")
    log.flush()
    if is_clean:
        log.close()
    again = opened(disk, is_clean=is_clean)
    assert again.last_stable_offset(8) == 6
    assert again.producers.ongoing == {6: 7, 7: 8}


def test_a_truncation_takes_a_decision_back() -> None:
    log = opened(new_disk())
    writer = Writer(log)
    writer.put(7, b"a")
    marker = writer.end(7, is_commit=False)
    assert aborted_between(log, 0, marker + 1) == [(7, 0)]
    log.truncate_to(marker)
    assert log.last_stable_offset(marker) == 0
    assert aborted_between(log, 0, marker) == []


# --- the index in the life of a log ---------------------------------------------------------------


def test_the_index_lies_beside_the_segment_of_the_marker_and_only_there() -> None:
    disk = new_disk()
    log = opened(disk)
    writer = Writer(log)
    writer.put(7, b"a")
    log.roll(now_ms=0)
    writer.end(7, is_commit=False)
    log.roll(now_ms=0)
    writer.plain(b"x")
    log.close()
    names = [name for name in disk.list_dir(DIRECTORY) if name.endswith(".txnindex")]
    assert names == ["00000000000000000001.txnindex"]
    assert disk.read_bytes(f"{DIRECTORY}/{names[0]}") == pack_aborted(
        [AbortedTransaction(7, 0, 1, 2)]
    )
    again = opened(disk, is_clean=True)
    assert aborted_between(again, 0, 3) == [(7, 0)]
    again.advance_start_offset(2)
    apply_retention(again, now_ms=0, high_watermark=3)
    remove_deleted(again, 1 << 40)
    assert not any(name.startswith(f"{1:020d}") for name in disk.list_dir(DIRECTORY))


@pytest.mark.parametrize("left_bytes", [0, 20])
def test_an_unfit_index_is_made_anew_at_the_start(left_bytes: int) -> None:
    disk = new_disk()
    log = opened(disk)
    writer = Writer(log)
    writer.put(7, b"a")
    writer.end(7, is_commit=False)
    log.roll(now_ms=0)
    log.close()
    disk.open(f"{DIRECTORY}/{0:020d}.txnindex").truncate(left_bytes)
    assert aborted_between(opened(disk, is_clean=True), 0, 2) == [(7, 0)]


STEP = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 4), st.sampled_from([b"a", b"b", b"c", b"d"])),
    st.tuples(st.just("end"), st.integers(1, 4), st.booleans()),
    st.tuples(st.just("plain"), st.sampled_from([b"a", b"b", b"c", b"d"])),
    st.tuples(st.just("flush")),
    st.tuples(st.just("clean")),
    st.tuples(st.just("reopen"), st.booleans()),
    st.tuples(st.just("crash")),
)


class Model:
    """A plain model: the open transactions, the aborted ones, and all written values."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []
        self.values: list[tuple[int, bytes, int | None]] = []
        self.aborted_offsets: set[int] = set()

    def end(self, producer_id: int, marker: int, is_commit: bool) -> None:
        first = self.open.pop(producer_id, None)
        if first is not None and not is_commit:
            self.aborted.append((producer_id, first, marker))
            self.aborted_offsets |= {
                offset
                for offset, _, owner in self.values
                if owner == producer_id and offset >= first
            }

    def committed(self, stable_offset: int) -> dict[bytes, int]:
        return {
            key: offset
            for offset, key, _ in self.values
            if offset not in self.aborted_offsets and offset < stable_offset
        }


def committed(log: Log, stable_offset: int) -> dict[bytes, int]:
    """Key -> offset of its latest value, as a read-committed consumer finds it."""
    aborted = sorted(
        (first, producer_id)
        for producer_id, first in aborted_between(log, log.start_offset, stable_offset)
    )
    skipping: set[int] = set()
    found: dict[bytes, int] = {}
    for data, at, header in batches(log):
        if header.last_offset >= stable_offset:
            break
        while aborted and aborted[0][0] <= header.last_offset:
            skipping.add(aborted.pop(0)[1])
        if header.is_control:
            marker = read_marker(data, at, header)
            if marker is not None and not marker.is_commit:
                skipping.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipping):
            for record in iter_records(data, at, header):
                found[record.key] = record.offset
    return found


@settings(max_examples=150, deadline=None)
@given(steps=st.lists(STEP, min_size=4, max_size=40), seed=st.integers(0, 999))
def test_what_is_committed_is_read_and_nothing_else_whatever_befalls_the_log(steps, seed) -> None:
    disk = new_disk(seed)
    log = opened(disk, COMPACTED)
    writer, model = Writer(log), Model()
    checkpoint, now_ms = None, 0
    for kind, *step in steps:
        if kind == "put":
            producer_id, key = step
            offset = writer.put(producer_id, key)
            model.open.setdefault(producer_id, offset)
            model.values.append((offset, key, producer_id))
        elif kind == "end":
            producer_id, is_commit = step
            if producer_id in model.open:
                model.end(producer_id, writer.end(producer_id, is_commit=is_commit), is_commit)
        elif kind == "plain":
            model.values.append((writer.plain(step[0]), step[0], None))
        elif kind == "flush":
            log.roll(now_ms=0)
            log.flush()
        elif kind == "clean":
            now_ms += DAY_MS
            job = clean(log, now_ms=now_ms, checkpoint=checkpoint)
            checkpoint = checkpoint if job is None else job.end_offset
        elif kind == "reopen" and step[0]:
            log.close()
            log = opened(disk, COMPACTED, is_clean=True)
        else:
            log.flush()
            if kind == "crash":
                disk.crash()
            log = opened(disk, COMPACTED, recovery_point=log.end_offset if step else 0)
        writer.log = log
        stable = log.last_stable_offset(log.end_offset)
        assert stable == min(model.open.values(), default=log.end_offset)
        assert committed(log, stable) == model.committed(stable)


def test_an_aborted_record_hides_no_committed_one_of_its_key() -> None:
    log = opened(new_disk(), COMPACTED)
    writer = Writer(log)
    writer.plain(b"a")
    writer.put(7, b"a")
    writer.end(7, is_commit=False)
    writer.plain(b"z")
    log.roll(now_ms=0)
    log.flush()
    clean(log, now_ms=0)
    assert committed(log, 4) == {b"a": 0, b"z": 3}


def test_a_marker_stays_until_its_records_are_gone_and_a_horizon_longer() -> None:
    log = opened(new_disk(), COMPACTED)
    writer = Writer(log)

    def controls() -> list[tuple[int, bool]]:
        return [(h.base_offset, h.has_delete_horizon) for _, _, h in batches(log) if h.is_control]

    writer.put(7, b"a")
    writer.end(7, is_commit=True)
    writer.put(8, b"b")
    writer.end(8, is_commit=False)
    for producer_id in (7, 8):
        writer.put(producer_id, b"z")
        writer.end(producer_id, is_commit=True)
    log.roll(now_ms=0)
    log.flush()
    clean(log, now_ms=0)
    assert controls()[:2] == [(1, False), (3, False)], "records were there when they were read"
    writer.plain(b"a")
    log.roll(now_ms=0)
    log.flush()
    clean(log, now_ms=10, checkpoint=8)
    # This clean removed 7's record, so 7's marker gets its delete horizon in the next one. 8's
    # aborted record went in the first clean.
    assert controls()[:2] == [(1, False), (3, True)]
    writer.plain(b"y")
    log.roll(now_ms=0)
    log.flush()
    clean(log, now_ms=DAY_MS + 10, checkpoint=9)
    assert controls()[0] == (1, True)


def test_a_power_cut_at_any_call_of_a_clean_keeps_transactions_as_they_were() -> None:
    calls = 0
    while True:
        disk = new_disk(calls)
        log = opened(disk, COMPACTED)
        writer, model = Writer(log), Model()
        for at in range(12):
            offset = writer.put(at % 3, b"k%d" % (at % 4), b"only%d" % at)
            model.values += [(offset, b"k%d" % (at % 4), at), (offset + 1, b"only%d" % at, at)]
            model.open[at] = offset
            model.end(at, writer.end(at % 3, is_commit=at % 2 == 0), at % 2 == 0)
            if at % 3 == 2:
                log.roll(now_ms=0)
        log.flush()
        end_offset = log.end_offset
        expected = model.committed(end_offset)
        disk.cut_power_after(calls)
        try:
            clean(log, now_ms=0)
        except PowerCut:
            disk.crash()
        else:
            assert calls > 20
            break
        for recovery_point in (end_offset, 0):
            again = opened(disk, COMPACTED, recovery_point=recovery_point)
            assert again.last_stable_offset(end_offset) == end_offset
            assert committed(again, end_offset) == expected
        calls += 1


def test_a_table_without_transactions_costs_nothing_to_ask() -> None:
    assert ProducerStateTable().last_stable_offset(17) == 17
