"""The transaction index of a segment: its .txnindex file, a list of aborted transactions (KIP-98).

A transaction's entry is in the segment that holds its ABORT marker. It has 34 bytes: i16 version 0,
i64 producer id, i64 first offset of the transaction, i64 offset of the marker, i64 last stable
offset at that time. Entries are in log order, so the marker offsets rise.

A fetch response names the transactions that overlap it, and a read-committed consumer skips their
records. The file exists only if it has an entry. Otherwise it is written and removed like the other
indexes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from kvorum.runtime.errors import CorruptData

ENTRY_BYTES = 34
_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """An aborted transaction.

    last_offset: of its marker.
    last_stable_offset: the lowest offset that was undecided at that time.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def pack_aborted(entries: Iterable[AbortedTransaction]) -> bytes:
    """The content of a .txnindex file."""
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


def parse_aborted(data: bytes, path: str) -> list[AbortedTransaction]:
    """The entries of a .txnindex file. Raises CorruptData."""
    whole = len(data) - len(data) % ENTRY_BYTES
    if whole != len(data):
        raise CorruptData(path, whole, f"{len(data)} bytes are no multiple of {ENTRY_BYTES}")
    entries = []
    for at, (version, *fields) in enumerate(_ENTRY.iter_unpack(data)):
        if version != _VERSION:
            raise CorruptData(path, at * ENTRY_BYTES, f"transaction index version {version}")
        entries.append(AbortedTransaction(*fields))
    for at, (before, after) in enumerate(pairwise(entries)):
        if before.last_offset >= after.last_offset:
            raise CorruptData(path, (at + 1) * ENTRY_BYTES, "marker offsets do not rise")
    return entries


def collect_aborted(
    per_segment: Iterable[list[AbortedTransaction]], first_offset: int, end_offset: int
) -> list[AbortedTransaction]:
    """The transactions that overlap [first_offset, end_offset).

    per_segment: entries of the segment that holds `first_offset` and of all later segments, because
    a transaction's marker may be several segments after its records.
    """
    found: list[AbortedTransaction] = []
    for entries in per_segment:
        for entry in entries:
            if entry.last_offset >= first_offset and entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                # Every transaction below end_offset had been decided when this marker was written.
                return found
    return found
