"""Checks of a client's batch before a leader appends it.

They are Kafka's LogValidator and UnifiedLog.analyzeAndValidateRecords, with their error codes.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import (
    BATCH_LENGTH_MIN,
    CODEC_MASK,
    CONTROL_BIT,
    DECOMPRESSED_BYTES_MAX,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL_BIT,
    BatchError,
    BatchHeader,
    Buffer,
    check_crc,
    read_header,
    restamp,
)
from kvorum.storage.format.compression import (
    Codec,
    CompressionError,
    UnpacksToMore,
    check_lz4_frame,
    decompress,
)
from kvorum.storage.format.record_codec import (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    read_record,
    read_time,
    read_varint,
    wrapped_int64,
)
from kvorum.storage.format.record_validation import (
    BATCH_ITEMS_MAX,
    BadRecords,
    CheckedRecords,
    check_records,
)

CLIENT_BITS = CODEC_MASK | TRANSACTIONAL_BIT
"""The attributes that a producer sets; all others are the broker's."""
UNPACKED_BYTES_MAX = 100 << 20
"""Default limit of the uncompressed bytes of a client's batch: as many as an uncompressed request
may have (socket.request.max.bytes). Kafka has no limit, because it decompresses as it reads."""

UNPACKED_RATIO = 10
"""Additional uncompressed bytes for all batches of one request, per byte of the request. Producers
may fill socket.request.max.bytes, and seldom compress better than this."""

RECORD_ERRORS_MAX = 100
"""Record errors named per batch. Clients only show them, and a million of them take 80 MB."""
_RECORD_ERRORS_SHOWN = 3


class BatchLimits(NamedTuple):
    """The limits of one client's batch.

    items: of records, and of headers in all of them.
    unpacked_bytes: at most DECOMPRESSED_BYTES_MAX, so that readers of the log can unpack it too.
    """

    items: int = BATCH_ITEMS_MAX
    unpacked_bytes: int = UNPACKED_BYTES_MAX


DEFAULT_LIMITS = BatchLimits()


def batch_limits(items_max: int, request_bytes_max: int) -> BatchLimits:
    """The limits of a broker that reads requests of up to `request_bytes_max`."""
    bytes_max = min(max(request_bytes_max, UNPACKED_BYTES_MAX), DECOMPRESSED_BYTES_MAX)
    return BatchLimits(items_max, bytes_max)


class Unpacking:
    """The bytes and items to which the batches of one request may still decompress, in total.

    A batch of a few bytes can take a tenth of a second, and a request has room for a hundred
    thousand such batches.
    items: records and their headers, which are checked one by one.
    limits: of each batch.
    """

    __slots__ = ("bytes_left", "items_left", "limits")

    def __init__(self, request_bytes: int, limits: BatchLimits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.bytes_left = limits.unpacked_bytes + UNPACKED_RATIO * request_bytes
        self.items_left = limits.items + request_bytes


def validate_client_batch(view: Buffer, *, max_message_bytes: int) -> BatchHeader:
    """Check the one batch of a Produce partition, with its CRC; return its header.

    `validate_client_records` checks the records. Raises BatchError with Kafka's error code.
    """
    size = len(view)
    if size < HEADER_BYTES:
        _refuse_short(view)
    header = read_header(view, 0)
    if header.magic != MAGIC:
        is_older = 0 <= header.magic < MAGIC
        code = ErrorCode.INVALID_RECORD if is_older else ErrorCode.CORRUPT_MESSAGE
        _refuse(code, f"magic {header.magic}; only magic 2 is accepted")
    if header.batch_length < BATCH_LENGTH_MIN:
        _refuse(ErrorCode.CORRUPT_MESSAGE, f"a batch length of {header.batch_length}")
    if header.size_bytes > size:
        _refuse(
            ErrorCode.INVALID_RECORD, f"batch of {header.size_bytes} bytes in {size} bytes sent"
        )
    if header.size_bytes < size:
        _refuse(ErrorCode.INVALID_RECORD, "more than one record batch for a partition")
    if size > max_message_bytes:
        _refuse(ErrorCode.MESSAGE_TOO_LARGE, f"batch of {size} bytes, limit {max_message_bytes}")
    if not check_crc(view, 0, header):
        _refuse(ErrorCode.CORRUPT_MESSAGE, "the CRC does not match")
    if header.base_offset != 0:
        _refuse(ErrorCode.INVALID_RECORD, f"base offset {header.base_offset}, must be 0")
    if header.record_count < 1 or header.record_count != header.last_offset_delta + 1:
        _refuse(
            ErrorCode.INVALID_RECORD,
            f"{header.record_count} records with last offset delta {header.last_offset_delta}",
        )
    if header.attributes & CONTROL_BIT:
        _refuse(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.attributes & CODEC_MASK > Codec.ZSTD:
        _refuse(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {header.compression_code}")
    _validate_producer(header)
    return header


def validate_client_records(
    view: bytearray | memoryview,
    header: BatchHeader,
    *,
    now_ms: int | None = None,
    timestamp_before_max_ms: int = INT64_MAX,
    timestamp_after_max_ms: int = INT64_MAX,
    keyed_partition: str | None = None,
    unpacking: Unpacking | None = None,
    decompressed_record_bytes_max: int = INT32_MAX,
) -> BatchHeader:
    """Check the records of a batch with a checked header; return the header as it must be stored.

    As in Kafka, fields that a producer must not set are corrected in place: the broker's attribute
    bits, and a maximum timestamp that no record has. Raises BatchError: INVALID_RECORD,
    INVALID_TIMESTAMP, or MESSAGE_TOO_LARGE if the request decompresses to too much. Java's producer
    splits a batch after that error.

    now_ms: None with LogAppendTime: the leader's timestamp will replace the records'.
    keyed_partition: name of a partition of a compacted topic, whose records must have keys.
    unpacking: of the request, None for a batch on its own.
    decompressed_record_bytes_max: of one record in a compressed batch, without its length field.
    """
    records = memoryview(view)[HEADER_BYTES:]
    unpacking = unpacking or Unpacking(0)
    try:
        if header.attributes & CODEC_MASK:
            records = _unpacked(records, header, unpacking)
        checked = check_records(records, header.record_count, unpacking.limits.items)
        if header.attributes & CODEC_MASK:
            unpacking.items_left -= checked.header_count
            if len(records) > decompressed_record_bytes_max:
                _refuse_large(bytes(records), header.record_count, decompressed_record_bytes_max)
        if keyed_partition is not None:
            _refuse_keyless(bytes(records), header.record_count, keyed_partition)
    except CompressionError as error:
        raise BatchError(
            ErrorCode.INVALID_RECORD, f"the records cannot be unpacked: {error}"
        ) from error
    except BadRecords as error:
        unpacking.items_left -= unpacking.limits.items
        raise BatchError(error.code, str(error), [(error.index, error.reason)]) from error
    newest_ms = header.max_timestamp_ms
    if now_ms is not None:
        bounds = (timestamp_before_max_ms, timestamp_after_max_ms)
        newest_ms = _newest_timestamp(records, header, checked, now_ms, bounds)
    elif header.is_log_append_time:
        _refuse(ErrorCode.INVALID_TIMESTAMP, "a producer may not set the type LogAppendTime")
    if newest_ms == header.max_timestamp_ms and not header.attributes & ~CLIENT_BITS:
        return header
    return restamp(
        view,
        0,
        header,
        attributes=header.attributes & CLIENT_BITS,
        max_timestamp_ms=newest_ms,
    )


def _unpacked(records: memoryview, header: BatchHeader, unpacking: Unpacking) -> memoryview:
    """Decompress the records and charge `unpacking`, also for a failed attempt. Raises BatchError,
    CompressionError."""
    codec = Codec(header.attributes & CODEC_MASK)
    packed = bytes(records)
    if codec is Codec.LZ4:
        check_lz4_frame(packed)
    unpacking.items_left -= min(header.record_count, unpacking.limits.items)
    if unpacking.items_left < 0 or unpacking.bytes_left <= 0:
        _refuse(ErrorCode.MESSAGE_TOO_LARGE, "the batches of the request unpack to too much")
    bytes_max = min(unpacking.limits.unpacked_bytes, unpacking.bytes_left)
    try:
        unpacked = memoryview(decompress(codec, packed, bytes_max=bytes_max))
    except CompressionError as error:
        unpacking.bytes_left -= bytes_max
        if isinstance(error, UnpacksToMore) and bytes_max < unpacking.limits.unpacked_bytes:
            _refuse(ErrorCode.MESSAGE_TOO_LARGE, f"of what the request may unpack to: {error}")
        raise
    unpacking.bytes_left -= len(unpacked)
    return unpacked


def _refuse_large(records: bytes, count: int, bytes_max: int) -> None:
    """Raise BatchError if a record is larger than `bytes_max`. records: checked, uncompressed."""
    position = 0
    for at in range(count):
        size, start = read_varint(records, position)
        if size > bytes_max:
            _refuse(
                ErrorCode.INVALID_RECORD,
                f"record {at} has {size} bytes once it is decompressed, limit {bytes_max}",
            )
        position = start + size


def _refuse_keyless(records: bytes, count: int, partition: str) -> None:
    """Raise BatchError naming the records without key, if there are any. records: uncompressed."""
    sentence = f"Compacted topic cannot accept message without key in topic partition {partition}."
    errors: list[tuple[int, str]] = []
    position = total = 0
    for at in range(count):
        _, _, key, _, _, position = read_record(records, position)
        if key is None:
            total += 1
            if total <= RECORD_ERRORS_MAX:
                errors.append((at, sentence))
    if errors:
        shown = ", ".join(
            f"RecordError(batchIndex={at}, message='{sentence}')"
            for at, _ in errors[:_RECORD_ERRORS_SHOWN]
        )
        raise BatchError(
            ErrorCode.INVALID_RECORD,
            f"One or more records have been rejected due to {total} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]",
            errors,
        )


def _validate_producer(header: BatchHeader) -> None:
    if header.producer_id >= 0:
        if header.base_sequence < 0:
            _refuse(
                ErrorCode.INVALID_RECORD,
                f"producer {header.producer_id} with sequence {header.base_sequence}",
            )
        if header.producer_epoch < 0:
            _refuse(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} with epoch {header.producer_epoch}",
            )
    elif header.attributes & TRANSACTIONAL_BIT:
        _refuse(ErrorCode.INVALID_RECORD, "a transactional batch without producer id")


def _newest_timestamp(
    records: memoryview,
    header: BatchHeader,
    checked: CheckedRecords,
    now_ms: int,
    bounds: tuple[int, int],
) -> int:
    """The largest timestamp. Raises BatchError naming the records with timestamps out of bounds.

    Sums and distances wrap at 64 bits, as in Kafka. A record without timestamp (-1) is never out of
    bounds.
    records: uncompressed.
    bounds: distances from `now_ms`, backward and forward.
    """
    before_max_ms, after_max_ms = bounds
    base_ms = header.base_timestamp_ms
    newest_ms = base_ms + checked.newest_delta_ms
    may_wrap = checked.has_wide_deltas or not 0 <= base_ms <= INT64_MAX >> 1
    # A lower bound is rare, as is a sum that may wrap. They require a look at each record.
    if not may_wrap and before_max_ms == INT64_MAX and newest_ms - now_ms <= after_max_ms:
        return newest_ms
    newest_ms = INT64_MIN
    errors: list[tuple[int, str]] = []
    data = bytes(records)
    position = total = 0
    for at in range(header.record_count):
        delta_ms, _, position = read_time(data, position)
        timestamp_ms = wrapped_int64(base_ms + delta_ms)
        newest_ms = max(newest_ms, timestamp_ms)
        past_ms = wrapped_int64(now_ms - timestamp_ms)
        is_untimely = past_ms > before_max_ms or wrapped_int64(-past_ms) > after_max_ms
        if timestamp_ms != -1 and is_untimely:
            total += 1
            if total <= RECORD_ERRORS_MAX:
                low, high = now_ms - before_max_ms, now_ms + after_max_ms
                errors.append((at, f"timestamp {timestamp_ms} is not within {low} to {high}"))
    if errors:
        raise BatchError(
            ErrorCode.INVALID_TIMESTAMP,
            f"{total} of {header.record_count} records have a timestamp out of bounds;"
            f" record {errors[0][0]}: {errors[0][1]}",
            errors,
        )
    return newest_ms


def _refuse_short(view: Buffer) -> NoReturn:
    """Refuse bytes without a whole header, which are corrupt if their length field fits them."""
    size = len(view)
    is_whole = False
    if size > MAGIC_AT and view[MAGIC_AT] >= MAGIC:
        length = int.from_bytes(view[8:LENGTH_OVERHEAD], "big", signed=True)
        is_whole = length + LENGTH_OVERHEAD <= size
    code = ErrorCode.CORRUPT_MESSAGE if is_whole else ErrorCode.INVALID_RECORD
    _refuse(code, f"no record batch in {size} bytes")


def _refuse(code: ErrorCode, reason: str) -> NoReturn:
    raise BatchError(code, reason)
