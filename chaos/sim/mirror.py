"""What a node's log holds, record by record, with a digest of every prefix.

Two logs agree up to an offset if their digests there are equal, so the checks that run after
every event cost no walk over the log.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from raft.effects import (
    AppendFetched,
    AppendLeaderChange,
    AppendProposed,
    AppendVoters,
    TruncateLog,
)
from storage.batch import iter_headers, iter_records
from storage.log import Log

LogEffect = AppendProposed | AppendLeaderChange | AppendVoters | AppendFetched | TruncateLog

Entry = tuple[int, bytes]
"""Epoch and value of one record; the value of a control record is empty."""

READ_BYTES_MAX = 1 << 20

VALUE_PREFIX = b"v"
"""What clients append begins so; barriers of reads and control records do not count as values."""


class Mirror:
    """Entries from start_offset on; below it only a digest is known (a snapshot took its place)."""

    __slots__ = ("_counts", "_digests", "entries", "epochs", "start_offset")

    def __init__(
        self, entries: Iterable[Entry] = (), *, start_offset: int = 0, start_digest: int = 0
    ) -> None:
        self.start_offset = start_offset
        self.entries: list[Entry] = []
        self.epochs: list[tuple[int, int]] = []
        self._digests = [start_digest]
        self._counts = [0]
        for epoch, value in entries:
            self.append(epoch, value)

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.entries)

    def append(self, epoch: int, value: bytes) -> None:
        """One more record."""
        if not self.epochs or self.epochs[-1][0] != epoch:
            self.epochs.append((epoch, self.end_offset))
        self.entries.append((epoch, value))
        self._digests.append(next_digest(self._digests[-1], epoch, value))
        self._counts.append(self._counts[-1] + value.startswith(VALUE_PREFIX))

    def truncate(self, end_offset: int) -> None:
        """Drop everything at and above end_offset."""
        keep = max(end_offset - self.start_offset, 0)
        del self.entries[keep:]
        del self._digests[keep + 1 :]
        del self._counts[keep + 1 :]
        while self.epochs and self.epochs[-1][1] >= end_offset:
            self.epochs.pop()

    def carry_out(self, effect: LogEffect) -> None:
        """What the log has just done."""
        match effect:
            case AppendProposed(_, epoch, batches):
                for batch in batches:
                    for _, value in entries_of(bytes(batch)):
                        self.append(epoch, value)
            case AppendLeaderChange(_, epoch):
                # With a dynamic voter set KRaftVersion and VotersRecord stand in the same batch.
                for _ in range(3 if effect.has_voter_set else 1):
                    self.append(epoch, b"")
            case AppendVoters(_, epoch):
                self.append(epoch, b"")
            case AppendFetched(_, records):
                for epoch, value in entries_of(records):
                    self.append(epoch, value)
            case TruncateLog(end_offset):
                self.truncate(end_offset)

    def entry(self, offset: int) -> Entry | None:
        """The record at offset, None if it is not held."""
        index = offset - self.start_offset
        return self.entries[index] if 0 <= index < len(self.entries) else None

    def digest_at(self, end_offset: int) -> int | None:
        """Digest of everything below end_offset; None beyond the end or below the start."""
        index = end_offset - self.start_offset
        return self._digests[index] if 0 <= index < len(self._digests) else None

    def state(self) -> tuple[int, bytes]:
        """The replicated list as a read sees it: how many values, and the last (empty if none)."""
        count = self._counts[-1]
        if not count:
            return 0, b""
        return count, next(v for _, v in reversed(self.entries) if v.startswith(VALUE_PREFIX))

    def agreed_end(self, other: Mirror) -> int:
        """The greatest end offset whose last record has the same epoch in both logs, else 0."""
        i, j = len(self.epochs) - 1, len(other.epochs) - 1
        own_end, other_end = self.end_offset, other.end_offset
        while i >= 0 and j >= 0:
            (own_epoch, own_start), (epoch, start) = self.epochs[i], other.epochs[j]
            if own_epoch == epoch and min(own_end, other_end) > max(own_start, start):
                return min(own_end, other_end)
            if own_epoch >= epoch:
                own_end = own_start
                i -= 1
            if epoch >= own_epoch:
                other_end = start
                j -= 1
        return 0

    def differs_at(self, other: Mirror) -> int:
        """The first offset at which the logs differ, the lesser end if one is a prefix."""
        offset = max(self.start_offset, other.start_offset)
        end_offset = min(self.end_offset, other.end_offset)
        while offset < end_offset and self.entry(offset) == other.entry(offset):
            offset += 1
        return offset


def next_digest(digest: int, epoch: int, value: bytes) -> int:
    """Digest of a prefix and one more record."""
    return zlib.crc32(b"%d:%b" % (epoch, value), digest)


def entries_of(records: bytes) -> list[Entry]:
    """The records of whole batches."""
    entries: list[Entry] = []
    for position, header in iter_headers(records):
        epoch = header.leader_epoch
        if header.is_control:
            entries += [(epoch, b"")] * header.record_count
        else:
            for record in iter_records(records, position, header):
                entries.append((epoch, record.value or b""))
    return entries


def log_entries(log: Log, start_offset: int, end_offset: int) -> list[Entry]:
    """The records of the log from start_offset to end_offset (exclusive)."""
    entries: list[Entry] = []
    offset = start_offset
    while offset < end_offset:
        data = log.read(offset, bytes_max=READ_BYTES_MAX, end_offset=end_offset).read()
        entries += entries_of(data)
        offset = max((header.end_offset for _, header in iter_headers(data)), default=end_offset)
    return entries
