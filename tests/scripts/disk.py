"""The memory disk of one node of a script: entries, vote, snapshots, and how much is synced."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from kvorum.raft.model.values import BatchSpan, OffsetAndEpoch, VoteState
from kvorum.raft.model.voters import NO_VOTERS, VoterSet
from tests.scripts import describe


@dataclass(frozen=True, slots=True)
class Entry:
    """One record. value: the text of a proposal, or a control record's short name.

    voters: the set that a VotersRecord holds. is_last: the last record of its batch.
    """

    epoch: int
    value: str
    voters: VoterSet | None = None
    is_control: bool = False
    is_last: bool = True


class NodeDisk:
    """state: values applied below the start of the log; bootstrap: voters before the log."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.entries: list[Entry] = []
        self.synced_end_offset = 0
        self.vote = VoteState()
        self.snapshots: dict[OffsetAndEpoch, bytes] = {}
        self.bootstrap: VoterSet | None = None
        self.state: tuple[str, ...] = ()
        self.part = b""
        self.part_of: OffsetAndEpoch | None = None

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.entries)

    @property
    def snapshot_ids(self) -> list[OffsetAndEpoch]:
        return sorted(self.snapshots, key=lambda s: s.offset)

    def epoch_at(self, offset: int) -> int:
        if offset < self.start_offset:
            return self.snapshot_ids[0].epoch
        return self.entries[offset - self.start_offset].epoch

    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, start offset) as LogTail wants it."""
        found: list[tuple[int, int]] = []
        for offset, entry in enumerate(self.entries, self.start_offset):
            if not found or entry.epoch > found[-1][0]:
                found.append((entry.epoch, offset))
        return found

    def voter_sets(self) -> list[tuple[int, VoterSet]]:
        sets = [(self.start_offset - 1, self._base_voters())]
        for offset, entry in enumerate(self.entries, self.start_offset):
            if entry.voters is not None:
                sets.append((offset, entry.voters))
        return sets

    def _base_voters(self) -> VoterSet:
        if self.snapshots:
            return parse_snapshot(self.snapshots[self.snapshot_ids[0]])[1]
        return self.bootstrap or NO_VOTERS

    def append(self, base_offset: int, entries: list[Entry]) -> None:
        assert base_offset == self.end_offset
        self.entries += entries

    def batches(self, fetch_offset: int, end_offset: int, count: int) -> list[list[Entry]]:
        """Whole batches from fetch_offset on, at most `count` of them."""
        found: list[list[Entry]] = []
        batch: list[Entry] = []
        first = fetch_offset - self.start_offset
        assert first >= 0
        for entry in self.entries[first : end_offset - self.start_offset]:
            batch.append(entry)
            if entry.is_last:
                found.append(batch)
                batch = []
        assert not batch, "a batch is cut"
        return found[:count]

    def truncate(self, end_offset: int) -> None:
        assert end_offset >= self.start_offset
        del self.entries[end_offset - self.start_offset :]
        self.synced_end_offset = min(self.synced_end_offset, end_offset)

    def crash(self) -> None:
        """Lose what was not synced."""
        self.truncate(max(self.synced_end_offset, self.start_offset))

    def recover(self) -> None:
        """Like `recover_log`: a log that diverges from the newest snapshot is emptied."""
        self.part, self.part_of = b"", None
        ids = self.snapshot_ids
        if not ids:
            return
        newest = ids[-1]
        fits = newest.offset <= self.end_offset and (
            newest.offset == self.start_offset or self.epoch_at(newest.offset - 1) == newest.epoch
        )
        if not fits:
            self.replace(newest)

    # --- snapshots ---------------------------------------------------------------------------

    def values_below(self, end_offset: int) -> tuple[str, ...]:
        """The state machine at this offset: all proposed values below it, in order."""
        held = self.entries[: max(end_offset - self.start_offset, 0)]
        return self.state + tuple(e.value for e in held if not e.is_control)

    def take_snapshot(self, snapshot: OffsetAndEpoch, voters: VoterSet) -> None:
        self.snapshots[snapshot] = format_snapshot(self.values_below(snapshot.offset), voters)

    def write_piece(self, snapshot: OffsetAndEpoch, position: int, data: bytes) -> int:
        if position == 0:
            self.part, self.part_of = b"", snapshot
        assert (self.part_of, len(self.part)) == (snapshot, position)
        self.part += data
        return len(self.part)

    def finish(self, snapshot: OffsetAndEpoch) -> tuple[bool, VoterSet | None]:
        """Check the part file and rename it: True if it is sound, and its voters."""
        data, self.part = self.part, b""
        assert self.part_of == snapshot
        parsed = parse_snapshot(data) if is_whole(data) else None
        if parsed is None:
            return False, None
        self.snapshots[snapshot] = data
        return True, parsed[1]

    def replace(self, snapshot: OffsetAndEpoch) -> None:
        """Replace the log by a snapshot; remove older snapshots."""
        self.snapshots = {snapshot: self.snapshots[snapshot]}
        self.state = parse_snapshot(self.snapshots[snapshot])[0]
        self.entries.clear()
        self.start_offset = self.synced_end_offset = snapshot.offset

    def drop(self, snapshots: tuple[OffsetAndEpoch, ...], start_offset: int) -> None:
        for snapshot in snapshots:
            del self.snapshots[snapshot]
        if start_offset > self.start_offset:
            self.state = self.values_below(start_offset)
            del self.entries[: start_offset - self.start_offset]
            self.start_offset = start_offset


def format_snapshot(values: tuple[str, ...], voters: VoterSet) -> bytes:
    body = f"{' '.join(values)}|{describe.voters(voters)}|".encode()
    return body + f"{zlib.crc32(body):08x}".encode()


def is_whole(data: bytes) -> bool:
    return f"{zlib.crc32(data[:-8]):08x}".encode() == data[-8:]


def parse_snapshot(data: bytes) -> tuple[tuple[str, ...], VoterSet]:
    values, voters, _ = data.decode().split("|")
    return tuple(values.split()), describe.parse_voters(voters)


def span_of(base_offset: int, batch: list[Entry]) -> BatchSpan:
    """The fields of a batch that the core may see."""
    last_offset = base_offset + len(batch) - 1
    epoch = batch[0].epoch
    for offset, entry in enumerate(batch, base_offset):
        if entry.voters is not None:
            return BatchSpan(base_offset, last_offset, epoch, entry.voters, offset)
    return BatchSpan(base_offset, last_offset, epoch)
