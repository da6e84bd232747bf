"""The inputs of the simulator's checks, made without a simulation."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from kvorum.chaos.sim.kernel.checks import CheckFailed
from kvorum.chaos.sim.quorum.checks.quorum_checks import QuorumChecks
from kvorum.chaos.sim.quorum.model.mirror import Mirror
from kvorum.chaos.sim.quorum.model.recovery import DiskSettings
from kvorum.chaos.sim.quorum.model.state import ListState
from kvorum.raft.model.values import VoteState
from kvorum.raft.model.voters import NO_VOTERS, Voter, VoterSet

A, B, C = (1, b"va"), (1, b"vb"), (2, b"vc")


def disk_of(node_id, letter="a"):
    """Directory id of a node's disk; another letter after it was wiped."""
    return bytes(14) + bytes((node_id, ord(letter)))


def key(node_id, letter="a"):
    return node_id, disk_of(node_id, letter)


def keys(*node_ids):
    return frozenset(map(key, node_ids))


def voter_set(*node_ids):
    return VoterSet.of(Voter(i, disk_of(i), f"host{i}", 9000) for i in node_ids)


@dataclass
class FakeNode:
    """A node with the disk that it has had from the start."""

    node_id: int = 1
    mirror: Mirror = field(default_factory=Mirror)
    durable_end_offset: int = 0
    incarnation: int = 1
    is_leader: bool = False
    is_removed: bool = False
    has_decayed: bool = False
    epoch: int = 0
    applied: ListState = field(default_factory=ListState)
    saved_vote: VoteState = field(default_factory=VoteState)
    saving_vote: VoteState | None = None
    letter: str = "a"
    snapshots: tuple = ()
    core_voters: VoterSet = NO_VOTERS
    role: object = None
    leader_id: int = -1
    high_watermark: int = 0
    core_end: int | None = None
    last_epoch: int | None = None
    log_start: int | None = None

    @property
    def config(self):
        return SimpleNamespace(directory_id=disk_of(self.node_id, self.letter))

    @property
    def core(self):
        start = self.snapshots[0].offset if self.snapshots else 0
        end = self.mirror.end_offset if self.core_end is None else self.core_end
        epochs = self.mirror.epochs
        last_epoch = epochs[-1][0] if epochs else 0
        log = SimpleNamespace(
            snapshots=self.snapshots,
            start_offset=start,
            end_offset=end,
            last_epoch=last_epoch if self.last_epoch is None else self.last_epoch,
        )
        return SimpleNamespace(
            epoch=self.epoch,
            log=log,
            voter_set=self.core_voters,
            role=self.role,
            leader_id=self.leader_id,
            high_watermark=self.high_watermark,
        )

    @property
    def replica_log(self):
        start = self.core.log.start_offset if self.log_start is None else self.log_start
        log = SimpleNamespace(start_offset=start, end_offset=self.mirror.end_offset)
        return SimpleNamespace(log=log)

    def summary(self):
        return f"node={self.node_id} epoch={self.epoch}"


def world(*logs, durable=True, voters=None):
    """Checks over one fake voter for each log."""
    first = keys(*(voters or range(1, len(logs) + 1)))
    checks = QuorumChecks(DiskSettings(), first)
    checks.nodes = [
        FakeNode(
            node_id=i,
            mirror=Mirror(log, voters=first),
            durable_end_offset=len(log) if durable else 0,
            core_voters=voter_set(*(node_id for node_id, _ in first)),
        )
        for i, log in enumerate(logs, 1)
    ]
    return checks


def fires(name, match=""):
    """Assert that a check fails in the block, and that it has this name."""
    return pytest.raises(CheckFailed, match=f"^{name}: .*{match}")
