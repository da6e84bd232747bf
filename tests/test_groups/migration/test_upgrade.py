"""A classic group becomes one of the consumer protocol: each rule as a short story."""

from __future__ import annotations

import pytest

from kvorum.broker.groups.consumer.requests import ConsumerHeartbeated
from kvorum.broker.groups.consumer.states import ConsumerGroupState
from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.broker.groups.steps.migration_policy import MigrationPolicy, parse_policy
from kvorum.broker.groups.steps.requests import ProtocolMetadata
from kvorum.runtime.errors import ErrorCode
from tests.test_groups.consumer.world import JOIN, Member, parts, settle
from tests.test_groups.migration.world import (
    ALL,
    COOPERATIVE,
    EAGER,
    Classic,
    MixedWorld,
    assignment,
    classics,
    code,
    orders,
    owned,
    settle_all,
    settle_classic,
    subscription,
    world_with,
)
from tests.test_groups.world import (
    SESSION_MS,
    commit_body,
    committed,
)


@pytest.fixture
def world():
    return MixedWorld()


@pytest.mark.parametrize("assignor", [EAGER, COOPERATIVE])
def test_a_consumer_takes_a_classic_group_over_with_its_members(world, assignor):
    old = classics(world, 2, assignor=assignor)
    generation = world.classic.generation_id
    had = {m.member_id: m.owned_ids for m in old}
    new = Member(world, "n")
    told = new.join()
    assert isinstance(told, ConsumerHeartbeated)
    assert (told.member_epoch, told.assignment) == (generation + 1, frozenset())
    # They keep what they have until they have given it up.
    members = world.group.members
    assert {name: members[name].assigned for name in had} == had
    assert {members[name].member_epoch for name in had} == {generation}
    assert all(members[name].classic.session_timeout_ms == SESSION_MS for name in had)
    settle_all(old, [new])
    assert world.group.state == ConsumerGroupState.STABLE
    assert owned(*old, new) == sorted(ALL)
    assert [error for m in old for error in m.errors if error in (22, 25)] == []


def test_who_dies_before_the_upgrade_is_out_after_its_session(world):
    classics(world, 2)
    new = Member(world, "n")
    new.join()
    world.advance(SESSION_MS)
    assert list(world.group.members) == ["n"]
    settle([new])
    assert new.owned == ALL


def test_the_upgrade_is_one_batch(world):
    classics(world, 2)
    before = len(world.appends)
    Member(world, "n").join()
    (batch,) = world.appends[before:]
    assert batch.records[0].value is None
    assert len(batch.records) > 8


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_who_waits_for_the_classic_groups_rebalance_joins_again(world, state):
    first, second = Classic(world, "a"), Classic(world, "b")
    settle_classic([first])
    for _ in range(3):
        second.act()
    first.beat()
    if state == "CompletingRebalance":
        first.act()
        second.act()
    assert world.state == state
    Member(world, "n").join()
    assert not world.waiting
    assert not [name for name in world.timers if name.kind in ("join", "sync", "session")]
    second.act()
    assert second.errors[-1] == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_rebalance_that_was_broken_off_frees_nothing_that_is_still_read(world):
    """CompletingRebalance ends without an assignment: members own what they named last."""
    first, second = Classic(world, "a"), Classic(world, "b")
    settle_classic([first])
    for _ in range(3):
        second.act()
    first.beat()
    first.act()
    second.act()
    assert world.state == "CompletingRebalance"
    third = Classic(world, "c")
    third.act()
    third.act()
    third.act()
    assert world.state == "PreparingRebalance"
    assert world.classic.members[first.member_id].assignment == b""
    new = Member(world, "n")
    assert new.join().assignment == frozenset()
    assert world.group.members[first.member_id].assigned == first.owned_ids == ALL


def test_offsets_stay(world):
    (old,) = classics(world, 1)
    row = ("orders", 0, 5)
    world.call(commit_body(row, member_id=old.member_id, generation_id=old.generation))
    new = Member(world, "n")
    new.join()
    settle_all([old], [new])
    assert committed(world) == {("orders", 0): 5}
    old.leave()
    new.leave()
    assert committed(world) == {("orders", 0): 5}


def test_a_fail_over_in_the_middle_goes_on(world):
    old = classics(world, 2)
    had = {m.member_id: m.owned_ids for m in old}
    new = Member(world, "n")
    new.join()
    world.fail_over()
    assert world.kind == "consumer"
    members = world.group.members
    assert members[old[0].member_id].classic.session_timeout_ms == SESSION_MS
    assert {name: members[name].assigned for name in had} == had
    settle_all(old, [new])
    assert world.group.state == ConsumerGroupState.STABLE
    assert owned(*old, new) == sorted(ALL)


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        (MigrationPolicy.DISABLED, ErrorCode.GROUP_ID_NOT_FOUND),
        (MigrationPolicy.DOWNGRADE, ErrorCode.GROUP_ID_NOT_FOUND),
        (MigrationPolicy.UPGRADE, None),
        (MigrationPolicy.BIDIRECTIONAL, None),
    ],
)
def test_the_policy_allows_the_upgrade_or_not(policy, error):
    world = world_with(policy)
    classics(world, 1)
    before = len(world.log)
    answer = Member(world, "n").join()
    if error is None:
        assert world.kind == "consumer"
    else:
        assert code(answer) == error
        assert f"group.consumer.migration.policy is {policy.value}" in answer.message
        assert (world.kind, len(world.log)) == ("classic", before)


@pytest.mark.parametrize(
    ("metadata", "assigned", "why"),
    [
        (b"\x00", b"", "subscribes to does not parse"),
        (subscription(), b"\x00", "was assigned does not parse"),
        (subscription(), assignment(orders(0), b"mine"), "an assignor of its own"),
    ],
)
def test_members_that_cannot_be_understood_are_not_taken_over(world, metadata, assigned, why):
    offer = (ProtocolMetadata("custom", metadata),)
    member_id, token = world.enter(offers=offer)
    generation = world.until(token).generation_id
    world.sync(member_id, generation, {member_id: assigned})
    answer = Member(world, "n").join()
    assert code(answer) == ErrorCode.GROUP_ID_NOT_FOUND
    assert why in answer.message
    assert world.state == "Stable"


def test_what_sticky_assignors_tell_the_next_leader_is_no_hindrance(world):
    offer = (ProtocolMetadata(COOPERATIVE, subscription()),)
    member_id, token = world.enter(offers=offer)
    generation = world.until(token).generation_id
    world.sync(member_id, generation, {member_id: assignment(orders(0), b"librdkafka's")})
    Member(world, "n").join()
    assert world.group.members[member_id].assigned == parts("orders", 0)


def test_members_that_are_no_consumers_are_not_taken_over(world):
    world.stable(1, protocol_type="connect")
    answer = Member(world, "n").join()
    assert code(answer) == ErrorCode.GROUP_ID_NOT_FOUND
    assert "'connect'" in answer.message


def test_a_refused_heartbeat_upgrades_nothing(world):
    classics(world, 1)
    answer = world.beat("n", 0, **JOIN, subscribed_topic_regex="(")
    assert code(answer) == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert world.kind == "classic"
    assert code(world.beat("n", 3)) == ErrorCode.GROUP_ID_NOT_FOUND


def test_sizes_hold_for_groups_that_are_upgraded():
    world = world_with(MigrationPolicy.BIDIRECTIONAL, group_consumer_max_size=2)
    classics(world, 3)
    answer = Member(world, "n").join()
    assert code(answer) == ErrorCode.GROUP_ID_NOT_FOUND
    assert "more than 2 members" in answer.message


def test_a_group_that_does_not_fit_into_one_batch_stays_classic():
    world = world_with(MigrationPolicy.BIDIRECTIONAL, message_max_bytes=1_000)
    classics(world, 3)
    answer = Member(world, "n").join()
    assert code(answer) == ErrorCode.GROUP_ID_NOT_FOUND
    assert "one batch" in answer.message
    assert world.kind == "classic"


def test_partitions_that_two_were_assigned_are_one_members(world):
    """A classic leader may assign as it likes; the upgrade must not fail because of it."""
    entered = [world.enter() for _ in range(2)]
    generation = world.until(entered[0][1]).generation_id
    given = {member_id: assignment(orders(0, 1, 99)) for member_id, _ in entered}
    for member_id, _ in reversed(entered):
        world.sync(member_id, generation, given)
    Member(world, "n").join()
    held = [world.group.members[member_id].assigned for member_id, _ in entered]
    assert held == [parts("orders", 0, 1), frozenset()]


def test_the_policy_has_four_names_in_any_case():
    assert [parse_policy(policy.value.upper()) for policy in MigrationPolicy] == list(
        MigrationPolicy
    )
    with pytest.raises(
        ValueError, match="it is one of bidirectional, upgrade, downgrade, disabled"
    ):
        parse_policy("both")
    assert GroupConfig().group_consumer_migration_policy == MigrationPolicy.BIDIRECTIONAL
