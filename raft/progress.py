"""A leader's knowledge of one replica: progress, parked fetches, and a snapshot on its way."""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.raft.model import OffsetAndEpoch
from kvorum.runtime.ids import UUID_ZERO

ReplicaKey = tuple[int, bytes]
"""(node id, directory id): one disk that follows the log."""


@dataclass(slots=True)
class ReplicaProgress:
    """Progress of one replica, voter or observer, as its fetches told it.

    end_offset: everything below is on the replica's disk; -1 before its first valid fetch.
    last_caught_up_ms: the last time at which it had all that the leader had then
    (KIP-595: lastCaughtUpTimestamp).
    last_contact_ms: the last request of any kind in this epoch; check-quorum goes by it, as a
    replica that fetches a snapshot is alive though its log does not move.
    address: its controller listener, None for a broker.
    """

    node_id: int
    directory_id: bytes = UUID_ZERO
    address: tuple[str, int] | None = None
    end_offset: int = -1
    last_contact_ms: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    leader_end_at_last_fetch: int = -1

    def on_fetch(self, fetch_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Note a valid fetch. Its offset may be lower than before: the disk was wiped."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif fetch_offset >= self.leader_end_at_last_fetch >= 0:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end_offset = fetch_offset
        self.last_fetch_ms = now_ms
        self.leader_end_at_last_fetch = leader_end_offset


@dataclass(frozen=True, slots=True)
class ParkedFetch:
    """A fetch with nothing to return yet; answered by an append, a commit or its deadline."""

    token: int
    replica: ReplicaKey
    fetch_offset: int
    high_watermark: int
    deadline_ms: int


@dataclass(slots=True)
class PendingChange:
    """A change of the voter set that waits for its commit at end_offset (exclusive)."""

    token: int
    end_offset: int


@dataclass(slots=True)
class SnapshotFetch:
    """A snapshot being fetched; it outlives a lost connection, a role and a leader.

    position: bytes asked for and received so far. is_writing: the disk still works on the last
    piece, or on the final check.
    """

    snapshot: OffsetAndEpoch
    position: int = 0
    size: int = -1
    is_writing: bool = False

    @property
    def is_complete(self) -> bool:
        return self.position == self.size
