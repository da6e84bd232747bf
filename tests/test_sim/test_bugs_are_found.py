"""Bugs put into the real core, log, vote store or snapshots: a few seeds find each, by the right
check."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kvorum.chaos.sim.kernel.checks import SeedFailed
from kvorum.chaos.sim.kernel.schedule import draw_schedule
from kvorum.chaos.sim.quorum.scenario import Scenario, scenario_of
from kvorum.chaos.sim.quorum.world import run_scenario
from kvorum.raft.core import voter_changes
from kvorum.raft.core.fetching import send_fetch
from kvorum.raft.core.states import NEVER_MS
from kvorum.raft.model.effects import Reply
from kvorum.raft.model.messages import VoterChangeResponse
from kvorum.raft.model.quorum import committed_offset, majority
from kvorum.raft.model.values import VoteState
from kvorum.runtime.errors import ErrorCode
from kvorum.snapshots.format import read_header

SEEDS = range(60)


def any_world(seed: int) -> Scenario:
    return scenario_of(seed)


def _rough(seed: int, kinds: Sequence[str], **fields: Any) -> Scenario:
    """A short run with one fault in 300 ms."""
    scenario = Scenario(seed=seed, duration_ms=6_000, **fields)
    schedule = draw_schedule(
        random.Random(seed),
        node_ids=scenario.node_ids,
        kinds=kinds,
        duration_ms=scenario.duration_ms,
        interval_ms=300,
    )
    return dataclasses.replace(scenario, faults=schedule)


def lagging(seed: int) -> Scenario:
    """Nodes fall behind, and what they get instead of the log may be damaged."""
    return _rough(
        seed,
        ("crash", "cut-power", "partition"),
        snapshot_every=5,
        chunk_damage=0.2,
        fsync_ms_max=20,
    )


def changing(seed: int) -> Scenario:
    """Voters come and go while leaders are cut off."""
    kinds = ("add-voter", "remove-voter", "two-changes", "partition", "hand-over", "cut-off")
    return _rough(
        seed,
        kinds,
        is_dynamic=True,
        candidates=2,
        snapshot_every=10,
        delay_ms_max=30,
        fsync_ms_max=20,
    )


def wiping(seed: int) -> Scenario:
    """Disks are lost and come back empty."""
    return _rough(seed, ("wipe-disk", "hand-over", "remove-voter", "add-voter"), is_dynamic=True)


def failures_until(check: str, world: Callable[[int], Scenario]) -> set[str]:
    """The failures of runs, up to the first with this name."""
    names: set[str] = set()
    for seed in SEEDS:
        if check in names:
            break
        try:
            run_scenario(world(seed))
        except SeedFailed as failure:
            names.add(failure.name)
    return names


def commit_with_one_voter_too_few(end_offsets):
    return sorted(end_offsets, reverse=True)[max(len(end_offsets) // 2 - 1, 0)]


def commit_records_of_earlier_epochs(core, role, _):
    ends = [core.log.flushed_end_offset, *(p.end_offset for p in role.voters.values())]
    core.advance_high_watermark(min(committed_offset(ends), core.log.end_offset))


def fetch_before_the_flush(core, role, now_ms):
    role.retry_at_ms = NEVER_MS
    role.correlation_id = send_fetch(core, role.leader_id)
    role.request_deadline_ms = now_ms + core.config.request_timeout_ms


def save_without_fsync(self, state):
    fields = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": state.voted_id,
        "data_version": 0,
    }
    file = self._disk.open(self._path)
    file.truncate(0)
    file.pwrite(json.dumps(fields).encode(), 0)


def flush_nothing(self):
    self.is_done = True


async def sync_nothing(_):
    pass


def trim_all(self, _, *, wall_ms):
    self.log.advance_start_offset(self.log.end_offset)


def count_the_removed_leader(core, role, now_ms):
    ends = [core.log.flushed_end_offset, *(p.end_offset for p in role.voters.values())]
    offset = min(committed_offset(ends), core.log.end_offset)
    if offset > role.epoch_start_offset and core.advance_high_watermark(offset):
        voter_changes.on_committed(core, role, now_ms)


def hand_over_to_nobody(core, role, _):
    if role.pending_change is not None and core.high_watermark >= role.pending_change.end_offset:
        role.pending_change = None


def answer_before_the_commit(core, token, voters, refusal=None):
    code = ErrorCode.NONE if refusal is None else refusal.code
    response = VoterChangeResponse(epoch=core.epoch, error=code, voters=voters)
    core.emit(Reply(token, response))


@pytest.mark.parametrize(
    ("place", "bug", "check", "world"),
    [
        (
            "kvorum.raft.core.leader.committed_offset",
            commit_with_one_voter_too_few,
            "MajorityReachedHighWatermark",
            any_world,
        ),
        (
            "kvorum.raft.core.election.majority",
            lambda n: max(majority(n) - 1, 1),
            "ElectedByMajority",
            any_world,
        ),
        ("kvorum.raft.core.election._stale_log", lambda *_: "", "LeaderCompleteness", any_world),
        (
            "kvorum.raft.core.leader._update_high_watermark",
            commit_records_of_earlier_epochs,
            "CommitInOwnEpoch",
            any_world,
        ),
        (
            "kvorum.raft.core.fetching.fetch",
            fetch_before_the_flush,
            "MajorityReachedHighWatermark",
            any_world,
        ),
        (
            "kvorum.raft.node.vote_store.VoteStore.load",
            lambda _: VoteState(),
            "DurableSurvives",
            any_world,
        ),
        (
            "kvorum.raft.node.vote_store.VoteStore.save",
            save_without_fsync,
            "DurableSurvives",
            any_world,
        ),
        ("kvorum.storage.log.flush.FlushTicket.run", flush_nothing, "DurableSurvives", any_world),
        (
            "kvorum.storage.recovery.batch_walk._refuse_unless_torn",
            lambda *_: None,
            "DamageDetected",
            any_world,
        ),
        ("kvorum.raft.core.follower.on_fetch_response", lambda *_: None, "Convergence", any_world),
        (
            "kvorum.storage.log.log.Log.truncate_fully_and_start_at",
            lambda *_, now_ms=0: None,
            "CoreKnowsLog",
            lagging,
        ),
        ("kvorum.raft.node.replica_log.ReplicaLog.trim", trim_all, "SnapshotAtLogStart", lagging),
        (
            "kvorum.raft.node.replica_log.ReplicaLog.trim",
            lambda *_, wall_ms: None,
            "LogTrimmed",
            lagging,
        ),
        (
            "kvorum.raft.node.metadata_log._is_prefix",
            lambda *_: True,
            "SnapshotAtLogStart",
            lagging,
        ),
        (
            "kvorum.raft.node.replica_log.ReplicaLog.timestamp_before",
            lambda self, _: id(self),
            "SnapshotsAgree",
            lagging,
        ),
        (
            "kvorum.snapshots.format.SnapshotDecoder.finish",
            lambda self: self.header,
            "SnapshotsAgree",
            lagging,
        ),
        ("kvorum.snapshots.transfer.verify_file", read_header, "SnapshotsAgree", lagging),
        (
            "kvorum.chaos.sim.kernel.async_disk.SimAsyncFile.sync",
            sync_nothing,
            "SnapshotSurvives",
            lagging,
        ),
        (
            "kvorum.raft.model.voters.VoterHistory.at",
            lambda self, _: self.last,
            "SnapshotEqualsPrefix",
            changing,
        ),
        (
            "kvorum.raft.model.voters.VoterHistory.truncate",
            lambda *_: None,
            "VotersInForce",
            changing,
        ),
        (
            "kvorum.raft.core.state.RaftState.is_addressed_to_self",
            lambda self, i, _: i == self.config.node_id,
            "ElectedByMajority",
            wiping,
        ),
        (
            "kvorum.raft.core.voter_changes._common_refusal",
            lambda *_: None,
            "OneChangeAtATime",
            changing,
        ),
        (
            "kvorum.raft.core.voter_changes._common_refusal",
            lambda *_: None,
            "ChangeAfterOwnCommit",
            changing,
        ),
        (
            "kvorum.raft.core.leader._update_high_watermark",
            count_the_removed_leader,
            "MajorityReachedHighWatermark",
            changing,
        ),
        (
            "kvorum.raft.core.voter_changes.on_committed",
            hand_over_to_nobody,
            "RemovedLeads",
            changing,
        ),
        (
            "kvorum.raft.core.leadership.visible_end",
            lambda core, _: core.log.end_offset,
            "ObserverSeesCommitted",
            any_world,
        ),
    ],
)
def test_bug_is_found(monkeypatch, place, bug, check, world):
    monkeypatch.setattr(place, bug)
    assert check in failures_until(check, world)
