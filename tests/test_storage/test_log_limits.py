"""Limits of sizes, times, log starts and frames, and rules that depend on each other."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

import cramjam
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.memory_disk import MemoryDisk
from kvorum.storage.cleaning.batch_cleaning import BatchCleaner
from kvorum.storage.cleaning.cleaned_transactions import CleanedTransactions
from kvorum.storage.cleaning.offset_map import OffsetMap
from kvorum.storage.files.index import OffsetIndex, TimeIndex
from kvorum.storage.files.leader_epochs import CHECKPOINT_NAME
from kvorum.storage.files.model import CompactionConfig
from kvorum.storage.files.segment import Segment
from kvorum.storage.format.batch import (
    BatchError,
    BatchHeader,
    build_batch,
    iter_records,
    read_header,
)
from kvorum.storage.format.client_batch import validate_client_batch, validate_client_records
from kvorum.storage.format.compression import (
    Codec,
    CompressionError,
    check_lz4_frame,
    compress,
    decompress,
)
from kvorum.storage.format.record_codec import INT64_MAX, INT64_MIN, encode_record
from kvorum.storage.log.log import Log, LogConfig
from kvorum.storage.log.retention import apply_retention, deletable_count, remove_deleted
from kvorum.storage.log.timestamp_lookup import find_max_timestamp
from tests.test_storage.cleaning_steps import batches, clean, records
from tests.test_storage.client_batches import TIMESTAMP_MS, resealed, two_records
from tests.test_storage.compacted import CONFIG, DAY_MS, opened, put, seal
from tests.test_storage.small_logs import BROKERS, DIRECTORY, new_disk

# --- retention -----------------------------------------------------------------------------------


@dataclass
class OldSegment:
    base_offset: int
    size_bytes: int
    max_timestamp_ms: int
    modified_ms: int = 0


def three_passes(segments: list[OldSegment], **limits: int) -> int:
    """Kafka's deleteOldSegments: those below the start, then those too many, then those too old."""
    count = 0

    def may_go(at: int) -> bool:
        is_last = at + 1 == len(segments)
        upper = limits["end_offset"] if is_last else segments[at + 1].base_offset
        return upper <= limits["high_watermark"]

    while count + 1 < len(segments) and may_go(count):
        if segments[count + 1].base_offset > limits["start_offset"]:
            break
        count += 1
    excess = sum(segment.size_bytes for segment in segments[count:]) - limits["retention_bytes"]
    while limits["retention_bytes"] >= 0 and count < len(segments) and may_go(count):
        excess -= segments[count].size_bytes
        if excess < 0:
            break
        count += 1
    while limits["retention_ms"] >= 0 and count < len(segments) and may_go(count):
        if limits["now_ms"] - segments[count].max_timestamp_ms <= limits["retention_ms"]:
            break
        count += 1
    return count


@settings(max_examples=400)
@given(st.data())
def test_retention_deletes_what_three_passes_would(data: st.DataObject) -> None:
    # Bug: 1. The oldest segment, of 100 bytes, is deleted for its age. 2. Its bytes still count
    # toward retention.bytes. 3. Two young segments of 80 bytes are deleted as well, though 100
    # bytes must be kept.
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    segments = [
        OldSegment(10 * at, size, data.draw(st.integers(0, 10))) for at, size in enumerate(sizes)
    ]
    end_offset = 10 * len(segments)
    limits = {
        "start_offset": data.draw(st.integers(0, end_offset)),
        "end_offset": end_offset,
        "high_watermark": data.draw(st.integers(0, end_offset)),
        "retention_ms": data.draw(st.sampled_from((-1, 3, 8))),
        "retention_bytes": data.draw(st.sampled_from((-1, 0, 5, 10))),
        "now_ms": 10,
    }
    assert deletable_count(segments, **limits) == three_passes(segments, **limits)


def test_what_goes_for_its_age_is_no_longer_too_much() -> None:
    segments = [OldSegment(0, 100, 0), OldSegment(10, 30, 10_000), OldSegment(20, 50, 10_000)]
    limits = {"retention_ms": 5_000, "retention_bytes": 100, "now_ms": 10_000}
    count = deletable_count(segments, start_offset=0, end_offset=30, high_watermark=30, **limits)
    assert count == 1


# --- times ---------------------------------------------------------------------------------------


def test_a_log_lives_with_times_of_all_that_64_bits_hold() -> None:
    # Bug: the delete horizon of a tombstone (now + delete.retention.ms) did not fit its field: the
    # cleaner ended, and the broker with it.
    forever = CompactionConfig(delete_retention_ms=INT64_MAX, max_lag_ms=INT64_MAX)
    config = replace(
        CONFIG,
        segment_ms=INT64_MAX,
        retention_ms=INT64_MAX,
        flush_ms=INT64_MAX,
        file_delete_delay_ms=INT64_MAX,
        producer_id_expiration_ms=INT64_MAX,
        compaction=forever,
    )
    now_ms = TIMESTAMP_MS
    disk = new_disk()
    log = opened(disk, config)
    put(log, (b"k", b"v"), (b"k", None), timestamp_ms=now_ms, producer_id=7, producer_epoch=0,
        base_sequence=0)  # fmt: skip
    seal(log)
    clean(log, now_ms=now_ms)
    seal(log)
    for at in range(2):
        put(log, (b"z%d" % at, b"v"), timestamp_ms=now_ms)
        seal(log)
        clean(log, now_ms=now_ms + at, checkpoint=2)
        assert next((r.key, r.value) for r in records(log)) == (b"k", None)
    assert apply_retention(log, now_ms=now_ms, high_watermark=log.end_offset) == []
    assert (
        remove_deleted(log, now_ms),
        log.producers.expire(now_ms, expiration_ms=log.config.producer_id_expiration_ms),
    ) == (0, [])
    assert not log.needs_flush(now_ms)
    young = replace(forever, min_lag_ms=INT64_MAX)
    log.reconfigure(replace(config, compaction=young))
    put(log, (b"k", b"v"), timestamp_ms=now_ms)
    seal(log)
    assert clean(log, now_ms=now_ms, checkpoint=log.end_offset - 1) is None
    batch = two_records()
    header = validate_client_batch(batch, max_message_bytes=1000)
    assert header == validate_client_records(
        batch, header, now_ms=now_ms,
        timestamp_before_max_ms=INT64_MAX, timestamp_after_max_ms=INT64_MAX,
    )  # fmt: skip


int64 = st.integers(INT64_MIN, INT64_MAX) | st.sampled_from(
    (INT64_MIN, INT64_MIN + 1, -1, 0, 1, TIMESTAMP_MS, INT64_MAX, 1 << 62, -(1 << 62))
)


@settings(max_examples=200)
@given(int64, st.lists(int64, min_size=1, max_size=4), st.booleans(), st.integers(0, INT64_MAX))
@example(base_ms=INT64_MIN, deltas=[0], is_stamped_by_leader=False, retention_ms=DAY_MS)
@example(base_ms=INT64_MIN, deltas=[0], is_stamped_by_leader=True, retention_ms=DAY_MS)
@example(
    base_ms=INT64_MIN, deltas=[INT64_MAX, 0], is_stamped_by_leader=False, retention_ms=INT64_MAX
)
def test_a_clean_leaves_every_timestamp_as_it_was(
    base_ms: int, deltas: list[int], is_stamped_by_leader: bool, retention_ms: int
) -> None:
    # Bug: 1. A client's tombstone has the timestamp -2^63. 2. The clean stores it as a delta to a
    # delete horizon of today. 3. The delta takes 65 bits: no consumer can read the batch, nor can
    # the next clean.
    made = b"".join(
        encode_record(offset_delta=at, timestamp_delta_ms=delta, key=b"%d" % at, value=None)
        for at, delta in enumerate(deltas)
    )
    batch = resealed(
        two_records(), made, attributes=0x08 if is_stamped_by_leader else 0, base_sequence=-1,
        record_count=len(deltas), last_offset_delta=len(deltas) - 1, producer_id=-1,
        base_timestamp_ms=base_ms, max_timestamp_ms=TIMESTAMP_MS,
    )  # fmt: skip
    before = list(iter_records(batch, 0, read_header(batch, 0)))
    offsets = OffsetMap(buffer_bytes=1 << 12, load_factor=0.9)
    for record in before:
        offsets.put(record.key or b"", record.offset)
    offsets.latest_offset = len(deltas) - 1
    cleaner = BatchCleaner(
        offsets=offsets,
        transactions=CleanedTransactions([]),
        producers={},
        now_ms=TIMESTAMP_MS,
        delete_retention_ms=retention_ms,
    )
    cleaned = cleaner.clean(bytes(batch), read_header(batch, 0))
    assert cleaned is not None
    header = read_header(cleaned, 0)
    assert header.base_timestamp_ms == min(TIMESTAMP_MS + retention_ms, INT64_MAX)
    assert list(iter_records(cleaned, 0, header)) == before
    assert all(INT64_MIN <= record.timestamp_ms <= INT64_MAX for record in before)
    assert header.max_timestamp_ms == max(record.timestamp_ms for record in before)


def test_a_timestamp_below_0_is_held_to_the_bounds_as_well() -> None:
    # -1 means a record without a timestamp. Bug: all other timestamps below 0 passed
    # message.timestamp.before.max.ms.
    def checked(timestamp_ms: int) -> None:
        batch = build_batch([(b"k", b"v")], timestamp_ms=timestamp_ms)
        header = validate_client_batch(batch, max_message_bytes=1000)
        bounds = {"timestamp_before_max_ms": 1000, "timestamp_after_max_ms": 1000}
        validate_client_records(batch, header, now_ms=TIMESTAMP_MS, **bounds)

    checked(-1)
    for timestamp_ms in (-2, INT64_MIN):
        with pytest.raises(BatchError) as caught:
            checked(timestamp_ms)
        assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


# --- lz4 -----------------------------------------------------------------------------------------

LZ4_HEADER_BYTES = 7


def lz4_frame(data: bytes, *, is_linked: bool = False) -> bytes:
    packer = cramjam.lz4.Compressor(level=4, content_checksum=False, block_linked=is_linked)
    packer.compress(data)
    return bytes(packer.finish())


def code_of_lz4(packed: bytes, count: int) -> ErrorCode:
    batch = resealed(
        two_records(), packed, attributes=int(Codec.LZ4), record_count=count,
        last_offset_delta=count - 1, max_timestamp_ms=TIMESTAMP_MS,
    )  # fmt: skip
    header = validate_client_batch(batch, max_message_bytes=1 << 20)
    try:
        validate_client_records(batch, header)
    except BatchError as refused:
        return refused.code
    return ErrorCode.NONE


def test_lz4_that_no_java_consumer_reads_is_refused() -> None:
    # Bug: the broker could unpack it and accepted it; every Java consumer of the partition stopped
    # there.
    made = b"".join(
        encode_record(offset_delta=at, timestamp_delta_ms=0, key=b"%d" % at, value=bytes(100))
        for at in range(1500)
    )
    half = len(made) // 2
    two_frames = lz4_frame(made[:half]) + lz4_frame(made[half:])
    linked = lz4_frame(made, is_linked=True)
    for packed in (two_frames, linked):
        assert bytes(decompress(Codec.LZ4, packed, bytes_max=1 << 20)) == made
        assert code_of_lz4(packed, 1500) is ErrorCode.INVALID_RECORD
    sound = lz4_frame(made)
    assert code_of_lz4(sound, 1500) is ErrorCode.NONE
    assert code_of_lz4(compress(Codec.LZ4, made), 1500) is ErrorCode.NONE
    assert code_of_lz4(sound + b"behind", 1500) is ErrorCode.INVALID_RECORD
    assert code_of_lz4(sound[:-4], 1500) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("at", range(LZ4_HEADER_BYTES))
def test_a_flipped_bit_in_the_header_of_an_lz4_frame_is_found(at: int) -> None:
    # Block sizes and the checksum, which the flags leave open, are checked in decompression.
    made = encode_record(offset_delta=0, timestamp_delta_ms=0, key=b"k", value=bytes(100))
    for bit in range(8):
        frame = bytearray(lz4_frame(made))
        frame[at] ^= 1 << bit
        assert code_of_lz4(bytes(frame), 1) is ErrorCode.INVALID_RECORD


FRAME_START = b"\x04\x22\x4d\x18"
RAW_BLOCK = struct.pack("<I", 1 << 31 | 3) + b"abc"
END_MARK = bytes(4)


@pytest.mark.parametrize(
    "frame",
    [
        b"\x60\x40h" + RAW_BLOCK + END_MARK,
        b"\x60\x40h" + END_MARK,
        b"\x64\x40h" + RAW_BLOCK + END_MARK + b"sum.",
        b"\x68\x40" + bytes(8) + b"h" + RAW_BLOCK + END_MARK,
        b"\x70\x40h" + RAW_BLOCK + b"sum." + END_MARK,
    ],
)
def test_an_lz4_frame_of_any_options_that_java_knows_passes(frame: bytes) -> None:
    check_lz4_frame(FRAME_START + frame)


@pytest.mark.parametrize(
    ("flags", "body", "why"),
    [
        (0x40, RAW_BLOCK + END_MARK, "refer to others"),
        (0x61, RAW_BLOCK + END_MARK, "dictionary"),
        (0x62, RAW_BLOCK + END_MARK, "flags 0x62"),
        (0xA0, RAW_BLOCK + END_MARK, "another version"),
        (0x60, RAW_BLOCK, "without its end"),
        (0x60, RAW_BLOCK + END_MARK[:3], "without its end"),
        (0x60, struct.pack("<I", 1 << 30), "without its end"),
        (0x64, RAW_BLOCK + END_MARK, "an lz4 frame of 22 bytes in 18"),
        (0x60, RAW_BLOCK + END_MARK + b"x", "an lz4 frame of 18 bytes in 19"),
        # An empty block, compressed and uncompressed. Java's consumers take it for the end of the
        # frame.
        (0x60, struct.pack("<I", 1) + b"\0" + RAW_BLOCK + END_MARK, "without content"),
        (0x60, RAW_BLOCK + struct.pack("<I", 1 << 31) + END_MARK, "without content"),
    ],
)
def test_an_lz4_frame_that_java_does_not_read_is_refused(flags: int, body: bytes, why: str) -> None:
    with pytest.raises(CompressionError, match=why):
        check_lz4_frame(FRAME_START + bytes((flags, 0x40)) + b"h" + body)


def test_lz4_without_a_frame_is_refused() -> None:
    skippable = struct.pack("<II", 0x184D2A50, 0)
    for data in (b"", FRAME_START, skippable + lz4_frame(b"abc")):
        with pytest.raises(CompressionError, match="no lz4 frame"):
            check_lz4_frame(data)


# --- the largest timestamp -----------------------------------------------------------------------

KEEPING = LogConfig()


def test_the_largest_timestamp_is_found_where_no_index_is_loaded_yet() -> None:
    # A start does not read the indexes of sealed segments. Bug: until then the largest timestamp of
    # a segment was -1, and the first batch without a timestamp was taken for the batch that has it.
    disk = new_disk()
    log = opened(disk, KEEPING)
    put(log, (b"a", b"1"), timestamp_ms=-1)
    put(log, (b"b", b"1"), timestamp_ms=9000)
    seal(log)
    put(log, (b"c", b"1"), timestamp_ms=50)
    log.close()
    again = opened(disk, KEEPING, is_clean=True, recovery_point=3)
    assert find_max_timestamp(again, end_offset=3) == (9000, 1, 0)


def test_the_largest_timestamp_may_lie_in_a_batch_that_the_start_cuts() -> None:
    # Bug: such a batch was left out as a whole. Its records below the start do not count.
    log = opened(new_disk(), KEEPING)
    made = b"".join(
        encode_record(offset_delta=at, timestamp_delta_ms=delta, key=b"k", value=b"v")
        for at, delta in enumerate((9, 5, 7, 7))
    )
    batch = resealed(
        build_batch([(b"k", b"v")] * 4, timestamp_ms=1000), made, max_timestamp_ms=1009
    )
    log.append_as_leader(batch, leader_epoch=0, now_ms=0)
    assert find_max_timestamp(log, end_offset=4) == (1009, 0, 0)
    log.advance_start_offset(1)
    assert find_max_timestamp(log, end_offset=4) == (1007, 2, 0)
    put(log, (b"k", b"v"), timestamp_ms=1006)
    assert find_max_timestamp(log, end_offset=5) == (1007, 2, 0)
    put(log, (b"k", b"v"), timestamp_ms=1008)
    assert find_max_timestamp(log, end_offset=6) == (1008, 5, 0)


def largest_by_hand(log: Log, end_offset: int) -> tuple[int, int] | None:
    """Every record is looked at."""
    times = [(r.timestamp_ms, -r.offset) for r in records(log) if r.timestamp_ms >= 0]
    in_range = [row for row in times if log.start_offset <= -row[1] < end_offset]
    return (max(in_range)[0], -max(in_range)[1]) if in_range else None


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_largest_timestamp_is_found_whatever_the_range_cuts(data: st.DataObject) -> None:
    interval = data.draw(st.sampled_from((0, 150, 400)))
    log = opened(new_disk(), replace(KEEPING, index_interval_bytes=interval))
    for _ in range(data.draw(st.integers(1, 25))):
        ms = data.draw(st.integers(-1, 30))
        put(log, *[(b"k", b"v")] * data.draw(st.integers(1, 3)), timestamp_ms=ms)
        if data.draw(st.integers(0, 9)) == 0:
            seal(log)
    log.advance_start_offset(data.draw(st.integers(0, log.end_offset)))
    ends = [header.base_offset for _, _, header in batches(log)]
    end_offset = data.draw(st.sampled_from([*ends, log.end_offset]))
    found = find_max_timestamp(log, end_offset=end_offset)
    assert (found and found[:2]) == largest_by_hand(log, end_offset)


def test_an_end_inside_a_segment_costs_no_walk_through_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Bug: if the newest batch was not replicated yet, all earlier ones were scanned, up to a
    # gigabyte, and no other client was served meanwhile.
    log = opened(new_disk(), replace(KEEPING, index_interval_bytes=1_000))
    for at in range(2_000):
        put(log, (b"k", b"v"), timestamp_ms=at)
    looked_at = []
    headers = Segment.headers

    def counted(segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader]]:
        for row in headers(segment, position):
            looked_at.append(row)
            yield row

    monkeypatch.setattr(Segment, "headers", counted)
    assert find_max_timestamp(log, end_offset=1_999) == (1_998, 1_998, 0)
    assert find_max_timestamp(log, end_offset=1_000) == (999, 999, 0)
    assert len(looked_at) < 100


# --- epochs --------------------------------------------------------------------------------------


def started_over(disk: MemoryDisk, *, behind: int) -> Log:
    """A log whose records were all deleted, with `behind` more, none of them flushed; killed and
    started again."""
    log = opened(disk, BROKERS)
    data = build_batch([(b"k", bytes(40))], timestamp_ms=1000)
    for _ in range(10):
        log.append_as_leader(bytearray(data), leader_epoch=3, now_ms=0)
    log.flush()
    log.advance_start_offset(10)
    for at in range(behind):
        log.append_as_leader(bytearray(data), leader_epoch=3 + at, now_ms=0)
    recovery_point = log.durable_end_offset
    log.begin_flush().run()  # the checkpoint is there, the recovery point did not follow
    log.abandon()
    disk.kill_process()
    return opened(disk, BROKERS, recovery_point=recovery_point, log_start_offset=10)


@pytest.mark.parametrize("behind", [0, 1, 2])
def test_epochs_below_the_start_are_not_held_against_their_checkpoint(
    caplog: pytest.LogCaptureFixture, behind: int
) -> None:
    # Bug: the checkpoint begins at the log start, 10, and was looked up for offset 9. So it counted
    # as wrong, and all headers of the log were read to make it again.
    with caplog.at_level(logging.WARNING):
        log = started_over(new_disk(), behind=behind)
    assert log.epochs.entries == [(3, 10), (4, 11)][: max(behind, 1)]
    assert not caplog.records


def test_a_false_checkpoint_of_epochs_is_not_believed_for_lack_of_records() -> None:
    disk = new_disk()
    log = opened(disk, BROKERS)
    log.append_as_leader(build_batch([(b"k", b"v")], timestamp_ms=0), leader_epoch=3, now_ms=0)
    log.flush()
    log.append_as_leader(build_batch([(b"k", b"v")], timestamp_ms=0), leader_epoch=3, now_ms=0)
    log.abandon()
    disk.write_atomic(f"{DIRECTORY}/{CHECKPOINT_NAME}", b"0\n1\n8 0\n")
    again = opened(disk, BROKERS, recovery_point=1, log_start_offset=1)
    assert again.epochs.entries == [(3, 1)]


def test_a_flush_under_way_does_not_bring_back_epochs_from_before_the_first_segment() -> None:
    # Bug: 1. A leader's epoch begins at 50, and a flush takes a copy of the epochs. 2. The broker
    # becomes a follower, and its log starts again far above. 3. The flush overwrites the new
    # checkpoint with the epoch of 50. 4. After a kill the start misses the records from 50 on, and
    # refuses the sound log.
    far = 5_000_000_000
    disk = new_disk()
    log = opened(disk, BROKERS)
    log.truncate_fully_and_start_at(50)
    log.epochs.assign(2, 50)
    ticket = log.begin_flush()
    data = build_batch([(None, b"x")], timestamp_ms=0, base_offset=far, leader_epoch=2)
    log.append_as_follower(data, now_ms=0)
    ticket.run()
    log.complete_flush(ticket)
    assert log.epochs.is_dirty
    log.abandon()
    disk.kill_process()
    again = opened(disk, BROKERS)
    assert (again.start_offset, again.epochs.entries) == (far, [(2, far)])


# --- positions -----------------------------------------------------------------------------------


def test_a_batch_above_what_an_index_holds_is_found_from_the_last_entry_on() -> None:
    # A delete horizon makes tombstones longer, so a clean may make a segment of 2^31-1 bytes
    # longer. Bug: the index could not take such a position, and the log could never be cleaned
    # again.
    last = (1 << 31) - 1
    index = OffsetIndex(100)
    index.append(109, last)
    index.append(119, last + 1)
    assert (index.lookup(110), index.lookup(500), len(index)) == (last, last, 1)
    assert OffsetIndex(100).load(index.to_bytes(), log_size_bytes=last + 100) is None
    disk = new_disk()
    disk.make_dirs(DIRECTORY)
    segment = Segment(disk, DIRECTORY, 0, created_ms=0, index_interval_bytes=0)
    segment.start_empty()
    segment._size = last - 50
    segment.note(0, 0, 1, 100)
    segment.note(1, 1, 2, 100)
    segment.note(2, 2, 3, 100)
    assert segment.max_timestamp == (3, 2)


def test_a_batch_that_ends_at_an_offset_does_not_end_below_it() -> None:
    index = TimeIndex(100)
    index.maybe_append(1000, 103)
    index.maybe_append(2000, 107)
    assert [index.last_offset_below(at) for at in (103, 104, 107, 108)] == [None, 103, 103, 107]
