"""Mutants of what a log does at the ends of its numbers, and of what one rule leaves the next."""

from __future__ import annotations

from tests.mutants.model import Mutant

OF_LIMITS = ("tests/test_storage/test_log_limits.py",)

_RULES: tuple[tuple[str, str, str, str, str], ...] = (
    ("aged-bytes-stay-too-much", "what goes for its age is no longer too much",
     "storage/retention.py",
     "        excess_bytes -= size_bytes\n",
     "        if is_excess or is_below_start:\n            excess_bytes -= size_bytes\n"),
)  # fmt: skip

MUTANTS = tuple(
    Mutant(name, rule, path, old, new, tests=OF_LIMITS, world="partitions")
    for name, rule, path, old, new in _RULES
)
