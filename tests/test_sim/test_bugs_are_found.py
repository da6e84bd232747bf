"""Bugs put into the real core, log or vote store: a few seeds find each, by the right check."""

from __future__ import annotations

import json

import pytest

from chaos.sim.checks import SeedFailed
from chaos.sim.quorum import run_seed
from raft.model import VoteState
from raft.quorum import committed_offset, majority
from raft.roles.follower import send_fetch
from raft.roles.states import NEVER_MS

SEEDS = range(8)


def failures() -> set[str]:
    names = set()
    for seed in SEEDS:
        try:
            run_seed(seed)
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


@pytest.mark.parametrize(
    ("place", "bug", "check"),
    [
        (
            "raft.roles.leader.committed_offset",
            commit_with_one_voter_too_few,
            "MajorityReachedHighWatermark",
        ),
        ("raft.roles.election.majority", lambda n: max(majority(n) - 1, 1), "ElectionSafety"),
        ("raft.roles.election._stale_log", lambda *_: "", "LeaderCompleteness"),
        (
            "raft.roles.leader._update_high_watermark",
            commit_records_of_earlier_epochs,
            "CommitInOwnEpoch",
        ),
        ("raft.roles.follower.fetch", fetch_before_the_flush, "MajorityReachedHighWatermark"),
        ("raft.vote_store.VoteStore.load", lambda _: VoteState(), "DurableSurvives"),
        ("raft.vote_store.VoteStore.save", save_without_fsync, "DurableSurvives"),
        ("storage.flush.FlushTicket.run", flush_nothing, "DurableSurvives"),
        ("storage.recovery._refuse_unless_torn", lambda *_: None, "DamageDetected"),
        ("raft.roles.follower.on_fetch_response", lambda *_: None, "Convergence"),
    ],
)
def test_bug_is_found(monkeypatch, place, bug, check):
    monkeypatch.setattr(place, bug)
    assert check in failures()
