"""Mutants of the cleaner: the state that a clean leaves to the next clean, to a start, and to other
logs."""

from __future__ import annotations

from tests.mutants.model import Mutant

CLEANER = "kvorum/storage/cleaning/cleaner.py"
SWAPPING = "kvorum/storage/cleaning/segment_swap.py"
TRANSACTIONS = "kvorum/storage/cleaning/cleaned_transactions.py"

OF_HISTORIES = ("tests/test_storage/test_cleaning_histories.py",)
OF_BROKERS = ("tests/test_broker/test_cleaner.py",)

_RULES: tuple[tuple[str, str, str, str, str, tuple[str, ...]], ...] = (
    # Transactions.
    ("aborted-past-its-marker", "an aborted transaction ends at its marker, read or not",
     TRANSACTIONS,
     "        return entry is not None and header.last_offset <= entry.last_offset\n",
     "        return entry is not None\n", OF_HISTORIES),
    ("first-aborted-stays-open", "a producer's next transaction ends the previous one", TRANSACTIONS,
     "            self._open_aborted[entry.producer_id] = entry\n",
     "            self._open_aborted.setdefault(entry.producer_id, entry)\n", OF_HISTORIES),
    # Swaps that break off.
    ("old-index-beside-new-log", "finishing a swap moves the old indexes away", SWAPPING,
     "        replaced = [base_offset]\n        replaced += [\n            offset\n"
     "            for offset in offsets_of(disk.list_dir(directory), LOG_SUFFIX)\n"
     "            if base_offset < offset < end_offset\n        ]\n",
     "        replaced = [\n            offset\n"
     "            for offset in offsets_of(disk.list_dir(directory), LOG_SUFFIX)\n"
     "            if base_offset <= offset < max(end_offset, base_offset + 1)\n        ]\n",
     OF_HISTORIES),
    ("agreed-swap-discarded", "a committed swap is not discarded", CLEANER,
     "            self._written_base_offset = None\n            swap_in(",
     "            swap_in(", OF_HISTORIES),
    # Producers.
    ("snapshot-outlives-markers", "producer snapshots below the end of a clean are removed", CLEANER,
     "            remove_stale_snapshots(self._disk, self._directory, new.base_offset, end_offset)\n",
     "", OF_HISTORIES),
    ("snapshots-removed-late", "stale producer snapshots are removed before the swap is committed", CLEANER,
     "            remove_stale_snapshots(self._disk, self._directory, new.base_offset, end_offset)\n"
     "            self._written_base_offset = None\n"
     "            swap_in(self._disk, self._directory, new.base_offset, replaced)\n",
     "            self._written_base_offset = None\n"
     "            swap_in(self._disk, self._directory, new.base_offset, replaced)\n"
     "            remove_stale_snapshots(self._disk, self._directory, new.base_offset, end_offset)\n",
     OF_HISTORIES),
    ("first-snapshot-kept", "also that of the first cleaned segment", SWAPPING,
     "        if base_offset <= offset < end_offset:\n            disk.remove(",
     "        if base_offset < offset < end_offset:\n            disk.remove(", OF_HISTORIES),
    ("snapshot-at-the-end-removed", "the snapshot where a clean ends stays", SWAPPING,
     "        if base_offset <= offset < end_offset:\n            disk.remove(",
     "        if base_offset <= offset <= end_offset:\n            disk.remove(", OF_HISTORIES),
    # Cuts, and age.
    ("cut-asked-of-old-segments", "the end of a truncation is looked up in the segments that it truncates",
     "kvorum/storage/log/log.py",
     "        segments.stop_cleaning()\n        segment = segments.items[",
     "        segment = segments.items[", OF_HISTORIES),
    ("cleaned-is-new", "a cleaned segment keeps the file times of its sources", CLEANER,
     "            self._disk.set_modified_ms(new.path(LOG_SUFFIX), modified_ms)\n", "",
     OF_HISTORIES),
    ("cleaned-is-old", "a cleaned segment has the file time of its newest source", CLEANER,
     "            modified_ms = max(", "            modified_ms = min(", OF_HISTORIES),
    # The other logs.
    ("bug-ends-the-cleaner", "an unexpected error ends the compaction of one log only",
     "kvorum/broker/manager/log_cleaner.py",
     "    except (KvorumError, OSError):\n        raise\n    except Exception as error:\n",
     "    except NotImplementedError as error:\n", OF_BROKERS),
)  # fmt: skip

MUTANTS = tuple(
    Mutant(name, rule, path, old, new, tests=tests, world="partitions")
    for name, rule, path, old, new, tests in _RULES
)
