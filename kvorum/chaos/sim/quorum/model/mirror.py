"""A copy of a node's log, record by record, with a digest of every prefix.

Two logs agree up to an offset if their digests there are equal, so the checks that run after every
event need not read the logs.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvorum.chaos.sim.quorum.model.state import (
    VALUE_PREFIX,
    VOTERS_PREFIX,
    Entry,
    ListState,
    VoterKeys,
    keys_in,
    next_digest,
    voters_value,
)
from kvorum.raft.model.effects import (
    AppendFetched,
    AppendLeaderChange,
    AppendProposed,
    AppendVoters,
    TruncateLog,
)
from kvorum.raft.node.control_records import parse_voters
from kvorum.storage.format.batch import iter_headers, iter_records
from kvorum.storage.log.log import Log

LogEffect = AppendProposed | AppendLeaderChange | AppendVoters | AppendFetched | TruncateLog

READ_BYTES_MAX = 1 << 20

NO_KEYS: VoterKeys = frozenset()


class Mirror:
    """Entries after `base`; of the records that a snapshot replaced only the state is known.

    voter_sets: (offset, voters) of each VotersRecord in the log.
    base_voters: the voters before them. A mirror keeps the records that the log has trimmed since,
        so that the checks compare them too.
    """

    __slots__ = ("_counts", "_digests", "base", "base_voters", "entries", "epochs", "voter_sets")

    def __init__(
        self,
        entries: Iterable[Entry] = (),
        *,
        base: ListState | None = None,
        voters: VoterKeys = NO_KEYS,
    ) -> None:
        self.base = base or ListState()
        self.base_voters = voters
        self.entries: list[Entry] = []
        self.epochs: list[tuple[int, int]] = []
        self.voter_sets: list[tuple[int, VoterKeys]] = []
        if self.base.end_offset:
            # Only the epoch of the record before the base is known.
            self.epochs.append((self.base.epoch, self.base.end_offset - 1))
        self._digests = [self.base.digest]
        self._counts = [self.base.count]
        for epoch, value in entries:
            self.append(epoch, value)

    @property
    def start_offset(self) -> int:
        return self.base.end_offset

    @property
    def end_offset(self) -> int:
        return self.base.end_offset + len(self.entries)

    @property
    def voters(self) -> VoterKeys:
        """The voters of the last VotersRecord, which is in force from its append on."""
        return self.voter_sets[-1][1] if self.voter_sets else self.base_voters

    def voters_at(self, end_offset: int) -> VoterKeys:
        """The voters after the prefix that ends there (exclusive)."""
        for offset, keys in reversed(self.voter_sets):
            if offset < end_offset:
                return keys
        return self.base_voters

    def append(self, epoch: int, value: bytes) -> None:
        """Add one record."""
        if not self.epochs or self.epochs[-1][0] != epoch:
            self.epochs.append((epoch, self.end_offset))
        if value.startswith(VOTERS_PREFIX):
            self.voter_sets.append((self.end_offset, keys_in(value) or NO_KEYS))
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
        while self.voter_sets and self.voter_sets[-1][0] >= end_offset:
            self.voter_sets.pop()

    def carry_out(self, effect: LogEffect) -> None:
        """Apply an operation that the log has just carried out."""
        match effect:
            case AppendProposed(_, epoch, batches):
                for batch in batches:
                    for _, value in entries_of(bytes(batch)):
                        self.append(epoch, value)
            case AppendLeaderChange(_, epoch):
                self.append(epoch, b"")
                if effect.has_voter_set:
                    # KRaftVersion and VotersRecord are in the same batch.
                    self.append(epoch, b"")
                    self.append(epoch, voters_value(effect.voters))
            case AppendVoters(_, epoch):
                self.append(epoch, voters_value(effect.voters))
            case AppendFetched(_, records):
                for epoch, value in entries_of(records):
                    self.append(epoch, value)
            case TruncateLog(end_offset):
                self.truncate(end_offset)

    def entry(self, offset: int) -> Entry | None:
        """The record at offset, None if the mirror does not have it."""
        index = offset - self.start_offset
        return self.entries[index] if 0 <= index < len(self.entries) else None

    def digest_at(self, end_offset: int) -> int | None:
        """Digest of all records below end_offset; None above the end or below the start."""
        index = end_offset - self.start_offset
        return self._digests[index] if 0 <= index < len(self._digests) else None

    def state(self) -> tuple[int, bytes]:
        """The replicated list as a read sees it: the number of values, and the last one (empty if
        none)."""
        count = self._counts[-1]
        if count == self.base.count:
            return count, self.base.last
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


def entries_of(records: bytes) -> list[Entry]:
    """The records of whole batches."""
    entries: list[Entry] = []
    for position, header in iter_headers(records):
        epoch = header.leader_epoch
        for record in iter_records(records, position, header):
            value = record.value or b""
            if header.is_control:
                voters = parse_voters(record.key or b"", value)
                value = b"" if voters is None else voters_value(voters)
            entries.append((epoch, value))
    return entries


def log_entries(log: Log, start_offset: int, end_offset: int) -> list[Entry]:
    """The records of the log from start_offset, which begins a batch, to end_offset (exclusive)."""
    entries: list[Entry] = []
    offset = start_offset
    while offset < end_offset:
        data = log.read(offset, bytes_max=READ_BYTES_MAX, end_offset=end_offset).read()
        entries += entries_of(data)
        offset = max((header.end_offset for _, header in iter_headers(data)), default=end_offset)
    return entries
