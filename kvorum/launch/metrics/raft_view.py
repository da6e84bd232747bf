"""A node's part in the quorum: its metrics, and the JSON of `/debug/raft`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from kvorum.launch.metrics.row import Item
from kvorum.raft.core.states import Follower, Leader
from kvorum.raft.model.progress import ReplicaProgress
from kvorum.raft.node.raft_node import RaftNode
from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.text import address_text

HISTORY_LINES = 100
"""Lines of the election timeline in `/debug/raft`."""
ROLES = ("leader", "follower", "candidate", "prospective", "unattached", "resigned", "observer")


class _Role:
    __slots__ = ("is_in",)

    def __init__(self, is_in: bool) -> None:
        self.is_in = 1 if is_in else None  # only the role that the node has gets a series


class _FollowerProgress:
    __slots__ = ("clock_ahead_s", "fetch_age_s", "lag_records")

    def __init__(
        self, progress: ReplicaProgress, end_offset: int, now_ms: int, clock_ahead_ms: int | None
    ) -> None:
        self.clock_ahead_s = None if clock_ahead_ms is None else clock_ahead_ms / 1000
        self.lag_records = max(end_offset - max(progress.end_offset, 0), 0)
        is_heard = progress.last_fetch_ms >= 0
        self.fetch_age_s = (now_ms - progress.last_fetch_ms) / 1000 if is_heard else None


class SnapshotView:
    """Size and age of the newest snapshot; both None without one."""

    def __init__(self, node: RaftNode) -> None:
        newest = node.files.newest()
        self.size_bytes = None if newest is None else newest.size_bytes
        age_ms = None if newest is None else node.clock.wall_ms() - newest.timestamp_ms
        self.age_s = None if age_ms is None else max(age_ms, 0) / 1000


class RaftView:
    """One node of the quorum at the time of a scrape. *_mean_ms, *_max_ms, *_rate: over the last
    minute."""

    def __init__(self, node: RaftNode, now_s: float) -> None:
        self._node = node
        self._core = core = node.core
        self._now_s = now_s
        self.metrics = node.metrics
        self.is_leader = core.is_leader
        self.leader_id = core.leader_id
        self.voted_id = core.voted_id
        self.epoch = core.epoch
        self.high_watermark = core.high_watermark
        self.log_end_offset = core.log.end_offset
        self.log_end_epoch = core.log.last_epoch
        self.voters = len(core.voter_set)
        role = core.role
        self.observers = len(role.observers) if isinstance(role, Leader) else None

    @property
    def snapshot(self) -> SnapshotView:
        return SnapshotView(self._node)

    @property
    def log_bytes(self) -> int:
        return self._node.log.size_bytes

    @property
    def role(self) -> str:
        return role_of(self._node)

    @property
    def election_mean_ms(self) -> float:
        return _ms(self.metrics.election_recent.mean(self._now_s))

    @property
    def election_max_ms(self) -> float:
        return _ms(self.metrics.election_recent.maximum(self._now_s))

    @property
    def commit_mean_ms(self) -> float:
        return _ms(self.metrics.commit_recent.mean(self._now_s))

    @property
    def commit_max_ms(self) -> float:
        return _ms(self.metrics.commit_recent.maximum(self._now_s))

    @property
    def append_rate(self) -> float:
        return self.metrics.append_recent.rate(self._now_s)

    @property
    def fetch_rate(self) -> float:
        return self.metrics.fetch_recent.rate(self._now_s)

    def roles(self) -> Iterator[Item]:
        """The scope of the role: one item."""
        yield (self.role,), _Role(True)

    def followers(self) -> Iterator[Item]:
        """The scope of the replicas that fetch from this leader; empty on another node.

        A node that lost its disk, or a second process of its id, is there twice for a while, under
        two directory ids. The one that has fetched last has the series.
        """
        role, now_ms = self._core.role, monotonic_ms()
        ahead_ms = self._node.servicer.clocks.ahead_ms
        if isinstance(role, Leader):
            found = sorted(
                [*role.voters.values(), *role.observers.values()], key=lambda p: p.last_fetch_ms
            )
            for progress in {p.node_id: p for p in found}.values():
                item = _FollowerProgress(
                    progress, self.log_end_offset, now_ms, ahead_ms.get(progress.node_id)
                )
                yield (str(progress.node_id),), item


def role_of(node: RaftNode) -> str:
    """The node's role in Kafka's words; a node without a vote that follows is an observer."""
    core = node.core
    if isinstance(core.role, Follower) and not core.is_voter:
        return "observer"
    return type(core.role).__name__.lower()


def has_lost_leader(node: RaftNode) -> bool:
    """True if this node knows no leader, or follows one that it has lost, or that has not answered
    it yet."""
    role = node.core.role
    if isinstance(role, Leader):
        return False
    return not isinstance(role, Follower) or role.is_leader_lost or not role.has_answered


def raft_report(node: RaftNode) -> dict[str, Any]:
    """The JSON of `/debug/raft`. Times are ms of the wall clock; null for never. Only the leader
    knows how far the others are."""
    core = node.core
    role = core.role
    shift_ms = node.clock.wall_ms() - monotonic_ms()
    followers = {}
    if isinstance(role, Leader):
        followers = {p.node_id: p for p in role.voters.values()}
    voters = []
    for voter in core.voter_set.voters:
        address = node.address_of(voter.node_id)
        row: dict[str, Any] = {
            "node_id": voter.node_id,
            "address": None if address is None else address_text(*address),
        }
        if isinstance(role, Leader):
            row |= _progress(node, voter.node_id, followers.get(voter.node_id), shift_ms)
        voters.append(row)
    observers = []
    if isinstance(role, Leader):
        for progress in role.observers.values():
            observers.append(
                {"node_id": progress.node_id}
                | _progress(node, progress.node_id, progress, shift_ms)
            )
    return {
        "node_id": node.config.node_id,
        "cluster_id": node.config.cluster_id,
        "role": role_of(node),
        "epoch": core.epoch,
        "leader_id": core.leader_id,
        "is_leader_lost": has_lost_leader(node),
        "voted_id": core.voted_id,
        "high_watermark": core.high_watermark,
        "log_start_offset": node.log.start_offset,
        "log_end_offset": core.log.end_offset,
        "voters": voters,
        "observers": observers,
        "history": [_entry(line) for line in list(node.timeline)[-HISTORY_LINES:]],
    }


def _progress(
    node: RaftNode, node_id: int, progress: ReplicaProgress | None, shift_ms: int
) -> dict[str, Any]:
    if progress is None:
        is_own = node_id == node.config.node_id
        end_offset = node.core.log.end_offset if is_own else None
        return {"log_end_offset": end_offset, "last_fetch_ms": None, "last_caught_up_ms": None}
    return {
        "log_end_offset": progress.end_offset if progress.end_offset >= 0 else None,
        "last_fetch_ms": _wall(progress.last_fetch_ms, shift_ms),
        "last_caught_up_ms": _wall(progress.last_caught_up_ms, shift_ms),
    }


def _entry(line: str) -> dict[str, Any]:
    at_ms, _, text = line.partition(" ")
    return {"at_ms": int(at_ms), "event": text}


def _wall(at_ms: int, shift_ms: int) -> int | None:
    return None if at_ms < 0 else at_ms + shift_ms


def _ms(value_s: float | None) -> float:
    """In ms; NaN for nothing in the last minute, as in Kafka."""
    return math.nan if value_s is None else value_s * 1000
