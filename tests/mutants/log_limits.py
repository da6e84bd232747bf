"""Mutants of a log's numeric limits, and of the effects of one rule on the next."""

from __future__ import annotations

from tests.mutants.model import Mutant

CLEANING = "kvorum/storage/cleaning/batch_cleaning.py"
CLIENT_BATCH = "kvorum/storage/format/client_batch.py"
COMPRESSION = "kvorum/storage/format/compression.py"
LOOKUP = "kvorum/storage/log/timestamp_lookup.py"

OF_LIMITS = ("tests/test_storage/test_log_limits.py",)

_RULES: tuple[tuple[str, str, str, str, str], ...] = (
    ("aged-bytes-stay-too-much", "segments that expired by age no longer count for retention.bytes",
     "kvorum/storage/log/retention.py",
     "        excess_bytes -= size_bytes\n",
     "        if is_excess or is_below_start:\n            excess_bytes -= size_bytes\n"),
    # Times.
    ("horizon-beyond-64-bits", "a delete horizon fits the batch's timestamps", CLEANING,
     "min(self._now_ms + self._delete_retention_ms, INT64_MAX)",
     "self._now_ms + self._delete_retention_ms"),
    ("delta-beyond-64-bits", "a timestamp delta from a delete horizon fits 64 bits", CLEANING,
     "wrapped_int64(delta_ms + shift_ms)", "delta_ms + shift_ms"),
    ("largest-of-deltas", "the max timestamp of a cleaned batch is that of one of its records", CLEANING,
     "max(wrapped_int64(base_ms + record.fields[0]) for record in kept)",
     "wrapped_int64(base_ms + max(record.fields[0] for record in kept))"),
    ("timestamp-beyond-64-bits", "a timestamp delta that wraps around is decoded correctly",
     "kvorum/storage/format/batch.py",
     "wrapped_int64(header.base_timestamp_ms + delta_ms)\n        yield Record(",
     "header.base_timestamp_ms + delta_ms\n        yield Record("),
    ("below-zero-unbounded", "of the negative timestamps only -1 means none", CLIENT_BATCH,
     "        if timestamp_ms != -1 and is", "        if timestamp_ms >= 0 and is"),
    # lz4.
    ("any-lz4", "lz4 is validated as Java's decoder does", CLIENT_BATCH,
     "    if codec is Codec.LZ4:\n", "    if codec is None:\n"),
    ("linked-lz4", "lz4 blocks are independent", COMPRESSION,
     "_LZ4_FIXED_MASK, _LZ4_FIXED = 0xE3, 0x60", "_LZ4_FIXED_MASK, _LZ4_FIXED = 0xC3, 0x40"),
    ("lz4-with-dictionary", "lz4 without a dictionary only", COMPRESSION,
     "_LZ4_FIXED_MASK, _LZ4_FIXED = 0xE3, 0x60", "_LZ4_FIXED_MASK, _LZ4_FIXED = 0xE2, 0x60"),
    ("two-lz4-frames", "all records are in one lz4 frame", COMPRESSION,
     "    if at != len(data):\n", "    if at > len(data):\n"),
    ("empty-lz4-block", "an empty block does not end an lz4 frame", COMPRESSION,
     "            if size in (1, _LZ4_NOT_PACKED):\n", "            if size in ():\n"),
    # The largest timestamp.
    ("largest-before-its-index", "a segment is asked once its indexes are read", LOOKUP,
     "    offset_index, time_index = segment.indexes\n    _, newest = segment.max_timestamp\n",
     "    _, newest = segment.max_timestamp\n    offset_index, time_index = segment.indexes\n"),
    ("cut-batch-left-out", "a batch that the log start offset cuts is searched too", LOOKUP,
     "        if header.last_offset >= start_offset:\n            found.append",
     "        if header.base_offset >= start_offset:\n            found.append"),
    ("largest-below-the-start", "records below the start do not count", LOOKUP,
     "    if header.base_offset >= start_offset:\n        return header.record_timestamp_max_ms\n",
     "    if header:\n        return header.record_timestamp_max_ms\n"),
    # Epochs.
    ("asked-below-the-start", "offsets below the log start are not looked up in the epoch checkpoint",
     "kvorum/storage/recovery/epoch_recovery.py",
     "        if resumed.end_offset <= log_start_offset:\n", "        if False:\n"),
    ("epochs-of-a-flush-under-way", "a flush under way does not restore removed epochs",
     "kvorum/storage/log/log.py",
     "        self.segments.cancel_derived_files(self._end_offset)\n"
     "        self.epochs.truncate_from_start(base_offset)\n",
     "        self.epochs.truncate_from_start(base_offset)\n"),
    # Positions.
    ("position-beyond-31-bits", "an index works for a segment beyond 2^31 bytes",
     "kvorum/storage/files/index.py",
     "        if position > _POSITION_MAX:\n            return\n", ""),
)  # fmt: skip

MUTANTS = tuple(
    Mutant(name, rule, path, old, new, tests=OF_LIMITS, world="partitions")
    for name, rule, path, old, new in _RULES
)
