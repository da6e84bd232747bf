"""The leader epochs of a log and their start offsets (KIP-101, KIP-279).

The cache is derived data, because each batch carries its epoch. So `leader-epoch-checkpoint` is
written only by the next flush (`Log.begin_flush`), and recovery assigns the epochs of the batches
that it scans. Only an epoch without a batch can be lost that way, and it covers no offset. An epoch
whose batches were compacted away comes back from the checkpoint (`LeaderEpochCache.restore`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise

from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData, invariant

CHECKPOINT_NAME = "leader-epoch-checkpoint"
UNKNOWN = (-1, -1)


class LeaderEpochCache:
    """Entries (epoch, start offset); both rise."""

    __slots__ = ("epoch_before_start", "epochs", "is_dirty", "start_offsets")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.epochs: list[int] = [epoch for epoch, _ in entries or ()]
        self.start_offsets: list[int] = [start for _, start in entries or ()]
        self.is_dirty = False
        self.epoch_before_start = -1
        """Epoch of the last batch below the log start, -1 if unknown; not in the checkpoint."""

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self.epochs, self.start_offsets, strict=True))

    @property
    def latest_epoch(self) -> int:
        """The newest epoch, -1 when none is known."""
        return self.epochs[-1] if self.epochs else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that batches from `start_offset` on have `epoch`.

        Assigning the newest epoch again changes nothing. Assigning an older one is a bug, because
        epochs never fall in a log. An epoch without a batch is replaced by the next one, which
        starts at the same offset.
        """
        latest = self.latest_epoch
        if epoch == latest:
            return
        invariant(epoch > latest, f"leader epoch {epoch} after {latest} at offset {start_offset}")
        keep = bisect_left(self.start_offsets, start_offset)
        del self.epochs[keep:]
        del self.start_offsets[keep:]
        self.epochs.append(epoch)
        self.start_offsets.append(start_offset)
        self.is_dirty = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(largest known epoch <= `epoch`, its end offset exclusive); (-1, -1) when unknown.

        Below the first known epoch: (`epoch`, start of the first). Above the latest: unknown.
        """
        if epoch < 0 or not self.epochs or epoch > self.epochs[-1]:
            return UNKNOWN
        if epoch == self.epochs[-1]:
            return epoch, log_end_offset
        after = bisect_right(self.epochs, epoch)
        if after == 0:
            return epoch, self.start_offsets[0]
        return self.epochs[after - 1], self.start_offsets[after]

    def epoch_of(self, offset: int) -> int:
        """The epoch that wrote `offset`, -1 when unknown."""
        at = bisect_right(self.start_offsets, offset) - 1
        return self.epochs[at] if at >= 0 else -1

    def matches_at(self, epoch: int, start_offset: int) -> bool:
        """True if a log that ends at `start_offset` with `epoch` is known to match this one.

        `start_offset` is where this log begins. An epoch has one leader and one history, so it is
        enough that this log has the epoch there, or had it just below its start.
        """
        return epoch in (self.epoch_of(start_offset), self.epoch_before_start)

    def truncate_from_end(self, offset: int) -> None:
        """Drop the epochs that start at or above `offset`."""
        keep = bisect_left(self.start_offsets, offset)
        if keep < len(self.epochs):
            del self.epochs[keep:]
            del self.start_offsets[keep:]
            self.is_dirty = True

    def truncate_from_start(self, offset: int) -> None:
        """Drop the epochs that end at or below `offset`; the epoch around it then starts there."""
        below = bisect_left(self.start_offsets, offset) - 1
        if below >= 0:
            self.epoch_before_start = self.epochs[below]
        drop = bisect_right(self.start_offsets, offset) - 1
        if drop < 0 or (drop == 0 and self.start_offsets[0] == offset):
            return
        del self.epochs[:drop]
        del self.start_offsets[:drop]
        self.start_offsets[0] = offset
        self.is_dirty = True

    def restore(self, entries: list[tuple[int, int]], batch_ends: dict[int, int]) -> None:
        """Add epochs whose batches compaction has removed, from `entries`, those of a checkpoint.

        This cache was made from the batches. It gets back the start offsets of epochs whose first
        batches are gone, and whole epochs.

        batch_ends: for each epoch, the end of the batch before its first one; for the first epoch,
            the start of the log. An epoch can only have begun between that end and its first batch.
        """
        restored: list[tuple[int, int]] = []
        named = iter(entries)
        entry = next(named, None)
        for epoch, start in self.entries:
            low = batch_ends.get(epoch, start)
            is_first = not restored
            while entry is not None and entry[0] <= epoch:
                other, other_start = entry
                entry = next(named, None)
                if is_first and other_start < low < start:
                    # The newest epoch that began below the log start is the first one in the log.
                    restored = [(other, low)]
                elif low <= other_start < start:
                    if restored and restored[-1][1] == other_start:
                        del restored[-1]  # this epoch had no batch in the log
                    restored.append((other, other_start))
            if not restored or restored[-1][0] != epoch:
                restored.append((epoch, start))
        self.epochs = [epoch for epoch, _ in restored]
        self.start_offsets = [start for _, start in restored]

    def clear(self) -> None:
        self.epoch_before_start = -1
        if self.epochs:
            self.epochs.clear()
            self.start_offsets.clear()
            self.is_dirty = True

    def to_bytes(self, end_offset: int | None = None) -> bytes:
        """The checkpoint file: version 0, the count, lines of `epoch start_offset`.

        end_offset: epochs that start at or above it are left out.
        """
        count = len(self.epochs)
        if end_offset is not None:
            count = bisect_left(self.start_offsets, end_offset)
        lines = ["0", str(count)]
        lines += [f"{epoch} {start}" for epoch, start in self.entries[:count]]
        return ("\n".join(lines) + "\n").encode()


class EpochCheckpoint:
    """The leader-epoch-checkpoint file of a log."""

    __slots__ = ("_cache", "_disk", "_path")

    def __init__(self, disk: Disk, directory: str, cache: LeaderEpochCache) -> None:
        self._disk = disk
        self._path = f"{directory}/{CHECKPOINT_NAME}"
        self._cache = cache

    def pending(self) -> tuple[str, bytes] | None:
        """Path and content for a flush to write; None if the file is up to date."""
        return (self._path, self._cache.to_bytes()) if self._cache.is_dirty else None

    def write(self, durable_end_offset: int) -> None:
        """Replace the file outside a flush, with only the epochs that begin in durable records.

        Bad sequence without that limit:
        1. A controller truncates its log, but not down to its last fsynced record.
        2. The checkpoint gets an epoch that begins with a record that is not fsynced.
        3. The power fails. The log ends below that epoch, and `raft.node.metadata_log` reports lost
           files.
        """
        self._disk.write_atomic(self._path, self._cache.to_bytes(durable_end_offset))
        starts = self._cache.start_offsets
        self._cache.is_dirty = bool(starts) and starts[-1] >= durable_end_offset


def read_epochs(disk: Disk, path: str) -> LeaderEpochCache:
    """The cache from a checkpoint file, which must exist. Raises CorruptData."""
    lines = disk.read_bytes(path).decode("utf-8", "replace").split("\n")
    try:
        version, count = int(lines[0]), int(lines[1])
        entries = [_entry(line) for line in lines[2 : 2 + count]]
    except (ValueError, IndexError) as error:
        raise CorruptData(path, 0, f"not a leader epoch checkpoint: {error}") from error
    if version != 0 or len(entries) != count:
        raise CorruptData(path, 0, f"version {version}, {len(entries)} lines of {count}")
    if any(lines[2 + count :]):
        raise CorruptData(path, 0, f"more than the {count} lines that it should have")
    rises = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries))
    if not rises:
        raise CorruptData(path, 0, f"epochs or offsets do not rise: {entries}")
    return LeaderEpochCache(entries)


def _entry(line: str) -> tuple[int, int]:
    epoch, start_offset = line.split(" ")
    return int(epoch), int(start_offset)
