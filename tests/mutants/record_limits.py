"""Mutants of what a client's few bytes may cost a broker, and of how long its numbers may be."""

from __future__ import annotations

from tests.mutants.model import Mutant

CLIENT_BATCH = "storage/format/client_batch.py"
PRODUCE = "broker/api/produce.py"
RECORD_CHECK = "storage/format/record_validation.py"

OF_LIMITS = ("tests/test_storage/test_record_limits.py", "tests/test_broker/test_batch_checks.py")
OF_LOOKUPS = ("tests/test_storage/test_log_limits.py",)
OF_ITEMS = ("tests/test_wire/test_item_limits.py",)

_RULES: tuple[tuple[str, str, str, str, str], ...] = (
    # Headers.
    ("headers-without-end", "a batch has a bound of headers", RECORD_CHECK,
     "    if count > headers_left:\n", "    if False:\n"),
    ("headers-of-one-record", "headers are counted over all records", RECORD_CHECK,
     "                headers_left -= headers\n", ""),
    ("lookup-reads-headers", "a lookup by time passes over headers", "storage/format/batch.py",
     "            delta_ms, offset_delta, at = read_time(data, at)\n",
     "            delta_ms, offset_delta, *_, at = read_record(data, at)\n"),
    ("time-beyond-64-bits", "a delta that wrapped is looked up as it was meant", "storage/format/batch.py",
     "wrapped_int64(header.base_timestamp_ms + delta_ms)\n        yield timestamp_ms",
     "header.base_timestamp_ms + delta_ms\n        yield timestamp_ms"),
    # The length of numbers.
    ("ten-bytes-of-length", "lengths take five bytes at most", "storage/format/record_codec.py",
     "    if end - at > VARINT32_BYTES_MAX:\n", "    if end - at > 10:\n"),
    ("64-bits-of-length", "lengths take 32 bits at most", "storage/format/record_codec.py",
     "    if not INT32_MIN <= value <= INT32_MAX:\n", "    if False:\n"),
    ("long-key-in-a-run", "a key's length in a run takes five bytes at most", RECORD_CHECK,
     "        key_bytes, key_at = read_varint32(data, offset_end)\n",
     "        key_bytes, key_at = read_varint(data, offset_end)\n"),
    ("long-value-in-a-run", "a value's length in a run takes five bytes at most", RECORD_CHECK,
     "        value_bytes, value_at = read_varint32(data, value_size_at)\n",
     "        value_bytes, value_at = read_varint(data, value_size_at)\n"),
    # What a request may bring.
    ("unpacked-bytes-not-counted", "the batches of a request share bytes", CLIENT_BATCH,
     "    unpacking.bytes_left -= len(unpacked)\n", ""),
    ("bombs-not-counted", "what could not be unpacked counts as well", CLIENT_BATCH,
     "        unpacking.bytes_left -= bytes_max\n", ""),
    ("records-not-counted", "the batches of a request share records", CLIENT_BATCH,
     "    unpacking.items_left -= min(header.record_count, RECORDS_MAX)\n", ""),
    ("headers-not-counted", "the batches of a request share headers", CLIENT_BATCH,
     "            unpacking.items_left -= header_count\n", "            pass\n"),
    ("wrong-headers-not-counted", "headers of a refused batch count as well", CLIENT_BATCH,
     "            unpacking.items_left -= HEADERS_MAX\n", "            pass\n"),
    ("every-batch-for-itself", "a request has one account", "broker/partition/replica.py",
     "                unpacking=terms.unpacking,\n", ""),
    ("every-record-named", "no more than a hundred records are named", CLIENT_BATCH,
     "RECORD_ERRORS_MAX = 100\n", "RECORD_ERRORS_MAX = 1_000_000\n"),
    ("partition-named-twice", "a partition named twice gets its first batch alone", PRODUCE,
     "        named.add(replica)\n", ""),
)  # fmt: skip

_ITEMS: tuple[tuple[str, str, str, str, str], ...] = (
    ("produce-of-any-size", "a Produce request has a bound of items", "wire/produce_codec.py",
     "Reader(buffer, position, end, items_max=REQUEST_ITEMS_MAX)", "Reader(buffer, position, end)"),
    ("fetch-of-any-size", "a Fetch request has a bound of items", "wire/fetch_codec.py",
     "Reader(buffer, position, end, items_max=REQUEST_ITEMS_MAX)", "Reader(buffer, position, end)"),
    ("header-of-any-size", "a request's header has a bound of tags", "wire/framing.py",
     "Reader(buffer, position, end, items_max=REQUEST_ITEMS_MAX)", "Reader(buffer, position, end)"),
    ("items-by-array", "items of all arrays are counted together", "wire/primitives.py",
     "        self.items_left -= count\n", "        self.items_left = self.items_max - count\n"),
    ("kio-of-any-size", "what kio reads has a bound of items", "wire/kio_codec.py",
     'REQUEST_ITEMS_MAX if kind == "request" else None', "None"),
    ("answers-bounded", "answers of other brokers have no bound of items", "wire/kio_codec.py",
     'REQUEST_ITEMS_MAX if kind == "request" else None', "REQUEST_ITEMS_MAX"),
    ("kio-tags-not-counted", "tags that kio skips are items", "wire/length_check.py",
     "    items.take(count)\n    for _ in range(count):\n        tag, at",
     "    for _ in range(count):\n        tag, at"),
    ("small-arrays-not-counted", "a long body of small arrays is counted", "wire/length_check.py",
     "len(body) <= most and ", ""),
)  # fmt: skip

_LOOKUPS: tuple[tuple[str, str, str, str, str], ...] = (
    ("end-walks-all", "an end inside a segment costs no walk", "storage/log/timestamp_lookup.py",
     "        tail = offset_index.lookup(end_offset - 1)\n", "        tail = 0\n"),
    ("end-walks-nothing", "what is behind the time index is looked at", "storage/log/timestamp_lookup.py",
     "        tail = offset_index.lookup(end_offset - 1)\n", ""),
    ("start-walks-nothing", "a start above the largest leaves the rest", "storage/log/timestamp_lookup.py",
     "                    tail = offset_index.lookup(start_offset)\n", "                    pass\n"),
    ("known-at-the-end", "a batch at the end is not below it", "storage/log/index.py",
     "        at = bisect_left(self.relative_offsets, offset - self.base_offset) - 1\n"
     "        return self.base_offset",
     "        at = bisect_right(self.relative_offsets, offset - self.base_offset) - 1\n"
     "        return self.base_offset"),
)  # fmt: skip

MUTANTS = (
    *(
        Mutant(name, rule, path, old, new, tests=OF_LIMITS, world="partitions")
        for name, rule, path, old, new in _RULES
    ),
    *(
        Mutant(name, rule, path, old, new, tests=OF_ITEMS, world="partitions")
        for name, rule, path, old, new in _ITEMS
    ),
    *(
        Mutant(name, rule, path, old, new, tests=OF_LOOKUPS, world="partitions")
        for name, rule, path, old, new in _LOOKUPS
    ),
)
