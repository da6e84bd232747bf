"""Each check of committed records, with a history that it must object to."""

from __future__ import annotations

import dataclasses

import pytest

from kvorum.chaos.sim.controller.history import Attempt
from kvorum.chaos.sim.controller.record_checks import RecordChecks
from kvorum.chaos.sim.kernel.checks import CheckFailed
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE, RESOURCE_TOPIC
from kvorum.metadata.image.records import (
    NO_LEADER,
    AccessControlEntry,
    BrokerRegistrationChange,
    ClientQuota,
    Config,
    Endpoint,
    FeatureLevel,
    Partition,
    PartitionChange,
    ProducerIds,
    RegisterBroker,
    RemoveTopic,
    Topic,
    UnregisterBroker,
)
from kvorum.metadata.requests.config_requests import AlterConfigs
from kvorum.metadata.requests.controller_requests import (
    AlterPartition,
    AlterReassignments,
    ElectionType,
    ElectLeaders,
    IsrProposal,
)
from tests.test_metadata.acls import acl

T = bytes([1] * 16)
UNCLEAN, MINIMUM = "unclean.leader.election.enable", "min.insync.replicas"


def fires(name, match=""):
    return pytest.raises(CheckFailed, match=f"^{name}: .*{match}")


class Log:
    """Records one after the other, checked as they come."""

    def __init__(self, **fields):
        self.checks = RecordChecks(**fields)
        self.image = EMPTY_IMAGE

    def put(self, record, request=None, image=None):
        before = self.image
        delta = Delta(before)
        delta.replay(record)
        offset = before.end_offset
        self.image = image or delta.apply(end_offset=offset + 1, epoch=1)
        cause = Attempt(kind="any", node_id=1, request=request)
        self.checks.on_record(offset, record, before, self.image, cause)
        return self

    def broker(self, broker_id, incarnation=None, epoch=None, is_fenced=False):
        offset = self.image.end_offset
        epoch = offset if epoch is None else epoch
        return self.put(
            RegisterBroker(
                broker_id,
                epoch,
                bytes([incarnation or offset]) * 16,
                (Endpoint("P", "h", 1),),
                is_fenced=is_fenced,
            )
        )

    def decided(self):
        self.checks.on_decision(self.image.end_offset, self.image)


def cluster(isr=(1, 2), leader=1, **fields):
    """Brokers 1 to 3 and a partition of theirs."""
    log = Log(**fields)
    for broker_id in (1, 2, 3):
        log.broker(broker_id, broker_id)
    log.put(Topic("t", T))
    return log.put(Partition(T, 0, (1, 2, 3), isr, leader))


def test_a_sound_history_passes():
    log = cluster()
    log.decided()
    log.put(PartitionChange(T, 0, isr=(2,), leader=2))
    log.put(ProducerIds(1, 0, 1_000)).put(ProducerIds(2, 1, 2_000))
    log.decided()
    assert log.checks.leader_changes == 1


def test_a_topic_id_is_never_used_again():
    log = cluster().put(RemoveTopic(T))
    with fires("TopicIdNeverReused"):
        log.put(Topic("other", T))


def test_a_broker_epoch_is_the_offset_of_its_record_and_grows():
    with fires("BrokerEpochGrows"):
        Log().broker(1, epoch=7)
    log = Log().broker(1, incarnation=1)
    log.put(UnregisterBroker(1, 0))
    log.checks._broker_epochs[1] = 9
    with fires("BrokerEpochGrows", "after epoch 9"):
        log.broker(1, incarnation=2)


def test_a_process_registers_once():
    log = Log().broker(1, incarnation=1)
    with fires("ProcessRegistersOnce"):
        log.broker(1, incarnation=1)


def test_producer_ids_do_not_stand_still():
    log = Log().put(ProducerIds(1, 0, 1_000))
    with fires("ProducerIdBlockOnce"):
        log.put(ProducerIds(2, 0, 1_000))


def test_an_isr_has_members_and_only_replicas():
    with fires("IsrNeverEmpty"):
        cluster().put(PartitionChange(T, 0, isr=(), leader=NO_LEADER))
    with fires("IsrWithinReplicas"):
        cluster().put(PartitionChange(T, 0, isr=(1, 9)))
    with fires("IsrWithinReplicas"):
        cluster().put(PartitionChange(T, 0, isr=(1, 1)))


def test_a_leader_is_in_sync():
    with fires("LeaderInIsr"):
        cluster().put(PartitionChange(T, 0, isr=(2,)))


def test_a_new_leader_was_in_sync_before():
    taking = PartitionChange(T, 0, isr=(3,), leader=3)
    with fires("LeaderInIsr", "unclean election nobody allowed"):
        cluster().put(taking)
    minimum = Config(RESOURCE_TOPIC, "t", MINIMUM, "3")
    cluster().put(minimum).put(PartitionChange(T, 0, elr=(3,))).put(taking)


def test_an_unclean_election_that_was_allowed_or_ordered_passes():
    taking = PartitionChange(T, 0, isr=(3,), leader=3)
    cluster(is_unclean_default=True).put(taking)
    cluster().put(Config(RESOURCE_TOPIC, "t", UNCLEAN, "true")).put(taking)
    ordered = ElectLeaders(partitions=(("t", 0),), election=ElectionType.UNCLEAN)
    assert cluster().put(taking, ordered).checks.unclean_elections == 1
    denied = cluster(is_unclean_default=True).put(Config(RESOURCE_TOPIC, "t", UNCLEAN, "false"))
    with fires("LeaderInIsr"):
        denied.put(taking)
    with fires("LeaderInIsr"):
        cluster().put(taking, ElectLeaders(partitions=(("t", 0),)))
    with fires("LeaderInIsr"):
        cluster().put(taking, AlterConfigs(resources=()))


def test_a_leader_may_be_followed_by_whom_it_has_just_named():
    taking = PartitionChange(T, 0, isr=(2, 3), leader=3, replicas=(3, 2))
    proposal = IsrProposal(
        topic_id=T, partition_id=0, leader_epoch=0, partition_epoch=0, new_isr=((2, 1), (3, 2))
    )
    by_the_leader = AlterPartition(broker_id=1, broker_epoch=0, proposals=(proposal,))
    cluster().put(taking, by_the_leader)
    by_another = AlterPartition(broker_id=2, broker_epoch=1, proposals=(proposal,))
    with fires("LeaderInIsr"):
        cluster().put(taking, by_another)


def with_epochs(log, leader_epoch, partition_epoch):
    """The image after broker 2 became leader. The epochs are given, so that a test can give wrong
    ones."""
    topic = log.image.topics[T]
    old = topic.partitions[0]
    new = type(old)(old.replicas, (2,), 2, leader_epoch, partition_epoch)
    topic = type(topic)(topic.name, T, topic.partitions.set(0, new))
    image = log.image
    fields = {name: getattr(image, name) for name in image.__slots__}
    fields |= {"topics": image.topics.set(T, topic), "end_offset": image.end_offset + 1}
    return type(image)(**fields)


def test_epochs_of_a_partition_go_up():
    change = PartitionChange(T, 0, isr=(2,), leader=2)
    log = cluster()
    log.put(change, image=with_epochs(log, 1, 1))
    log = cluster()
    with fires("LeaderEpochMonotonic"):
        log.put(change, image=with_epochs(log, 0, 1))
    log = cluster()
    with fires("PartitionEpochMonotonic"):
        log.put(change, image=with_epochs(log, 1, 0))


def test_a_fenced_broker_does_not_lead_between_decisions():
    log = cluster(isr=(1,), is_unclean_default=True)
    log.put(BrokerRegistrationChange(1, 0, is_fenced=True))
    with fires("FencedNeverLeads", "t-0"):
        log.decided()
    log.put(PartitionChange(T, 0, isr=(2,), leader=2)).decided()
    assert log.checks.fencings == 1


def test_a_broker_that_is_gone_does_not_lead():
    log = cluster(isr=(1,)).put(UnregisterBroker(1, 0))
    with fires("FencedNeverLeads"):
        log.decided()


def test_who_could_lead_does():
    log = cluster().put(PartitionChange(T, 0, leader=NO_LEADER))
    with fires("LeaderWherePossible"):
        log.decided()
    eligible = cluster(isr=(1,)).put(Config(RESOURCE_TOPIC, "t", MINIMUM, "2"))
    eligible.put(BrokerRegistrationChange(1, 0, is_fenced=True))
    eligible.put(PartitionChange(T, 0, leader=NO_LEADER)).decided()
    eligible.put(PartitionChange(T, 0, elr=(2,)))
    with fires("LeaderWherePossible"):
        eligible.decided()


def test_who_is_in_sync_beside_others_is_active():
    log = cluster().put(BrokerRegistrationChange(2, 1, is_fenced=True))
    with fires("IsrIsActive"):
        log.decided()


def test_a_move_ends_when_its_targets_are_in_sync():
    moving = PartitionChange(T, 0, replicas=(3, 1, 2), adding_replicas=(3,), removing_replicas=(1,))
    end = {"replicas": (3, 2), "leader": 2, "adding_replicas": (), "removing_replicas": ()}
    cluster(isr=(1, 2, 3)).put(moving).put(PartitionChange(T, 0, isr=(3, 2), **end))
    with fires("MoveEndsInSync"):
        cluster().put(moving).put(PartitionChange(T, 0, isr=(2,), **end))
    # A cancellation restores the original replicas, in sync or not.
    cancel = AlterReassignments(reassignments=())
    back = PartitionChange(T, 0, replicas=(1, 2, 3), adding_replicas=(), removing_replicas=())
    cluster().put(moving).put(back, cancel)


def test_eligible_replicas_are_for_an_isr_below_the_minimum():
    with fires("ElrOnlyBelowMinimum"):
        cluster().put(PartitionChange(T, 0, elr=(3,)))


def test_an_unclean_leader_is_told():
    level = FeatureLevel("metadata.version", 27)
    taking = {"isr": (3,), "leader": 3}
    log = cluster(is_unclean_default=True).put(level)
    log.put(PartitionChange(T, 0, leader_recovery_state=1, **taking))
    with fires("UncleanIsTold"):
        cluster(is_unclean_default=True).put(level).put(PartitionChange(T, 0, **taking))


def test_a_name_stands_for_one_topic():
    with fires("NameStandsForOneTopic"):
        cluster().put(Topic("t", bytes([2] * 16)))


def test_configs_go_with_their_topic():
    log = cluster().put(Config(RESOURCE_TOPIC, "t", MINIMUM, "2"))
    gone = Delta(log.image)
    gone.replay(RemoveTopic(T))
    image = gone.apply(end_offset=log.image.end_offset + 1, epoch=1)
    kept = dataclasses.replace(image, configs=log.image.configs)
    with fires("ConfigsGoWithTheirTopic"):
        log.put(RemoveTopic(T), image=kept)


def test_a_downgrade_loses_nothing():
    down = FeatureLevel("metadata.version", 26)
    cluster().put(down)
    for losing in (
        PartitionChange(T, 0, replicas=(1, 2, 3), adding_replicas=(3,)),
        PartitionChange(T, 0, leader_recovery_state=1),
    ):
        with fires("DowngradeLosesNothing"):
            cluster().put(losing).put(down)
    with fires("DowngradeLosesNothing"):
        cluster().put(ClientQuota((("user", "a"),), "producer_byte_rate", 1.0)).put(down)
    with fires("DowngradeLosesNothing"):
        cluster().put(AccessControlEntry.of(T, acl())).put(FeatureLevel("metadata.version", 28))
