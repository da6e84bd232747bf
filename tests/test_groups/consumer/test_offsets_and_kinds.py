"""Offsets of groups of the consumer protocol, and groups that change their kind."""

from __future__ import annotations

import pytest

from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.broker.groups.steps.migration_policy import MigrationPolicy
from kvorum.broker.groups.steps.records import group_key
from kvorum.broker.groups.steps.requests import DeleteGroup, DeleteOffsets, TopicPartitions
from kvorum.runtime.errors import ErrorCode, Rejected
from tests.test_groups.consumer.world import REBALANCE_MS, ConsumerWorld, Member, joined
from tests.test_groups.world import (
    GROUP,
    commit_body,
    committed,
    compacted,
    fetch_body,
    transaction_commit_body,
)


@pytest.fixture
def world():
    return ConsumerWorld()


def code(answer):
    assert isinstance(answer, Rejected), answer
    return answer.code


# --- offsets -------------------------------------------------------------------------------------


def commit(world, member_id, epoch, **more):
    body = commit_body(("orders", 0, 5), member_id=member_id, generation_id=epoch, **more)
    return world.call(body)


def test_only_members_in_their_epoch_commit(world):
    (member,) = joined(world, "a")
    assert commit(world, "a", 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(world, "a", 2, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert commit(world, "b", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, "a", member.epoch).errors == (ErrorCode.NONE,)
    assert committed(world) == {("orders", 0): 5}


def test_without_members_tools_commit(world):
    (member,) = joined(world, "a")
    member.leave()
    assert commit(world, "", -1).errors == (ErrorCode.NONE,)


def test_in_transactions_a_stale_epoch_is_an_illegal_generation(world):
    joined(world, "a")
    row = ("orders", 0, 5)
    stale = transaction_commit_body(row, producer_id=7, member_id="a", generation_id=9)
    assert world.call(stale) == ErrorCode.ILLEGAL_GENERATION
    world.call(transaction_commit_body(row, producer_id=7))
    good = transaction_commit_body(row, producer_id=7, member_id="a", generation_id=1)
    assert world.call(good).errors == (ErrorCode.NONE,)


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        (None, -1, None),
        ("a", 1, None),
        ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_fetches_as_a_member_must_be_one(world, member_id, epoch, error):
    joined(world, "a")
    body = fetch_body(("orders", 0))
    asked = type(body)(
        group_id=GROUP, topics=body.topics, require_stable=False,
        member_id=member_id, member_epoch=epoch,
    )  # fmt: skip
    answer = world.call(asked)
    assert answer == error if error is not None else answer.topics


def test_offsets_of_subscribed_topics_are_not_deleted(world):
    joined(world, "a")
    commit(world, "a", 1)
    body = DeleteOffsets(group_id=GROUP, topics=(TopicPartitions("orders", (0,)),))
    assert world.call(body).topics[0].error == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    other = DeleteOffsets(group_id=GROUP, topics=(TopicPartitions("other", (0,)),))
    assert world.call(other).topics[0].error == ErrorCode.NONE


def test_offsets_of_subscribed_topics_do_not_expire_and_the_group_ends_with_its_last():
    config = GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=10_000)
    world = ConsumerWorld(config)
    (member,) = joined(world, "a")
    rows = (("orders", 0, 5), ("other", 0, 5))
    world.call(commit_body(*rows, member_id="a", generation_id=1))
    for _ in range(6):
        world.advance(20_000)
        member.beat()
    assert committed(world) == {("orders", 0): 5}
    member.leave()
    world.advance(10_000)
    assert GROUP not in world.shard.groups
    assert GROUP not in world.loaded().groups


def test_a_group_with_members_is_not_deleted(world):
    (member,) = joined(world, "a")
    assert world.call(DeleteGroup(group_id=GROUP)) == ErrorCode.NON_EMPTY_GROUP
    member.leave()
    assert world.call(DeleteGroup(group_id=GROUP)) == ErrorCode.NONE
    assert world.loaded().groups == {}


# --- groups of the other kind --------------------------------------------------------------------


def test_a_classic_group_with_members_stays_one_if_the_policy_says_so():
    world = ConsumerWorld(GroupConfig(group_consumer_migration_policy=MigrationPolicy.DISABLED))
    world.stable(1)
    answer = Member(world, "a").join()
    assert code(answer) == ErrorCode.GROUP_ID_NOT_FOUND
    assert "classic" in answer.message


def test_an_empty_classic_group_becomes_one_of_the_consumer_protocol(world):
    members, generation = world.stable(1)
    world.call(commit_body(("orders", 0, 5), member_id=members[0], generation_id=generation))
    world.leave((members[0], None))
    world.advance(REBALANCE_MS)
    joined(world, "a")
    assert committed(world) == {("orders", 0): 5}
    assert world.loaded().groups[GROUP].members.keys() == {"a"}


def test_a_group_that_changed_its_kind_does_not_come_back_as_what_it_was(world):
    members, _ = world.stable(1)
    world.leave((members[0], None))
    world.advance(REBALANCE_MS)
    (member,) = joined(world, "a")
    member.leave()
    world.call(DeleteGroup(group_id=GROUP))
    assert world.loaded(compacted(world.log)).groups == {}


def test_a_tombstone_of_the_other_kind_ends_nothing(world):
    joined(world, "a")
    tombstone = world.log[-1]._replace(key=group_key(GROUP), value=None)
    assert world.loaded([*world.log, tombstone]).groups[GROUP].members.keys() == {"a"}


@pytest.mark.parametrize("policy", list(MigrationPolicy))
def test_an_empty_group_of_the_consumer_protocol_becomes_a_classic_one(policy):
    world = ConsumerWorld(GroupConfig(group_consumer_migration_policy=policy))
    (member,) = joined(world, "a")
    is_refused = policy == MigrationPolicy.DISABLED
    error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL if is_refused else ErrorCode.MEMBER_ID_REQUIRED
    assert world.answers[world.join()].error == error
    member.leave()
    world.stable(1)
    assert world.state == "Stable"
    assert world.loaded().groups[GROUP].state.value == "Stable"


def test_classic_calls_find_no_member_here(world):
    joined(world, "a")
    assert world.heartbeat("a", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.answers[world.sync("a", 1)].error == ErrorCode.UNKNOWN_MEMBER_ID
