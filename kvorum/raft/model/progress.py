"""A leader's view of its replicas and of their parked fetches, and a replica's snapshot
transfer."""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.raft.model.values import OffsetAndEpoch
from kvorum.runtime.ids import UUID_ZERO

ReplicaKey = tuple[int, bytes]
"""(node id, directory id): one disk that replicates the log."""


@dataclass(slots=True)
class ReplicaProgress:
    """Progress of one replica, voter or observer, according to its fetches.

    end_offset: the replica's disk holds everything below; -1 before its first valid fetch.
    last_caught_up_ms: the last time at which the replica had all records that the leader had then
        (KIP-595: lastCaughtUpTimestamp).
    last_contact_ms: time of the last request of any kind in this epoch. Check-quorum uses it,
        because a replica that fetches a snapshot is alive although its end_offset does not move.
    address: the replica's controller listener, None for a broker.
    """

    node_id: int
    directory_id: bytes = UUID_ZERO
    address: tuple[str, int] | None = None
    end_offset: int = -1
    last_contact_ms: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    leader_end_at_last_fetch: int = -1
    fetches_from_zero: int = 0
    """Fetches from offset 0 in a row, after the voter had acknowledged records."""

    def on_fetch(self, fetch_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Note a valid fetch. Its offset may be lower than before if the replica's disk was
        wiped."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif fetch_offset >= self.leader_end_at_last_fetch >= 0:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end_offset = fetch_offset
        self.fetches_from_zero = 0
        self.last_fetch_ms = now_ms
        self.leader_end_at_last_fetch = leader_end_offset


@dataclass(frozen=True, slots=True)
class ParkedFetch:
    """A fetch that has nothing to return yet: an append, a commit or its deadline answers it."""

    token: int
    replica: ReplicaKey
    fetch_offset: int
    high_watermark: int
    deadline_ms: int


@dataclass(slots=True)
class PendingVoterChange:
    """A change of the voter set that is committed once the high watermark reaches end_offset."""

    token: int
    end_offset: int


@dataclass(slots=True)
class SnapshotFetch:
    """A snapshot transfer. It outlives a lost connection, a change of role and a change of leader.

    position: bytes received so far, where the next chunk begins.
    is_writing: the disk is busy with the last chunk or with the final check.
    """

    snapshot: OffsetAndEpoch
    position: int = 0
    size: int = -1
    is_writing: bool = False

    @property
    def is_complete(self) -> bool:
        return self.position == self.size
