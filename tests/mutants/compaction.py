"""Mutants of the cleaner: what one clean leaves to the next, to a start, and to the other logs."""

from __future__ import annotations

from tests.mutants.model import Mutant

TRANSACTIONS = "storage/cleaned_transactions.py"

OF_HISTORIES = ("tests/test_storage/test_cleaning_histories.py",)

_RULES: tuple[tuple[str, str, str, str, str, tuple[str, ...]], ...] = (
    # Transactions.
    ("aborted-past-its-marker", "an aborted transaction ends at its marker, read or not",
     TRANSACTIONS,
     "        return entry is not None and header.last_offset <= entry.last_offset\n",
     "        return entry is not None\n", OF_HISTORIES),
    ("first-aborted-stays-open", "a producer's next transaction ends the one before", TRANSACTIONS,
     "            self._open_aborted[entry.producer_id] = entry\n",
     "            self._open_aborted.setdefault(entry.producer_id, entry)\n", OF_HISTORIES),
)  # fmt: skip

MUTANTS = tuple(
    Mutant(name, rule, path, old, new, tests=tests, world="partitions")
    for name, rule, path, old, new, tests in _RULES
)
