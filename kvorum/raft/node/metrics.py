"""The numbers that a node of the quorum counts while it works. Pure.

The driver, `raft.node.raft_node`, reports the effects that it has carried out, with the time by its
clock.
"""

from __future__ import annotations

from collections import deque

from kvorum.raft.model.effects import (
    AppendFetched,
    AppendLeaderChange,
    AppendProposed,
    AppendVoters,
    PersistVoteState,
)
from kvorum.runtime.ids import NO_NODE
from kvorum.runtime.metrics import Histogram, Window

APPENDS_TIMED_MAX = 10_000
"""Appends that may wait for their commit and be timed. Without a majority nothing is committed, and
appends would gather; the oldest are forgotten."""


class RaftMetrics:
    """Counters of one node.

    elections: in which this node stood as a candidate.
    leader_changes: leaders that this node has followed or been.
    election_s: from the loss of a leader to the next one.
    commit_s: from append to commit, on the leader.
    flush_s: fsyncs of the metadata log.
    appended_records: as leader.
    fetched_records: as follower or observer.
    requests_sent, responses_received: to and from other nodes of the quorum; bytes_*: of records in
        fetch answers. *_recent: of the last minute.
    """

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self.elections = 0
        self.leader_changes = 0
        self.appended_records = 0
        self.fetched_records = 0
        self.requests_sent = 0
        self.responses_received = 0
        self.bytes_sent = 0
        self.bytes_received = 0
        self.election_s = Histogram()
        self.commit_s = Histogram()
        self.flush_s = Histogram()
        self.election_recent = Window()
        self.commit_recent = Window()
        self.append_recent = Window()
        self.fetch_recent = Window()
        self._leader_id = NO_NODE
        self._leaderless_since_s: float | None = None
        self._appends: deque[tuple[int, float]] = deque(maxlen=APPENDS_TIMED_MAX)
        """(end offset, time) of this leader's appends that are not committed."""

    def note_disk(self, effect: object, end_offset: int, now_s: float) -> None:
        """An effect on the disk was carried out; the log ends at `end_offset`, unless further
        effects of the same event follow."""
        match effect:
            case AppendProposed(base_offset):
                count = max(end_offset - base_offset, 0)
                self.appended_records += count
                self.append_recent.note(count, now_s)
                self._appends.append((end_offset, now_s))
            case AppendLeaderChange() | AppendVoters():
                self._appends.append((end_offset, now_s))
            case AppendFetched(base_offset, records):
                count = max(end_offset - base_offset, 0)
                self.fetched_records += count
                self.fetch_recent.note(count, now_s)
                self.bytes_received += len(records)
            case PersistVoteState(state):
                self.elections += state.voted_id == self._node_id and state.leader_id == NO_NODE

    def note_committed(self, high_watermark: int, now_s: float) -> None:
        """The high watermark has risen; a follower has no appends of its own."""
        appends = self._appends
        while appends and appends[0][0] <= high_watermark:
            took_s = now_s - appends.popleft()[1]
            self.commit_s.observe(took_s)
            self.commit_recent.note(took_s, now_s)

    def note_leader(self, leader_id: int, now_s: float) -> None:
        """This node acknowledges another leader, or NO_NODE."""
        if leader_id == NO_NODE:
            if self._leaderless_since_s is None:
                self._leaderless_since_s = now_s
        elif leader_id != self._leader_id:
            self.leader_changes += 1
        if leader_id != NO_NODE:
            if self._leaderless_since_s is not None:
                took_s = now_s - self._leaderless_since_s
                self.election_s.observe(took_s)
                self.election_recent.note(took_s, now_s)
            self._leaderless_since_s = None
        if leader_id != self._node_id:
            self._appends.clear()
        self._leader_id = leader_id
