"""Bugs put into the real brokers: a few seeds find each, by a check that names it.

`make mutants WORLD=partitions` breaks many more rules.
"""

from __future__ import annotations

import pytest

from kvorum.broker.fetch.follower_fetch_session import FollowerFetchSession
from kvorum.broker.fetch.log_start_ack import LogStartAcks
from kvorum.broker.partition.core.partition import Partition
from kvorum.broker.partition.replica import Replica
from kvorum.storage.files.producer_state import ProducerStateTable
from kvorum.storage.log.log import Log
from tests.test_sim_partitions.finding import first_failure

SEEDS = (40, *range(40), *range(41, 80))
"""Seed 40 meets the rarest of these bugs."""


def acknowledge_at_once(self, required_offset, terms):
    return 0


def cut_nothing(self, epoch, end_offset, wall_ms):
    return self.log.end_offset


def commit_alone(self, now_ms):
    if not self.is_leader or self.high_watermark == self.end_offset:
        return False
    self.high_watermark = self.end_offset
    return True


def know_no_duplicate(self, header):
    return None


def list_nothing_new(self, key, replica):
    original_add(self, key, replica)
    self._changed.pop(key, None)


def restart_too_high(self, offset, wall_ms):
    original_restart(self, offset + 3, wall_ms)


def tell_at_once(self, replica, on_saved):
    return replica.log.start_offset


def take_no_batch_around_the_start(self, batches):
    return None


original_add = FollowerFetchSession.add
original_restart = Replica.restart_at


@pytest.mark.parametrize(
    ("owner", "name", "bug", "checks"),
    [
        (Replica, "_wait_until", acknowledge_at_once, {"AcknowledgedOnceCommitted"}),
        (
            Partition,
            "raise_high_watermark",
            commit_alone,
            {"IsrMembersHoldTheHighWatermark", "CommittedNeverLost"},
        ),
        (ProducerStateTable, "check", know_no_duplicate, {"DuplicatesDropped"}),
        (FollowerFetchSession, "add", list_nothing_new, {"Convergence"}),
        (
            Replica,
            "restart_at",
            restart_too_high,
            {"OnlyWhatWasToGoIsDeleted", "NothingCommittedByFollowers", "Convergence"},
        ),
        (LogStartAcks, "reportable_start", tell_at_once, {"DeletedStaysDeleted"}),
        (Log, "base_below_start", take_no_batch_around_the_start, {"Convergence"}),
    ],
)
def test_a_bug_is_found(monkeypatch, owner, name, bug, checks):
    monkeypatch.setattr(owner, name, bug)
    assert first_failure(SEEDS) in checks


def test_followers_that_never_cut_their_logs_are_found(monkeypatch):
    monkeypatch.setattr(Replica, "truncate_for", cut_nothing)
    assert first_failure(SEEDS) is not None
