"""Checks the records of a batch against its header: their number, their order, their lengths.

A leader stores batches as sent, so every reader depends on this check: Java's consumer stops for
good at a record with inconsistent lengths. Kafka's LogValidator parses each record. This module
does most of the work by columns. Producers write long runs of records with equal field sizes, one
record every `stride` bytes. The structure of such a run is compared in a few strided slices, at
some nanoseconds a record. Records outside a run are parsed byte by byte.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple, NoReturn

from kvorum.runtime.errors import ErrorCode, KvorumError
from kvorum.storage.format.record_codec import read_varint, read_varint32, varint

BATCH_ITEMS_MAX = 1_000_000
"""Default limit of records in one batch, as in librdkafka (batch.num.messages), and of headers in
all its records. Each is checked, and a few compressed kilobytes can hold more of them than a broker
can check without delaying other requests."""

RECORD_BYTES_MIN = 7
"""Size of the smallest record: one byte each for length, attributes, two deltas, two lengths and
the header count."""

_RUN_MIN = 8
"""Shortest run that is checked as a run; for a shorter one, slicing costs more than parsing."""
_RUN_MAX = 1_024
"""Longest slice for a run of equal records. A slice that turns out not to be a run is wasted work;
that happens at most once per _SINGLES records."""
_SINGLES = 64
"""Records that are parsed one by one before the next attempt at a run."""

_OFFSET_RANGES = ((0, 64), (64, 8_192), (8_192, 32_768))
"""Ranges of offset deltas whose encodings are precomputed, by encoded size. Three bytes would reach
a million."""
_OFFSET_BYTES_MAX = len(_OFFSET_RANGES)

_TIMESTAMP_BYTES_MAX = 9
"""Longest timestamp delta in a run. Ten bytes may hold more than 64 bits, which only parsing each
record can tell."""
_WIDE_MS = 1 << 62
"""Timestamp deltas of at most nine bytes are not wide: at least -_WIDE_MS, and below _WIDE_MS."""

_LAST_BYTES = re.compile(rb"[\x00-\x7f]*")
_OTHER_BYTES = re.compile(rb"[\x80-\xff]*")


class BadRecords(KvorumError):
    """Records that contradict the header. index: of the first wrong one."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"record {index}: {reason}")
        self.code = ErrorCode.INVALID_RECORD
        self.index = index
        self.reason = reason


class CheckedRecords(NamedTuple):
    """Results over a batch's records.

    newest_delta_ms: the largest timestamp delta.
    has_wide_deltas: a timestamp delta needs all 64 bits, so a sum with it may wrap.
    """

    newest_delta_ms: int
    has_wide_deltas: bool
    header_count: int


_Singles = tuple[int, int, int, int]


class _Layout(NamedTuple):
    """Positions of a record's bytes, relative to its start.

    stride: the record's size.
    fixed: bytes of the length fields and of the header count, which is 0.
    """

    stride: int
    fixed: tuple[int, ...]
    timestamp: range
    offset: range


class _Offsets(NamedTuple):
    """Encoded offset deltas from start to end (exclusive), a string for each byte position."""

    start: int
    end: int
    columns: tuple[bytes, ...]


@functools.cache
def _offsets(size: int) -> _Offsets:
    """The offset deltas that take `size` bytes."""
    start, end = _OFFSET_RANGES[size - 1]
    encoded = b"".join(varint(i) for i in range(start, end))
    return _Offsets(start, end, tuple(encoded[i::size] for i in range(size)))


def check_records(
    records: memoryview, count: int, items_max: int = BATCH_ITEMS_MAX
) -> CheckedRecords:
    """Check that `records` (uncompressed) are `count` whole records with offset deltas 0, 1, 2, ...

    items_max: limit of the records, and of their headers.
    Raises BadRecords.
    """
    if not 0 < count <= items_max:
        _bad(0, f"{count} records in a batch; 1 to {items_max} are taken")
    if count * RECORD_BYTES_MIN > len(records):
        _bad(0, f"{count} records in {len(records)} bytes")
    # A copy: strided slices of bytes are ten times as fast as those of a view.
    data = bytes(records)
    at = index = 0
    headers_left = items_max
    newest_ms = -(1 << 63)
    oldest_ms = 0
    while index < count:
        run, at, run_newest_ms = _run(data, at, index, count)
        if run:
            index += run
        else:
            stop = min(index + _SINGLES, count)
            at, run_newest_ms, few_oldest_ms, headers_left = _singles(
                data, at, index, stop, headers_left
            )
            oldest_ms = min(oldest_ms, few_oldest_ms)
            index = stop
        newest_ms = max(newest_ms, run_newest_ms)
    if at != len(data):
        _bad(count - 1, f"{len(data) - at} bytes behind the last of {count} records")
    is_wide = oldest_ms < -_WIDE_MS or newest_ms >= _WIDE_MS
    return CheckedRecords(newest_ms, is_wide, items_max - headers_left)


def _run(data: bytes, at: int, index: int, count: int) -> tuple[int, int, int]:
    """Check a run of equally laid out records from `index` on.

    Returns the number of records, the position after them, and their largest timestamp delta. The
    number is 0 if the records must be parsed one by one.
    """
    layout = _layout(data, at, index)
    if layout is None or len(layout.offset) > _OFFSET_BYTES_MAX:
        return 0, at, 0
    if len(layout.timestamp) > _TIMESTAMP_BYTES_MAX:
        return 0, at, 0
    offsets = _offsets(len(layout.offset))
    if not offsets.start <= index < offsets.end:
        return 0, at, 0
    stride = layout.stride
    run = min(_RUN_MAX, min(count, offsets.end) - index, (len(data) - at) // stride)
    if run < _RUN_MIN:
        return 0, at, 0
    for position in layout.fixed:
        column = _column(data, at + position, stride, run)
        run = len(column) - len(column.lstrip(column[:1]))
    wanted = slice(index - offsets.start, index - offsets.start + run)
    for position, known in zip(layout.offset, offsets.columns, strict=True):
        if _column(data, at + position, stride, run) != known[wanted]:
            return 0, at, 0
    times = [_column(data, at + position, stride, run) for position in layout.timestamp]
    for column, size in zip(times, (*[_OTHER_BYTES] * (len(times) - 1), _LAST_BYTES), strict=True):
        found = size.match(column)
        run = min(run, found.end() if found else 0)
    if run < _RUN_MIN:
        return 0, at, 0
    return run, at + run * stride, _newest([column[:run] for column in times])


def _column(data: bytes, start: int, stride: int, count: int) -> bytes:
    return data[start : start + stride * (count - 1) + 1 : stride]


def _newest(columns: list[bytes]) -> int:
    """The largest of the varints whose bytes are in these columns, first bytes first."""
    if len(columns) == 1:
        return max((raw >> 1) ^ -(raw & 1) for raw in set(columns[0]))
    return max(read_varint(bytes(encoded), 0)[0] for encoded in set(zip(*columns, strict=True)))


def _layout(data: bytes, at: int, index: int) -> _Layout | None:
    """The layout of the record at `at`; None if it is invalid or has headers."""
    start = at
    try:
        length, body = read_varint32(data, at)
        _, timestamp_end = read_varint(data, body + 1)
        offset_delta, offset_end = read_varint32(data, timestamp_end)
        key_bytes, key_at = read_varint32(data, offset_end)
        value_size_at = key_at + max(key_bytes, 0)
        value_bytes, value_at = read_varint32(data, value_size_at)
        count_at = value_at + max(value_bytes, 0)
        has_headers = data[count_at] != 0
    except (IndexError, ValueError):
        return None
    if offset_delta != index or has_headers or count_at + 1 != body + length:
        return None
    if key_bytes < -1 or value_bytes < -1:
        return None
    return _Layout(
        count_at + 1 - start,
        (
            *range(body - start),
            *range(offset_end - start, key_at - start),
            *range(value_size_at - start, value_at - start),
            count_at - start,
        ),
        range(body + 1 - start, timestamp_end - start),
        range(timestamp_end - start, offset_end - start),
    )


def _singles(data: bytes, at: int, index: int, stop: int, headers_left: int) -> _Singles:
    """Check the records up to `stop` one by one. Raises BadRecords.

    Returns the position after them, the largest and the smallest timestamp delta (0 for a small
    one), and the rest of `headers_left`. Varints of one or two bytes, by far the most frequent, are
    decoded in place, because a call for each would double the time.
    """
    newest_ms = -(1 << 63)
    oldest_ms = 0
    number = index
    try:
        for number in range(index, stop):
            byte = data[at]
            if byte >= 0x80 and (high := data[at + 1]) < 0x80 and not byte & 1:
                at += 2
                end = at + ((byte & 0x7F | high << 7) >> 1)
            else:
                length, at = read_varint32(data, at)
                end = at + length
            byte = data[at + 1]
            if byte < 0x80:
                delta_ms = byte >> 1 if not byte & 1 else -(byte >> 1) - 1
                at += 2
            else:
                delta_ms, at = read_varint(data, at + 1)
                if delta_ms < oldest_ms:
                    oldest_ms = delta_ms
            if delta_ms > newest_ms:
                newest_ms = delta_ms
            byte = data[at]
            if byte < 0x80:
                at += 1
                offset_delta = byte >> 1
            elif data[at + 1] < 0x80:
                offset_delta = (byte & 0x7F | data[at + 1] << 7) >> 1
                at += 2
            else:
                offset_delta, at = read_varint32(data, at)
            if offset_delta != number or byte & 1:  # odd ones are negative
                _bad(number, "its offset delta is not its place")
            byte = data[at]
            if byte == 1:  # no key
                at += 1
            else:
                size, at = read_varint32(data, at)
                if size < -1:
                    _bad(number, f"a key of {size} bytes")
                at += size if size > 0 else 0
            byte = data[at]
            if byte >= 0x80 and (high := data[at + 1]) < 0x80 and not byte & 1:
                at += 2 + ((byte & 0x7F | high << 7) >> 1)
            else:
                size, at = read_varint32(data, at)
                if size < -1:
                    _bad(number, f"a value of {size} bytes")
                at += size if size > 0 else 0
            byte = data[at]
            at += 1
            if byte:
                headers, at = read_varint32(data, at - 1)
                at = _skip_headers(data, at, headers, number, headers_left)
                headers_left -= headers
            if at != end:
                _bad(number, f"its fields end {at - end} bytes off its length")
    except IndexError as error:
        raise BadRecords(number, "it runs past the end of the batch") from error
    except ValueError as error:
        raise BadRecords(number, str(error)) from error
    return at, newest_ms, oldest_ms, headers_left


def _skip_headers(data: bytes, at: int, count: int, number: int, headers_left: int) -> int:
    if not 0 < count <= len(data) - at:
        _bad(number, f"claims {count} headers")
    if count > headers_left:
        _bad(number, f"its {count} headers are more than the limit of a batch leaves")
    for _ in range(count):
        size, at = read_varint32(data, at)
        if size < 0:
            _bad(number, "a header without key")
        at += size
        size, at = read_varint32(data, at)
        if size < -1:
            _bad(number, f"a header of {size} bytes")
        at += max(size, 0)
    return at


def _bad(index: int, reason: str) -> NoReturn:
    raise BadRecords(index, reason)
