"""Classic members in a group of the consumer protocol: each rule as a short story."""

from __future__ import annotations

import pytest

from kvorum.broker.groups.classic.group import ClassicGroup
from kvorum.broker.groups.consumer.requests import ConsumerHeartbeated, DescribeConsumerGroup
from kvorum.broker.groups.consumer.states import MemberState
from kvorum.broker.groups.steps.migration_policy import MigrationPolicy
from kvorum.broker.groups.steps.requests import DescribeGroup, ListGroups, ProtocolMetadata
from kvorum.runtime.errors import ErrorCode
from tests.test_groups.consumer.world import JOIN, Member, joined, parts, settle
from tests.test_groups.migration.world import (
    ALL,
    COOPERATIVE,
    EAGER,
    Classic,
    MixedWorld,
    assignment,
    classics,
    code,
    one_of_each,
    orders,
    owned,
    settle_all,
    settle_classic,
    subscription,
    world_with,
)
from tests.test_groups.world import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    commit_body,
    fetch_body,
    join_body,
    protocols,
    transaction_commit_body,
)


@pytest.fixture
def world():
    return MixedWorld()


@pytest.fixture
def mixed(world):
    return one_of_each(world)


def test_a_cooperative_member_keeps_its_epoch_until_it_has_given_up(world):
    (old,) = classics(world, 1)
    new = Member(world, "n")
    new.join()
    generation = old.generation
    assert old.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    old.act()
    old.act()
    # The member gets the smaller assignment in the old generation; the partitions that it gives up
    # are not free yet.
    assert old.generation == generation
    assert world.group.members[old.member_id].state == MemberState.UNREVOKED_PARTITIONS
    assert new.beat().assignment is None
    old.act()
    assert old.owned_ids | parts("orders", 2, 3) == ALL
    # Only the next join, after it has given up, frees them.
    old.act()
    assert len(new.beat().assignment) == 2
    old.enter()
    assert old.generation == generation + 1


def test_an_eager_member_gives_everything_up_as_it_joins(world):
    (old,) = classics(world, 1, assignor=EAGER)
    new = Member(world, "n")
    new.join()
    old.beat()
    old.act()
    assert world.group.members[old.member_id].state == MemberState.STABLE
    assert len(new.beat().assignment) == 2
    old.enter(2)
    assert len(old.owned) == 2


def test_a_member_is_told_when_what_it_waits_for_is_free(mixed):
    world, old, new = mixed
    new.is_slow = True
    third = Classic(world, "t")
    third.enter()
    assert third.owned == frozenset()
    settle_all([old], [new])
    assert third.beat() == ErrorCode.NONE
    new.is_slow = False
    new.own()
    settle_all([old], [new])
    assert third.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    third.enter()
    assert owned(old, new, third) == sorted(ALL)


def test_a_new_classic_member_gets_an_id_first_and_leads_nobody(mixed):
    world, _, _ = mixed
    asked = world.call(join_body(offers=(ProtocolMetadata(COOPERATIVE, subscription()),)))
    assert asked.error == ErrorCode.MEMBER_ID_REQUIRED
    assert asked.member_id not in world.group.members
    third = Classic(world, "t")
    third.act()
    third.act()
    third.act()
    answer = world.call(third.join_body())
    assert (answer.leader, answer.members) == ("", ())
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", COOPERATIVE)


def test_a_member_hears_of_its_epoch_and_its_assignment_once_they_are_replicated(mixed):
    world, old, _ = mixed
    Member(world, "m").join()
    world.is_replicating = False
    joins = [world.ask(old.join_body()) for _ in range(2)]
    generation = world.group.members[old.member_id].member_epoch
    sync = world.sync(old.member_id, generation)
    # The second join and the sync write nothing; they rest on what the first has written.
    assert not world.answers.keys() & {*joins, sync}
    world.replicate()
    assert [world.answers[token].error for token in (*joins, sync)] == [0, 0, 0]


def test_a_lost_answer_is_told_again(mixed):
    world, old, _ = mixed
    Member(world, "m").join()
    answers = [world.call(old.join_body()) for _ in range(2)]
    assert answers[0] == answers[1]
    before = len(world.log)
    world.call(old.join_body())
    assert len(world.log) == before


def test_an_old_client_joins_without_an_id(mixed):
    world, _, _ = mixed
    body = join_body(version=3, offers=(ProtocolMetadata(COOPERATIVE, subscription(version=0)),))
    answer = world.call(body)
    assert answer.error == ErrorCode.NONE
    assert answer.member_id in world.group.members


def test_a_member_that_was_put_out_gives_up_before_it_joins_again(mixed):
    world, old, new = mixed
    world.advance(SESSION_MS)
    new.beat()
    assert old.member_id not in world.group.members
    old.needs_join = True
    old.act()
    old.act()
    assert old.errors == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert old.owned == frozenset()


@pytest.mark.parametrize(
    "body",
    [
        join_body(protocol_type="connect"),
        join_body(offers=(ProtocolMetadata(COOPERATIVE, b"\x00"),)),
        join_body(offers=(ProtocolMetadata("other", subscription()),)),
        join_body(offers=()),
    ],
)
def test_who_shares_nothing_with_the_classic_members_is_refused(mixed, body):
    world, _, _ = mixed
    assert world.call(body).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_may_change_its_own_assignor_when_it_is_the_only_classic_one(mixed):
    world, old, _ = mixed
    old.assignor = EAGER
    old.needs_join = True
    old.enter()
    assert world.group.members[old.member_id].classic.protocols[0].name == EAGER


def test_a_full_group_takes_no_classic_member():
    world = world_with(MigrationPolicy.BIDIRECTIONAL, group_consumer_max_size=1)
    joined(world, "n")
    body = join_body("some-id", names=(EAGER,))
    assert world.call(body).error == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_with_the_policy_disabled_a_consumer_group_takes_no_classic_member():
    world = world_with(MigrationPolicy.DISABLED)
    joined(world, "n")
    answer = world.call(join_body("some-id", names=(EAGER,)))
    assert answer.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_sync_asks_for_generation_protocol_and_kind(mixed):
    world, old, _ = mixed
    generation = old.generation

    def sync(member_id=old.member_id, generation=generation, **more):
        return world.answers[world.sync(member_id, generation, **more)].error

    assert sync() == ErrorCode.NONE
    assert sync(generation=generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert sync(protocol_type="connect") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(protocol_name=EAGER) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync("nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert sync("n") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_sync_after_the_next_epoch_has_begun_joins_again(mixed):
    world, old, _ = mixed
    old.needs_join = True
    old.act()
    Member(world, "m").join()
    old.act()
    old.act()
    assert old.errors == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_heartbeats_of_others_and_of_other_generations_are_refused(mixed):
    world, old, _ = mixed
    assert world.heartbeat(old.member_id, old.generation) == ErrorCode.NONE
    assert world.heartbeat(old.member_id, old.generation + 1) == ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat("nobody", old.generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("n", old.generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_has_its_own_session_time_out(mixed):
    world, old, new = mixed
    world.advance(SESSION_MS - 1)
    assert old.member_id in world.group.members
    new.beat()
    world.advance(1)
    assert old.member_id not in world.group.members
    settle([new])
    assert new.owned == ALL


def test_who_is_told_to_join_and_does_not_is_out(mixed):
    world, old, new = mixed
    Member(world, "m").join()
    for _ in range(REBALANCE_MS // 5_000):
        assert old.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        new.beat()
        world.advance(5_000)
    assert old.member_id not in world.group.members


def test_who_joins_and_does_not_fetch_is_out(mixed):
    world, old, new = mixed
    answer = world.call(old.join_body())
    for _ in range(REBALANCE_MS // 5_000):
        assert world.heartbeat(old.member_id, answer.generation_id) == ErrorCode.NONE
        new.beat()
        world.advance(5_000)
    assert old.member_id not in world.group.members


def test_classic_members_leave(mixed):
    world, old, new = mixed
    rows = world.leave((old.member_id, None), (old.member_id, None), ("x", None))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [row.error for row in rows] == [ErrorCode.NONE, unknown, unknown]
    settle([new])
    assert new.owned == ALL


def test_administrators_remove_dynamic_members_of_either_protocol(mixed):
    world, old, new = mixed
    rows = world.leave((new.member_id, None), (new.member_id, None))
    assert [row.error for row in rows] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    # Only a member of the classic protocol is left: it is a classic group from here on.
    (group,) = world.shard.groups.values()
    assert isinstance(group, ClassicGroup)
    assert list(group.members) == [old.member_id]


def test_administrators_remove_static_members_of_either_protocol(world):
    joined(world, "n", instance_id="one")
    old = Classic(world, "o", instance="two").enter()
    rows = world.leave(("", "one"), ("", "two"), ("", "three"))
    assert [row.error for row in rows] == [0, 0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert old.member_id not in world.group.members
    assert world.group.is_empty


def test_a_topic_that_grows_reaches_classic_members(mixed):
    world, old, new = mixed
    world.set_topic("orders", 6)
    settle_all([old], [new])
    assert owned(old, new) == sorted(parts("orders", *range(6)))


def test_commits_name_the_epoch_as_generation(mixed):
    world, old, _ = mixed
    row = ("orders", 0, 5)

    def commit(generation, **more):
        body = commit_body(row, member_id=old.member_id, generation_id=generation, **more)
        return world.call(body)

    assert commit(old.generation, version=8).errors == (ErrorCode.NONE,)
    assert commit(old.generation + 1, version=8) == ErrorCode.ILLEGAL_GENERATION
    assert commit(old.generation + 1) == ErrorCode.ILLEGAL_GENERATION
    stale = transaction_commit_body(
        row, producer_id=7, member_id=old.member_id, generation_id=old.generation - 1
    )
    assert world.call(stale) == ErrorCode.ILLEGAL_GENERATION
    assert world.call(fetch_body(("orders", 0))).topics


def test_administrators_see_a_consumer_group_with_classic_members(mixed):
    world, old, _ = mixed
    assert world.call(DescribeGroup(group_id=GROUP)) == ErrorCode.GROUP_ID_NOT_FOUND
    described = world.call(DescribeConsumerGroup(group_id=GROUP))
    kinds = {row.member.member_id: row.member.classic is not None for row in described.members}
    assert kinds == {old.member_id: True, "n": False}
    (listed,) = world.call(ListGroups())
    assert (listed.group_type, listed.state) == ("consumer", "Stable")


def test_protocols_of_version_nought_are_eager(world):
    """A subscription of version 0 has no field for owned partitions, so its member owns none."""
    offers = protocols(EAGER)
    member_id, token = world.enter(offers=offers)
    generation = world.until(token).generation_id
    world.sync(member_id, generation, {member_id: assignment(orders(0, 1, 2, 3))})
    new = Member(world, "n")
    new.join()
    world.call(join_body(member_id, offers=offers))
    assert len(new.beat().assignment) == 2


# --- one id, the other protocol ------------------------------------------------------------------


def kinds_of_timers(world, member_id):
    timers = [name for name in world.timers if getattr(name, "member_id", None) == member_id]
    return sorted(name.kind for name in timers)


def test_a_heartbeat_in_its_epoch_makes_a_classic_member_one_of_the_consumer_protocol(mixed):
    world, old, new = mixed
    Member(world, "m").join()
    Member(world, "k").join()
    old.beat()
    old.act()
    assert kinds_of_timers(world, old.member_id) == ["classic-sync", "consumer-session"]
    assert world.group.members[old.member_id].state == MemberState.UNREVOKED_PARTITIONS
    answer = world.beat(old.member_id, old.generation)
    assert isinstance(answer, ConsumerHeartbeated)
    assert world.group.members[old.member_id].classic is None
    # It still has to revoke the same partitions, within the time-out of the new protocol.
    assert kinds_of_timers(world, old.member_id) == ["consumer-rebalance", "consumer-session"]
    classic_call = world.heartbeat(old.member_id, old.generation)
    assert classic_call == ErrorCode.UNKNOWN_MEMBER_ID
    new.beat()
    world.advance(SESSION_MS)
    assert old.member_id in world.group.members, "it has the session of the consumer protocol"


def test_a_join_makes_a_member_of_the_consumer_protocol_a_classic_one(mixed):
    world, old, new = mixed
    Member(world, "m").join()
    Member(world, "k").join()
    new.is_slow = True
    new.beat()
    assert kinds_of_timers(world, "n") == ["consumer-rebalance", "consumer-session"]
    offers = (ProtocolMetadata(COOPERATIVE, subscription()),)
    answer = world.call(join_body("n", offers=offers))
    assert answer.error == ErrorCode.NONE
    assert kinds_of_timers(world, "n") == ["classic-sync", "consumer-session"]
    assert code(world.beat("n", 0, **JOIN)) == ErrorCode.INVALID_REQUEST
    settle_all([old], [])
    world.advance(SESSION_MS)
    assert "n" not in world.group.members, "it has the session that it asked for"


# --- static members ------------------------------------------------------------------------------


def test_a_static_member_is_restarted_with_the_new_protocol(world):
    old = classics(world, 2)
    static = Classic(world, "s", instance="one")
    settle_classic([*old, static])
    had = static.owned_ids
    new = Member(world, "n", instance_id="one")
    answer = new.join()
    assert answer.assignment == had, "it goes on where it was"
    assert static.member_id not in world.group.members
    assert static.beat() == ErrorCode.FENCED_INSTANCE_ID
    settle_all(old, [new])
    assert owned(*old, new) == sorted(ALL)


def test_a_static_member_is_restarted_with_the_classic_protocol(mixed):
    world, old, _ = mixed
    static = Member(world, "s", instance_id="one")
    static.join()
    settle_all([old], [static])
    had = static.owned
    static.leave(-2)
    back = Classic(world, "b", instance="one").enter()
    assert back.owned_ids == had
    assert "s" not in world.group.members
    assert code(static.beat()) == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("member_id", ["stranger", ""])
def test_an_instance_id_is_one_members(mixed, member_id):
    world, _, _ = mixed
    static = Classic(world, "s", instance="one").enter()
    offers = (ProtocolMetadata(COOPERATIVE, subscription()),)
    answer = world.call(join_body(member_id, instance="one", offers=offers))
    if member_id:
        assert answer.error == ErrorCode.FENCED_INSTANCE_ID
        return
    # A new client in its place.
    assert answer.error == ErrorCode.NONE
    assert static.beat() == ErrorCode.FENCED_INSTANCE_ID
    unknown = world.call(join_body("stranger", instance="two", offers=offers))
    assert unknown.error == ErrorCode.UNKNOWN_MEMBER_ID
