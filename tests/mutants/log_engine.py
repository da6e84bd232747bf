"""Rules of compaction, transactions in the log and deletion, each with an edit that breaks it."""

from __future__ import annotations

from tests.mutants.model import mutants_of

CLEANING = "kvorum/storage/cleaning/cleanable_range.py"
BATCH = "kvorum/storage/cleaning/batch_cleaning.py"
TRANSACTIONS = "kvorum/storage/cleaning/cleaned_transactions.py"
CLEANER = "kvorum/storage/cleaning/cleaner.py"
SWAP = "kvorum/storage/cleaning/segment_swap.py"
SEGMENTS = "kvorum/storage/log/segments.py"
PRODUCERS = "kvorum/storage/files/producer_state.py"
WALK = "kvorum/storage/recovery/batch_walk.py"
STATE = "kvorum/storage/recovery/recovery_state.py"
EPOCHS = "kvorum/storage/files/leader_epochs.py"
INDEX = "kvorum/storage/files/transaction_index.py"
LOG = "kvorum/storage/log/log.py"

_RULES = (
    # Records that a clean may remove.
    ("above-the-stable-offset", "nothing above the last stable offset is cleaned", CLEANING,
     "if following > stable_offset or is_young:", "if is_young:"),
    ("young-records-cleaned", "min.compaction.lag.ms keeps young records", CLEANING,
     "if following > stable_offset or is_young:", "if following > stable_offset:"),
    ("late-records-left", "max.compaction.lag.ms makes a clean due", CLEANING,
     "self.is_overdue or self.dirty_ratio", "self.dirty_ratio"),
    ("groups-too-large", "joined segments do not exceed segment.bytes", CLEANING,
     "            and total[0] <= segment_bytes\n", ""),
    ("older-record-kept", "only the latest record of each key stays", BATCH,
     "if key is None or offset < self._offsets.get(key):", "if key is None:"),
    ("unmapped-records-dropped", "records above the map's end are not removed", BATCH,
     "        if offset > self._offsets.latest_offset:\n            return True\n", ""),
    ("tombstone-gone-at-once", "a tombstone stays until its delete horizon", BATCH,
     "return value is not None or not is_expired", "return value is not None"),
    ("tombstone-for-ever", "a tombstone is removed after its delete horizon", BATCH,
     "return value is not None or not is_expired", "return True"),
    ("timestamps-moved", "a delete horizon in the base timestamp does not change the records' timestamps", BATCH,
     "shift_ms = header.base_timestamp_ms - horizon_ms", "shift_ms = 0"),
    ("sequence-forgotten", "the last batch of each producer stays", BATCH,
     "return header.last_offset == end.last_data_offset", "return False"),
    ("aborted-record-counted", "an aborted record does not replace a committed one", CLEANER,
     "elif not transactions.is_aborted(header) and header", "elif header"),
    ("marker-before-its-records", "a marker outlasts the records of its transaction", TRANSACTIONS,
     "            return not was_seen\n", "            return True\n"),
    ("map-without-bound", "a clean stops where the map is full", CLEANER,
     "if len(offsets) and len(offsets) + len(keys) > offsets.capacity:", "if False:"),
    # The swap.
    ("commit-without-indexes", "a start finishes a committed swap of segments", SWAP,
     "        _finish(disk, directory, base_offset, replaced)\n    for", "    for"),
    ("old-segments-left", "a swap takes the old segments away", SWAP,
     "        mark_deleted(disk, directory, offset)\n", "        pass\n"),
    ("cleaned-left-behind", "what was never agreed on is removed", SWAP,
     "            disk.remove(path)\n", "            pass\n"),
    ("swap-after-truncation", "a truncation cancels the clean under way", SEGMENTS,
     "            self._cleaning.cancel()\n", ""),
    ("swap-not-applied", "a truncation sees the cleaned segment", SEGMENTS,
     "            self._cleaning.cancel()\n            self.apply_swap(delete_at_ms=0)\n",
     "            self._cleaning.cancel()\n"),
    ("unflushed-cleaned", "only completely fsynced segments are cleaned", SEGMENTS,
     "            if not segment.has_saved_indexes or id(segment) in waiting:\n", "            if 0:\n"),
    ("index-gone-for-a-moment", "recovery never removes the index of a verified segment", WALK,
     "is_proven = has_proof and torn_tail is None", "is_proven = False"),
    ("state-above-the-point", "recovery reads all batches above the recovery point", STATE,
     " if entry.end_offset <= recovery_point]\n", " if True]\n"),
    ("state-outlives-a-cut", "a truncation drops the saved state of the truncated batches", SEGMENTS,
     "        self._disk.remove(segment.path(RECOVERY_SUFFIX))\n", ""),
    ("hole-in-the-state", "an entry that could not be written is written with the next one", SEGMENTS,
     "            self._recovery_state.forget()\n", ""),
    ("leftover-believed", "the recovery state of a sealed segment is ignored", "kvorum/storage/recovery/recovery.py",
     "    is_sealed = segment.has_saved_indexes and", "    is_sealed = False and"),
    ("repeats-forgotten", "the last five batches of a producer survive a kill", STATE,
     "list(known.batches),", "list(known.batches[-1:]),"),
    ("state-of-another-log", "saved recovery state must match the log's batches", STATE,
     "        if header.crc == last.last_crc:", "        if True:"),
    ("walked-again", "a start saves the state of the batches that it has read", WALK,
     "            write_recovery_state(disk, segments[-1], self.producers)\n", "            pass\n"),
    ("state-for-ever", "the recovery file is rewritten when half of it is obsolete", STATE,
     "2 * self._whole_bytes + _WASTE_BYTES_MAX", "(1 << 40)"),
    ("epoch-before-its-fsync", "a truncation writes no epoch to the checkpoint whose record is not fsynced", EPOCHS,
     "self._cache.to_bytes(durable_end_offset)", "self._cache.to_bytes()"),
    ("durable-without-epochs", "the epochs of all fsynced records are in the checkpoint", LOG,
     "        if ticket.owes_epochs:\n", "        if False:\n"),
    ("owed-epochs-forgotten", "epochs that a flush could not write are written with the next one", LOG,
     "            self.epochs.is_dirty = True\n", "            pass\n"),
    ("epoch-start-lost", "compaction does not change an epoch's start offset", EPOCHS,
     "                elif low <= other_start < start:", "                elif False:"),
    ("compaction-moves-the-start", "compaction of the first batches does not move the log start offset",
     "kvorum/storage/recovery/epoch_recovery.py",
     "            return header.base_offset < epochs.start_offsets[0]\n", "            return True\n"),
    # Transactions.
    ("undecided-is-stable", "an open transaction holds the last stable offset", PRODUCERS,
     "stable = next(iter(self.ongoing), high_watermark)", "stable = high_watermark"),
    ("marker-not-replicated", "a marker counts once it is replicated", PRODUCERS,
     "        self.unreplicated[last_offset] = first_offset\n", ""),
    ("commit-indexed", "only aborted transactions are in the index", PRODUCERS,
     "        if marker.is_commit:\n            return None\n", ""),
    ("stable-offset-of-entry", "an entry of the transaction index has the last stable offset of its time", PRODUCERS,
     "stable = next(iter(self.ongoing), last_offset + 1)", "stable = last_offset + 1"),
    ("marker-far-behind", "aborted transactions are found although their markers are after the fetched range", INDEX,
     "if entry.last_offset >= first_offset and entry.first_offset < end_offset:",
     "if first_offset <= entry.last_offset < end_offset:"),
)  # fmt: skip

MUTANTS = mutants_of(_RULES, tests=("tests/test_storage",))
