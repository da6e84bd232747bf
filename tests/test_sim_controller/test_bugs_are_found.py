"""Bugs put into the real controller: a few seeds find each, by the right check."""

from __future__ import annotations

import dataclasses

import pytest

from kvorum.chaos.sim.kernel.checks import SeedFailed
from kvorum.chaos.sim.worlds import run_seed
from kvorum.metadata.controller.core import controller as controllers
from kvorum.metadata.controller.core.quorum_controller import QuorumController, _Parked
from kvorum.metadata.controller.decide import Decision, brokers, partition_change, topics
from kvorum.metadata.controller.decide.partition_change import _Outcome
from kvorum.metadata.image import snapshot_job
from kvorum.metadata.image.delta import _REPLAY, Delta
from kvorum.metadata.image.records import (
    NO_LEADER,
    BrokerRegistrationChange,
    ClientQuota,
    PartitionChange,
    ProducerIds,
)
from kvorum.metadata.requests.controller_requests import AllocateProducerIds, ProducerIdBlock
from kvorum.runtime.errors import ErrorCode

SEEDS = range(60)

decide = controllers.Controller._decide
note_committed = QuorumController._note_committed
records_of = snapshot_job.records_of
replay = Delta._partition_change
elect = partition_change._elect
create_topics = topics.create_topics
register = brokers.register


def failures_until(check):
    """The failures of seeds, up to the first with this name."""
    names = set()
    for seed in SEEDS:
        try:
            run_seed(seed, "controller")
        except SeedFailed as failure:
            names.add(failure.name)
            if failure.name == check:
                break
    return names


def answer_before_the_commit(self, end_offset, reply, on_reply):
    on_reply(reply)
    parked = _Parked(end_offset, None, reply, None)
    self._parked.append(parked)
    return parked


def answer_although_deposed(self):
    return ProducerIdBlock(start=0, length=1)


def block_from_the_committed_image(self, image, request, now_ms, wall_ms):
    if isinstance(request, AllocateProducerIds):
        start = self.committed.next_producer_id
        records = (ProducerIds(request.broker_id, request.broker_epoch, start + 1_000),)
        return Decision(records, ProducerIdBlock(start=start, length=1_000))
    return decide(self, image, request, now_ms, wall_ms)


def same_leader_epoch(self, record):
    before = self._stage(record.topic_id)[record.partition_id].leader_epoch
    replay(self, record)
    partitions = self._stage(record.topic_id)
    after = partitions[record.partition_id]
    partitions[record.partition_id] = dataclasses.replace(after, leader_epoch=before)


def same_partition_epoch(self, record):
    before = self._stage(record.topic_id)[record.partition_id].partition_epoch
    replay(self, record)
    partitions = self._stage(record.topic_id)
    after = partitions[record.partition_id]
    partitions[record.partition_id] = dataclasses.replace(after, partition_epoch=before)


def depart_without_new_leaders(image, at, *, is_unclean_default):
    return Decision(
        tuple(
            BrokerRegistrationChange(broker_id, epoch, is_fenced=True)
            for broker_id, epoch in at.epochs.items()
            if broker_id in image.brokers and not image.brokers[broker_id].is_fenced
        ),
        None,
    )


def fence_for_nobody(image, broker_id, voters, *, is_lost=False):
    for topic_id, topic in image.topics.items():
        for partition_id, partition in topic.partitions.items():
            if broker_id in partition.isr:
                isr = tuple(m for m in partition.isr if m != broker_id) or partition.isr
                leader = NO_LEADER if partition.leader == broker_id else None
                yield PartitionChange(topic_id, partition_id, isr=isr, leader=leader)


def skip_the_eligible(partition, shape, wish, terms):
    outcome = elect(partition, shape, wish, terms)
    return outcome if outcome.leader in shape.isr else _Outcome(NO_LEADER, shape.isr)


def park_what_was_decided_last(self, image):
    if self.controller.is_active:
        image = dataclasses.replace(self.controller.speculative, end_offset=image.end_offset)
    note_committed(self, image)


def snapshot_without_quotas(image):
    return (record for record in records_of(image) if not isinstance(record, ClientQuota))


def few_topic_ids(rng):
    return bytes([0] * 15 + [rng.randrange(12)])


def epoch_of_yesterday(image, request, context, **sessions):
    context = dataclasses.replace(context, next_offset=context.next_offset - 1)
    return register(image, request, context, **sessions)


def empty_isr(partition, gone, *, is_lost=False):
    isr = tuple(member for member in partition.isr if member not in gone)
    return partition_change.PartitionTarget(isr=isr)


def refuse_and_do_it_all_the_same(image, request, context):
    decision = create_topics(image, request, context)
    refused = tuple(dataclasses.replace(item, error=ErrorCode.POLICY_VIOLATION)
                    for item in decision.reply)  # fmt: skip
    return Decision(decision.records, refused)


def acknowledge_and_do_nothing(image, request, context):
    return Decision((), create_topics(image, request, context).reply)


def unclean_everywhere(partition, shape, wish, terms):
    return elect(partition, shape, wish, dataclasses.replace(terms, is_unclean_allowed=True))


@pytest.mark.parametrize(
    ("place", "bug", "check"),
    [
        (
            "kvorum.metadata.controller.core.quorum_controller.QuorumController._park",
            answer_before_the_commit,
            "AcknowledgedSurvives",
        ),
        (
            "kvorum.metadata.controller.core.quorum_controller.QuorumController._not_controller",
            answer_although_deposed,
            "AcknowledgedSurvives",
        ),
        (
            "kvorum.metadata.controller.core.quorum_controller.QuorumController._note_committed",
            park_what_was_decided_last,
            "SpeculativeMatchesCommitted",
        ),
        (
            "kvorum.metadata.controller.core.controller.Controller._decide",
            block_from_the_committed_image,
            "ProducerIdBlockOnce",
        ),
        (
            "kvorum.metadata.controller.core.controller.fence_next_chunk",
            depart_without_new_leaders,
            "FencedNeverLeads",
        ),
        (
            "kvorum.metadata.controller.decide.brokers.changes_without_broker",
            fence_for_nobody,
            "LeaderWherePossible",
        ),
        (
            "kvorum.metadata.controller.decide.partition_change._elect",
            skip_the_eligible,
            "LeaderWherePossible",
        ),
        (
            "kvorum.metadata.controller.decide.partition_change._elect",
            unclean_everywhere,
            "LeaderInIsr",
        ),
        (
            "kvorum.metadata.image.snapshot_job.records_of",
            snapshot_without_quotas,
            "SnapshotEqualsPrefix",
        ),
        ("kvorum.metadata.controller.decide.topics.new_uuid", few_topic_ids, "TopicIdNeverReused"),
        (
            "kvorum.metadata.controller.core.controller.register",
            epoch_of_yesterday,
            "BrokerEpochGrows",
        ),
        ("kvorum.metadata.controller.decide.partition_change.without", empty_isr, "IsrNeverEmpty"),
        (
            "kvorum.metadata.controller.core.controller.create_topics",
            refuse_and_do_it_all_the_same,
            "RefusedLeftNoTrace",
        ),
        (
            "kvorum.metadata.controller.core.controller.create_topics",
            acknowledge_and_do_nothing,
            "AcknowledgedSurvives",
        ),
    ],
)
def test_bug_is_found(monkeypatch, place, bug, check):
    monkeypatch.setattr(place, bug)
    assert check in failures_until(check)


@pytest.mark.parametrize(
    ("bug", "check"),
    [
        (same_leader_epoch, "LeaderEpochMonotonic"),
        (same_partition_epoch, "PartitionEpochMonotonic"),
    ],
)
def test_epochs_that_stay_are_found(monkeypatch, bug, check):
    monkeypatch.setitem(_REPLAY, PartitionChange, bug)
    assert check in failures_until(check)


def test_a_follower_that_skips_a_fact_is_found(monkeypatch):
    # Standby controllers skip quota records; the active controller replays them.
    replay_one = Delta.replay

    def skip_quotas(self, record):
        if not isinstance(record, ClientQuota) or not self.base.topics:
            replay_one(self, record)

    monkeypatch.setattr("kvorum.metadata.image.loader.Delta.replay", skip_quotas)
    names = failures_until("SpeculativeMatchesCommitted")
    # The reference image skips them too, but the controller that decided them does not.
    assert "SpeculativeMatchesCommitted" in names


def test_a_controller_that_does_not_renounce_is_found(monkeypatch):
    monkeypatch.setattr(
        "kvorum.metadata.controller.core.controller.Controller.renounce", lambda self: None
    )
    names = set()
    for seed in SEEDS:
        try:
            run_seed(seed, "controller")
        except SeedFailed as failure:
            names.add(failure.name)
            break
    assert names
