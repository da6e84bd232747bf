"""Mutants of what a log does at the ends of its numbers, and of what one rule leaves the next."""

from __future__ import annotations

from tests.mutants.model import Mutant

CLEANING = "storage/batch_cleaning.py"
CLIENT_BATCH = "storage/client_batch.py"

OF_LIMITS = ("tests/test_storage/test_log_limits.py",)

_RULES: tuple[tuple[str, str, str, str, str], ...] = (
    ("aged-bytes-stay-too-much", "what goes for its age is no longer too much",
     "storage/retention.py",
     "        excess_bytes -= size_bytes\n",
     "        if is_excess or is_below_start:\n            excess_bytes -= size_bytes\n"),
    # Times.
    ("horizon-beyond-64-bits", "a horizon fits its batch", CLEANING,
     "min(self._now_ms + self._delete_retention_ms, INT64_MAX)",
     "self._now_ms + self._delete_retention_ms"),
    ("delta-beyond-64-bits", "a delta from a horizon fits 64 bits", CLEANING,
     "wrapped_int64(delta_ms + shift_ms)", "delta_ms + shift_ms"),
    ("largest-of-deltas", "the largest timestamp of a cleaned batch is that of a record", CLEANING,
     "max(wrapped_int64(base_ms + record.fields[0]) for record in kept)",
     "wrapped_int64(base_ms + max(record.fields[0] for record in kept))"),
    ("timestamp-beyond-64-bits", "a delta that wrapped is read as it was meant",
     "storage/batch.py",
     "wrapped_int64(header.base_timestamp_ms + delta_ms)", "header.base_timestamp_ms + delta_ms"),
    ("below-zero-unbounded", "of timestamps below 0 only -1 is none", CLIENT_BATCH,
     "        elif timestamp_ms != -1 and (", "        elif timestamp_ms >= 0 and ("),
)  # fmt: skip

MUTANTS = tuple(
    Mutant(name, rule, path, old, new, tests=OF_LIMITS, world="partitions")
    for name, rule, path, old, new in _RULES
)
