"""What a leader knows of one replica, and the fetches it has parked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ReplicaProgress:
    """Progress of one replica, voter or observer, as its fetches told it.

    end_offset: everything below is on the replica's disk; -1 before its first valid fetch.
    last_caught_up_ms: the last time at which it had all that the leader had then
    (KIP-595: lastCaughtUpTimestamp).
    """

    node_id: int
    end_offset: int = -1
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
    replica_id: int
    fetch_offset: int
    high_watermark: int
    deadline_ms: int
