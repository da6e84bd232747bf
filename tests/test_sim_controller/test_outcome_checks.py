"""Replies against committed records: histories that the checks must refuse."""

from __future__ import annotations

import dataclasses

import pytest

from kvorum.chaos.sim.controller.history import History
from kvorum.chaos.sim.controller.outcome_checks import check_attempt, check_blocks, check_outcomes
from kvorum.chaos.sim.controller.reference import Reference
from kvorum.chaos.sim.kernel.checks import CheckFailed
from kvorum.chaos.sim.quorum.model.linearizability import Outcome
from kvorum.chaos.sim.quorum.model.mirror import Mirror
from kvorum.metadata.image.record_codec import encode_record
from kvorum.metadata.image.records import (
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
    RegisterController,
    RemoveAccessControlEntry,
    RemoveTopic,
    Topic,
    UnregisterBroker,
)
from kvorum.metadata.requests import controller_requests as r
from kvorum.metadata.requests.acl_requests import (
    AclCreation,
    AclSelection,
    CreateAcls,
    CreatedAcl,
    DeleteAcls,
    DeletedAcls,
)
from kvorum.metadata.requests.config_requests import (
    AlterClientQuotas,
    AlterConfigs,
    AlteredConfigs,
    AlteredQuota,
    ConfigAlteration,
    ConfigOperation,
    Operation,
    QuotaAlteration,
    QuotaOperation,
)
from kvorum.runtime.errors import ErrorCode, Rejected
from tests.test_metadata.acls import acl

EPOCH = 4
T = bytes([7] * 16)
NONE, REFUSED = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
SURVIVES, NO_TRACE = "AcknowledgedSurvives", "RefusedLeftNoTrace"
ENDPOINTS = (Endpoint("P", "h", 1),)
SOME_TOPIC = (Topic("t", T), Partition(T, 0, (1, 2), (1, 2), 1))
SOME_BROKER = RegisterBroker(1, 0, bytes(16), ENDPOINTS)
ACTIVE_BROKER = dataclasses.replace(SOME_BROKER, is_fenced=False)


def fires(name, match=""):
    return pytest.raises(CheckFailed, match=f"^{name}: .*{match}")


class Story:
    """Requests, each with its reply and its records, and the records that are committed."""

    def __init__(self):
        self.committed = Mirror()
        self.history = History()
        self.reference = Reference(
            self.committed, lambda epoch, offset: self.history.by_place.get((epoch, offset))
        )
        # Switch off the checks of records and decisions, which other tests cover.
        self.reference.checks.on_record = lambda *_: None
        self.reference.checks.on_decision = lambda *_: None

    def before(self, *records):
        return self.tell("before", None, None, *records)

    def tell(self, kind, request, reply, *records, committed=None, is_decided=True):
        attempt = self.history.begin(kind, 1, request)
        attempt.is_decided = is_decided
        base = attempt.base_offset = self.committed.end_offset
        values = [encode_record(record) for record in records]
        if values:
            self.history.note_proposed(attempt, EPOCH, base, values)
        for value in values if committed is None else values[:committed]:
            self.committed.append(EPOCH, value)
        attempt.reply = reply
        return self

    def judge(self):
        check_outcomes(self.history, self.committed, self.reference)


def created(error=NONE, name="t"):
    return r.CreatedTopic(name=name, error=error, topic_id=T, num_partitions=1)


CREATE = r.CreateTopics(topics=(r.NewTopic(name="t"),))


def test_a_sound_history_passes():
    Story().tell("create-topics", CREATE, (created(),), *SOME_TOPIC).judge()
    Story().tell("create-topics", CREATE, (created(REFUSED),)).judge()
    Story().tell("create-topics", CREATE, None, *SOME_TOPIC).judge()
    Story().tell("create-topics", CREATE, None, *SOME_TOPIC, committed=0).judge()


def test_a_planned_stop_blocks_no_topic():
    too_large = (created(ErrorCode.INVALID_REPLICATION_FACTOR),)
    brokers = [dataclasses.replace(ACTIVE_BROKER, broker_id=n) for n in (1, 2, 3)]
    asked = r.CreateTopics(topics=(r.NewTopic(name="t", replication_factor=3),))
    shuts_down = BrokerRegistrationChange(1, 0, in_controlled_shutdown=True)
    ended = BrokerRegistrationChange(1, 0, is_fenced=True)
    while_it_ends = Story().before(*brokers, shuts_down)
    while_it_ends.tell("create-topics", asked, too_large).judge()
    afterwards = Story().before(*brokers, shuts_down, ended)
    with fires("PlannedStopBlocksNothing", "t has more replicas"):
        afterwards.tell("create-topics", asked, too_large).judge()


def test_what_was_acknowledged_must_be_there_whole():
    for committed in (0, 1):
        story = Story().tell(
            "create-topics", CREATE, (created(),), *SOME_TOPIC, committed=committed
        )
        with pytest.raises(CheckFailed, match=f"^({SURVIVES}|UnknownIsWhole)"):
            story.judge()


def test_an_acknowledgement_before_the_commit_is_seen_at_once():
    story = Story().tell("create-topics", CREATE, None, *SOME_TOPIC, committed=0)
    with fires(SURVIVES, "before it was committed"):
        story.history.note_reply(story.history.attempts[0], (created(),), story.committed)


def test_two_answers_to_one_request_are_one_too_many():
    story = Story().tell("create-topics", CREATE, (created(),), *SOME_TOPIC)
    with fires(SURVIVES, "answered twice"):
        story.history.note_reply(story.history.attempts[0], (created(),), story.committed)


def test_what_was_refused_must_not_be_there():
    refused = Rejected(ErrorCode.STALE_BROKER_EPOCH, "no")
    with fires(NO_TRACE):
        Story().tell("create-topics", CREATE, refused, *SOME_TOPIC).judge()
    not_active = Rejected(ErrorCode.NOT_CONTROLLER, "no")
    with fires(NO_TRACE):
        Story().tell("create-topics", CREATE, not_active, *SOME_TOPIC, is_decided=False).judge()


def test_of_what_nobody_knows_all_is_there_or_nothing():
    for reply in (
        None,
        Rejected(ErrorCode.NOT_CONTROLLER, "deposed"),
        Rejected(ErrorCode.REQUEST_TIMED_OUT, "late"),
    ):
        Story().tell("create-topics", CREATE, reply, *SOME_TOPIC).judge()
        with fires("UnknownIsWhole"):
            Story().tell("create-topics", CREATE, reply, *SOME_TOPIC, committed=1).judge()


def test_records_that_nobody_decided_are_seen():
    story = Story()
    story.committed.append(EPOCH, encode_record(Topic("t", T)))
    with fires(NO_TRACE, "no controller decided it"):
        story.reference.advance()


def test_an_image_that_differs_is_seen_with_what_differs():
    story = Story().before(*SOME_TOPIC)
    image = story.reference.at(2)
    story.reference.agrees(image, "node 1")
    with fires("ImagesAgree", "next_producer_id 5"):
        story.reference.agrees(dataclasses.replace(image, next_producer_id=5), "node 1")
    with fires("ImagesAgree", "2 are committed"):
        story.reference.agrees(dataclasses.replace(image, end_offset=9), "node 1")
    with fires("SnapshotEqualsPrefix"):
        story.reference.agrees(dataclasses.replace(image, epoch=1), "x", "SnapshotEqualsPrefix")


def test_a_block_is_handed_out_once():
    story = Story()
    request = r.AllocateProducerIds(broker_id=1, broker_epoch=0)
    for epoch in (0, 1):
        story.history.begin("producer-ids", 1, request)
        story.history.attempts[-1].base_offset = 0
        story.history.attempts[-1].reply = r.ProducerIdBlock(start=500 * epoch, length=1_000)
    with fires("ProducerIdBlockOnce"):
        check_blocks(story.history)


def configs(kind=Operation.SET, value="2", of=(2, "t")):
    operation = ConfigOperation(name="min.insync.replicas", kind=kind, value=value)
    resource = ConfigAlteration(resource_type=of[0], resource_name=of[1], operations=(operation,))
    return AlterConfigs(resources=(resource,))


def configured(error=NONE, of=(2, "t")):
    return (AlteredConfigs(resource_type=of[0], resource_name=of[1], error=error),)


QUOTAS = AlterClientQuotas(
    entries=(
        QuotaAlteration(
            entity=(("user", "a"),),
            operations=(QuotaOperation(key="producer_byte_rate", value=9.0),),
        ),
    )
)
ACL = AccessControlEntry.of(T, acl())
CREATE_ACL = CreateAcls(creations=(AclCreation(**dataclasses.asdict(acl())),))
DELETE_ACL = DeleteAcls(filters=(AclSelection(**dataclasses.asdict(acl())),))
MOVE = r.AlterReassignments(
    reassignments=(r.Reassignment(topic="t", partition_id=0, replicas=(2, 3)),)
)
CANCEL = r.AlterReassignments(
    reassignments=(r.Reassignment(topic="t", partition_id=0, replicas=None),)
)
LEVELS = r.UpdateFeatures(updates=(r.FeatureUpdate(name="metadata.version", max_level=27),))
BEAT = r.Heartbeat(broker_id=1, broker_epoch=0, metadata_offset=9)
PROPOSAL = r.AlterPartition(
    broker_id=1,
    broker_epoch=0,
    proposals=(
        r.IsrProposal(
            topic_id=T, partition_id=0, leader_epoch=0, partition_epoch=0, new_isr=((1, 0),)
        ),
    ),
)
SHRUNK = r.AlteredPartition(
    topic_id=T, partition_id=0, leader=1, leader_epoch=0, isr=(1,), partition_epoch=1
)
CONTROLLER = r.RegisterControllerRequest(
    controller_id=1, cluster_id="c", incarnation_id=bytes(16), endpoints=(), features=()
)


@pytest.mark.parametrize(
    ("before", "request_", "good", "records", "bad_reply", "name"),
    [
        # Records that must be there are missing: (…, records, good reply) and then no records.
        ((), CREATE, (created(),), SOME_TOPIC, (created(REFUSED),), NO_TRACE),
        (
            SOME_TOPIC,
            r.DeleteTopics(topics=(r.TopicReference(name="t"),)),
            (r.DeletedTopic(name="t", topic_id=T),),
            (RemoveTopic(T),),
            (r.DeletedTopic(name="t", topic_id=T, error=REFUSED),),
            NO_TRACE,
        ),
        (
            SOME_TOPIC,
            r.CreatePartitions(topics=(r.NewPartitions(name="t", count=2),)),
            (r.CreatedPartitions(name="t"),),
            (Partition(T, 1, (1, 2), (1, 2), 1),),
            (r.CreatedPartitions(name="t", error=REFUSED),),
            NO_TRACE,
        ),
        (
            SOME_TOPIC,
            configs(),
            configured(),
            (Config(2, "t", "min.insync.replicas", "2"),),
            configured(REFUSED),
            NO_TRACE,
        ),
        (
            (*SOME_TOPIC, Config(2, "t", "min.insync.replicas", "2")),
            configs(Operation.DELETE),
            configured(),
            (Config(2, "t", "min.insync.replicas", None),),
            configured(REFUSED),
            NO_TRACE,
        ),
        (
            (),
            QUOTAS,
            (AlteredQuota(entity=(("user", "a"),)),),
            (ClientQuota((("user", "a"),), "producer_byte_rate", 9.0),),
            (AlteredQuota(entity=(("user", "a"),), error=REFUSED),),
            NO_TRACE,
        ),
        ((), CREATE_ACL, (CreatedAcl(),), (ACL,), (CreatedAcl(error=REFUSED),), NO_TRACE),
        (
            (ACL,),
            DELETE_ACL,
            (DeletedAcls(acls=(acl(),)),),
            (RemoveAccessControlEntry(T),),
            (DeletedAcls(),),
            NO_TRACE,
        ),
        (
            SOME_TOPIC,
            MOVE,
            (r.ReassignedPartition(topic="t", partition_id=0),),
            (
                PartitionChange(
                    T, 0, replicas=(2, 3, 1), adding_replicas=(3,), removing_replicas=(1,)
                ),
            ),
            (r.ReassignedPartition(topic="t", partition_id=0, error=REFUSED),),
            NO_TRACE,
        ),
        (
            (Topic("t", T), Partition(T, 0, (2, 1), (1, 2), 2, adding_replicas=(2,))),
            CANCEL,
            (r.ReassignedPartition(topic="t", partition_id=0),),
            (PartitionChange(T, 0, replicas=(1,), isr=(1,), leader=1, adding_replicas=()),),
            (r.ReassignedPartition(topic="t", partition_id=0, error=REFUSED),),
            NO_TRACE,
        ),
        (
            (Topic("t", T), Partition(T, 0, (1, 2), (1, 2), 2)),
            r.ElectLeaders(),
            (r.ElectedLeader(topic="t", partition_id=0),),
            (PartitionChange(T, 0, leader=1),),
            (r.ElectedLeader(topic="t", partition_id=0, error=REFUSED),),
            NO_TRACE,
        ),
        (
            (Topic("t", T), Partition(T, 0, (1, 2), (1,), -1)),
            r.ElectLeaders(election=r.ElectionType.UNCLEAN),
            (r.ElectedLeader(topic="t", partition_id=0),),
            (PartitionChange(T, 0, isr=(2,), leader=2),),
            (r.ElectedLeader(topic="t", partition_id=0, error=REFUSED),),
            NO_TRACE,
        ),
        (
            (),
            LEVELS,
            (r.UpdatedFeature(name="metadata.version"),),
            (FeatureLevel("metadata.version", 27),),
            (r.UpdatedFeature(name="metadata.version", error=REFUSED),),
            NO_TRACE,
        ),
        (
            (SOME_BROKER,),
            BEAT,
            r.HeartbeatReply(is_caught_up=True, is_fenced=False),
            (BrokerRegistrationChange(1, 0, is_fenced=False),),
            r.HeartbeatReply(is_caught_up=True, is_fenced=True),
            SURVIVES,
        ),
        (
            (ACTIVE_BROKER, *SOME_TOPIC),
            PROPOSAL,
            (SHRUNK,),
            (PartitionChange(T, 0, isr=(1,)),),
            (dataclasses.replace(SHRUNK, error=REFUSED),),
            NO_TRACE,
        ),
        (
            (SOME_BROKER,),
            r.UnregisterBrokerRequest(broker_id=1),
            r.UnregisteredBroker(),
            (UnregisterBroker(1, 0),),
            Rejected(REFUSED, "no"),
            NO_TRACE,
        ),
        (
            (),
            CONTROLLER,
            r.RegisteredController(),
            (RegisterController(1, bytes(16), (), ()),),
            Rejected(REFUSED, "no"),
            NO_TRACE,
        ),
        (
            (SOME_BROKER,),
            r.AllocateProducerIds(broker_id=1, broker_epoch=0),
            r.ProducerIdBlock(start=0, length=1_000),
            (ProducerIds(1, 0, 1_000),),
            r.ProducerIdBlock(start=1_000, length=1_000),
            "ProducerIdBlockOnce",
        ),
        (
            (),
            r.RegisterBrokerRequest(
                broker_id=1, cluster_id="c", incarnation_id=bytes(16), endpoints=ENDPOINTS
            ),
            r.RegisteredBroker(broker_epoch=0),
            (SOME_BROKER,),
            r.RegisteredBroker(broker_epoch=5),
            SURVIVES,
        ),
    ],
)
def test_a_reply_says_what_is_there(before, request_, good, records, bad_reply, name):
    Story().before(*before).tell("it", request_, good, *records).judge()
    with pytest.raises(CheckFailed):
        Story().before(*before).tell("it", request_, good).judge()
    with fires(name):
        Story().before(*before).tell("it", request_, bad_reply, *records).judge()


def test_a_list_of_moves_is_that_of_the_image():
    moving = Partition(T, 0, (2, 1), (1, 2), 2, adding_replicas=(2,))
    request = r.ListReassignments()
    one = r.OngoingReassignment(
        topic="t", partition_id=0, replicas=(2, 1), adding_replicas=(2,), removing_replicas=()
    )
    Story().before(Topic("t", T), moving).tell("list", request, (one,)).judge()
    with fires(SURVIVES):
        Story().before(Topic("t", T), moving).tell("list", request, ()).judge()


def test_a_dry_run_writes_nothing():
    dry = dataclasses.replace(CREATE, validate_only=True)
    Story().tell("create-topics", dry, (created(),)).judge()
    with fires(NO_TRACE, "dry run"):
        Story().tell("create-topics", dry, (created(),), *SOME_TOPIC).judge()


def test_one_who_gets_no_answer_knows_nothing():
    story = Story().tell("create-topics", CREATE, None, *SOME_TOPIC)
    attempt = story.history.attempts[0]
    assert attempt.told is Outcome.UNKNOWN
    check_attempt(attempt, story.committed, story.reference)


SHRINK = PartitionChange(T, 0, isr=(1,))


@pytest.mark.parametrize(
    "changes",
    [
        {"broker_epoch": 3},
        {"proposals": (dataclasses.replace(PROPOSAL.proposals[0], leader_epoch=1),)},
        {"proposals": (dataclasses.replace(PROPOSAL.proposals[0], partition_epoch=1),)},
        {"proposals": (dataclasses.replace(PROPOSAL.proposals[0], new_isr=((1, 7),)),)},
        {"proposals": (dataclasses.replace(PROPOSAL.proposals[0], new_isr=((9, -1),)),)},
    ],
)
def test_a_stale_proposal_must_not_be_accepted(changes):
    before = (ACTIVE_BROKER, *SOME_TOPIC)
    Story().before(*before).tell("it", PROPOSAL, (SHRUNK,), SHRINK).judge()
    with fires("StaleIsRefused"):
        stale = dataclasses.replace(PROPOSAL, **changes)
        Story().before(*before).tell("it", stale, (SHRUNK,), SHRINK).judge()


def test_a_follower_must_not_change_the_isr():
    second = RegisterBroker(2, 1, bytes(16), ENDPOINTS, is_fenced=False)
    by_another = dataclasses.replace(PROPOSAL, broker_id=2, broker_epoch=1)
    story = Story().before(ACTIVE_BROKER, second, *SOME_TOPIC)
    with fires("StaleIsRefused", "as its leader believed"):
        story.tell("it", by_another, (SHRUNK,), SHRINK).judge()


@pytest.mark.parametrize(
    ("partition", "broken"),
    [
        (Partition(T, 0, (1, 2), (1,), 1), "FencedNeverLeads"),
        (Partition(T, 0, (1, 2), (2,), 2, elr=(1,)), "GoneIsNotEligible"),
    ],
)
def test_elections_do_not_count_on_an_unregistered_broker(partition: Partition, broken: str):
    story = Story().before(SOME_BROKER, Topic("t", T), partition)
    with fires(broken):
        story.tell(
            "it",
            r.UnregisterBrokerRequest(broker_id=1),
            r.UnregisteredBroker(),
            UnregisterBroker(1, 0),
        ).judge()


def test_who_may_have_lost_its_log_is_no_eligible_leader():
    eligible = (Topic("t", T), Partition(T, 0, (1, 2), (2,), 2, elr=(1,)))
    fields = {"broker_id": 1, "cluster_id": "c", "endpoints": ENDPOINTS}
    request = r.RegisterBrokerRequest(incarnation_id=bytes([5] * 16), **fields)
    clean = dataclasses.replace(request, broker_epoch_before=0)
    anew = RegisterBroker(1, 3, bytes([5] * 16), ENDPOINTS)
    reply = r.RegisteredBroker(broker_epoch=3)
    Story().before(SOME_BROKER, *eligible).tell("it", clean, reply, anew).judge()
    with fires("LostIsNotEligible"):
        Story().before(SOME_BROKER, *eligible).tell("it", request, reply, anew).judge()


def test_a_broker_is_unfenced_once_it_has_seen_its_registration():
    early = dataclasses.replace(BEAT, metadata_offset=0)
    reply = r.HeartbeatReply(is_caught_up=True, is_fenced=False)
    unfenced = BrokerRegistrationChange(1, 0, is_fenced=False)
    with fires("UnfencedOnceCaughtUp"):
        Story().before(SOME_BROKER).tell("it", early, reply, unfenced).judge()


def test_eligible_replicas_stay_when_the_minimum_is_said_again():
    # Seed 409: a replacement said the same minimum and left out another config.
    eligible = (Topic("t", T), Partition(T, 0, (1, 2), (2,), 2, elr=(1,)))
    known = (Config(2, "t", "min.insync.replicas", "2"), Config(2, "t", "retention.ms", "9"))
    again = dataclasses.replace(configs(), is_replacement=True)
    left_out = Config(2, "t", "retention.ms", None)
    Story().before(*eligible, *known).tell("it", again, configured(), left_out).judge()


def test_eligible_replicas_end_with_a_minimum_that_a_replacement_leaves_out():
    eligible = (Topic("t", T), Partition(T, 0, (1, 2), (2,), 2, elr=(1,)))
    known = (Config(2, "t", "min.insync.replicas", "2"),)
    without = AlterConfigs(
        resources=(ConfigAlteration(resource_type=2, resource_name="t", operations=()),),
        is_replacement=True,
    )
    left_out = Config(2, "t", "min.insync.replicas", None)
    with fires("ElrEndsWithItsMinimum"):
        Story().before(*eligible, *known).tell("it", without, configured(), left_out).judge()


def test_eligible_replicas_end_with_the_minimum_that_made_them():
    eligible = (Topic("t", T), Partition(T, 0, (1, 2), (2,), 2, elr=(1,)))
    change = Config(2, "t", "min.insync.replicas", "2")
    cleared = PartitionChange(T, 0, elr=())
    Story().before(*eligible).tell("it", configs(), configured(), cleared, change).judge()
    with fires("ElrEndsWithItsMinimum"):
        Story().before(*eligible).tell("it", configs(), configured(), change).judge()


def test_a_default_minimum_ends_no_elr_of_a_topic_that_has_its_own():
    eligible = (Topic("t", T), Partition(T, 0, (1, 2), (2,), 2, elr=(1,)))
    own = Config(2, "t", "min.insync.replicas", "2")
    change = Config(4, "", "min.insync.replicas", "2")
    asked, done = configs(of=(4, "")), configured(of=(4, ""))
    Story().before(*eligible, own).tell("it", asked, done, change).judge()
    with fires("ElrEndsWithItsMinimum"):
        Story().before(*eligible).tell("it", asked, done, change).judge()
