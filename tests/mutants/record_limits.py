"""Mutants of the limits on a client's records: the work of the broker for a few bytes, and the
length of numbers."""

from __future__ import annotations

from tests.mutants.model import Mutant

CLIENT_BATCH = "kvorum/storage/format/client_batch.py"
PRODUCE = "kvorum/broker/api/produce.py"
RECORD_CHECK = "kvorum/storage/format/record_validation.py"

OF_LIMITS = ("tests/test_storage/test_record_limits.py", "tests/test_broker/test_batch_checks.py")
OF_LOOKUPS = ("tests/test_storage/test_log_limits.py",)
OF_ITEMS = ("tests/test_wire/test_item_limits.py",)
OF_BATCHES = ("tests/test_storage/test_client_batch.py", "tests/test_broker/test_request_limits.py")

_RULES: tuple[tuple[str, str, str, str, str], ...] = (
    # Headers.
    ("headers-without-end", "the number of headers in a batch is bounded", RECORD_CHECK,
     "    if count > headers_left:\n", "    if False:\n"),
    ("headers-of-one-record", "headers are counted over all records", RECORD_CHECK,
     "                headers_left -= headers\n", ""),
    ("lookup-reads-headers", "a lookup by time skips headers", "kvorum/storage/format/batch.py",
     "            delta_ms, offset_delta, at = read_time(data, at)\n",
     "            delta_ms, offset_delta, *_, at = read_record(data, at)\n"),
    ("time-beyond-64-bits", "a lookup decodes a timestamp delta that wraps around correctly", "kvorum/storage/format/batch.py",
     "wrapped_int64(header.base_timestamp_ms + delta_ms)\n        yield timestamp_ms",
     "header.base_timestamp_ms + delta_ms\n        yield timestamp_ms"),
    # The length of numbers.
    ("ten-bytes-of-length", "lengths take five bytes at most", "kvorum/storage/format/record_codec.py",
     "    if end - at > VARINT32_BYTES_MAX:\n", "    if end - at > 10:\n"),
    ("64-bits-of-length", "lengths take 32 bits at most", "kvorum/storage/format/record_codec.py",
     "    if not INT32_MIN <= value <= INT32_MAX:\n", "    if False:\n"),
    ("long-key-in-a-run", "a key's length takes five bytes at most, also in a run of equal records", RECORD_CHECK,
     "        key_bytes, key_at = read_varint32(data, offset_end)\n",
     "        key_bytes, key_at = read_varint(data, offset_end)\n"),
    ("long-value-in-a-run", "a value's length takes five bytes at most, also in a run of equal records", RECORD_CHECK,
     "        value_bytes, value_at = read_varint32(data, value_size_at)\n",
     "        value_bytes, value_at = read_varint(data, value_size_at)\n"),
    # Contents of a request.
    ("unpacked-bytes-not-counted", "the batches of a request share one limit of decompressed bytes", CLIENT_BATCH,
     "    unpacking.bytes_left -= len(unpacked)\n", ""),
    ("bombs-not-counted", "batches that fail to decompress count toward the limit too", CLIENT_BATCH,
     "        unpacking.bytes_left -= bytes_max\n", ""),
    ("records-not-counted", "the batches of a request share one limit of records", CLIENT_BATCH,
     "    unpacking.items_left -= min(header.record_count, unpacking.limits.items)\n", ""),
    ("headers-not-counted", "the batches of a request share one limit of headers", CLIENT_BATCH,
     "            unpacking.items_left -= checked.header_count\n", "            pass\n"),
    ("wrong-headers-not-counted", "headers of a refused batch count too", CLIENT_BATCH,
     "        unpacking.items_left -= unpacking.limits.items\n", ""),
    ("every-batch-for-itself", "the limits are those of the whole request", "kvorum/broker/partition/replica.py",
     "                unpacking=terms.unpacking,\n", ""),
    ("every-record-named", "at most a hundred records are named in an error", CLIENT_BATCH,
     "RECORD_ERRORS_MAX = 100\n", "RECORD_ERRORS_MAX = 1_000_000\n"),
    ("partition-named-twice", "of a partition that a request names twice only the first batch is stored", PRODUCE,
     "        named.add(replica)\n", ""),
)  # fmt: skip

_ITEMS: tuple[tuple[str, str, str, str, str], ...] = (
    ("produce-of-any-size", "the number of items in a Produce request is bounded", "kvorum/wire/produce_codec.py",
     "Reader(buffer, position, end, items_max=items_max)", "Reader(buffer, position, end)"),
    ("fetch-of-any-size", "the number of items in a Fetch request is bounded", "kvorum/wire/fetch_codec.py",
     "Reader(buffer, position, end, items_max=items_max)", "Reader(buffer, position, end)"),
    ("header-of-any-size", "the number of tagged fields in a request header is bounded", "kvorum/wire/framing.py",
     "Reader(buffer, position, end, items_max=REQUEST_ITEMS_MAX)", "Reader(buffer, position, end)"),
    ("items-by-array", "one limit covers the items of all arrays", "kvorum/wire/primitives.py",
     "        self.items_left -= count\n", "        self.items_left = self.items_max - count\n"),
    ("kio-of-any-size", "requests decoded by kio have a limit of items", "kvorum/wire/kio_codec.py",
     '"request", body, items_max)', '"request", body, None)'),
    ("answers-bounded", "answers of other brokers have no limit of items", "kvorum/wire/kio_codec.py",
     '"response", body, None)', '"response", body, REQUEST_ITEMS_MAX)'),
    ("kio-tags-not-counted", "tagged fields that kio skips count as items", "kvorum/wire/length_check.py",
     "    met.take(count)\n    first, kept", "    first, kept"),
    ("small-arrays-not-counted", "a long body of many small arrays is counted", "kvorum/wire/length_check.py",
     "len(body) <= most and ", ""),
)  # fmt: skip

_BATCHES: tuple[tuple[str, str, str, str, str], ...] = (
    ("distance-beyond-64-bits", "the distance of a timestamp from now wraps at 64 bits", CLIENT_BATCH,
     "wrapped_int64(now_ms - timestamp_ms)", "now_ms - timestamp_ms"),
    ("sum-beyond-64-bits", "a timestamp is held to the bounds after it has wrapped", CLIENT_BATCH,
     "wrapped_int64(base_ms + delta_ms)", "base_ms + delta_ms"),
    ("wide-deltas-unseen", "a batch with timestamp deltas of 64 bits is checked record by record", RECORD_CHECK,
     "                if delta_ms < oldest_ms:\n", "                if False:\n"),
    ("append-time-from-a-producer", "a producer may not set the type LogAppendTime", CLIENT_BATCH,
     "    elif header.is_log_append_time:\n", "    elif False:\n"),
    ("limit-of-the-file-unheard", "the limits of a batch are those of the broker's file", PRODUCE,
     "Unpacking(end - position, context.services.batch_limits)", "Unpacking(end - position)"),
    ("limit-unheard-by-threads", "the same for a batch that is recompressed", "kvorum/broker/partition/recompression.py",
     "Unpacking(len(item.batch), limits)", "Unpacking(len(item.batch))"),
    ("items-of-the-file-unheard", "the limit of items is that of the broker's file", "kvorum/broker/api/context.py",
     "self.api_version, body, items_max=self.request_items_max)", "self.api_version, body)"),
)  # fmt: skip

_LOOKUPS: tuple[tuple[str, str, str, str, str], ...] = (
    ("end-walks-all", "a lookup by time that ends inside a segment scans only from the nearest index entry", "kvorum/storage/log/timestamp_lookup.py",
     "        tail = offset_index.lookup(end_offset - 1)\n", "        tail = 0\n"),
    ("end-walks-nothing", "batches after the last time index entry are scanned", "kvorum/storage/log/timestamp_lookup.py",
     "        tail = offset_index.lookup(end_offset - 1)\n", ""),
    ("start-walks-nothing", "a lookup by time that starts inside a segment scans only from the nearest index entry", "kvorum/storage/log/timestamp_lookup.py",
     "                    tail = offset_index.lookup(start_offset)\n", "                    pass\n"),
    ("known-at-the-end", "a batch at the end is not below it", "kvorum/storage/files/index.py",
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
        Mutant(name, rule, path, old, new, tests=OF_BATCHES, world="partitions")
        for name, rule, path, old, new in _BATCHES
    ),
    *(
        Mutant(name, rule, path, old, new, tests=OF_LOOKUPS, world="partitions")
        for name, rule, path, old, new in _LOOKUPS
    ),
)
