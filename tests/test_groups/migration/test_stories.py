"""Groups on their way between the protocols: each rule as a short story."""

from __future__ import annotations

import pytest

from broker.groups.config import GroupConfig
from broker.groups.consumer.requests import ConsumerHeartbeated, DescribeConsumerGroup
from broker.groups.consumer.states import GroupState, MemberState
from broker.groups.migration.policy import MigrationPolicy, parse_policy
from broker.groups.requests import DescribeGroup, ListGroups, ProtocolMetadata
from runtime.errors import ErrorCode, Rejected
from tests.test_groups.consumer.world import JOIN, Member, joined, parts, settle
from tests.test_groups.migration.world import (
    COOPERATIVE,
    EAGER,
    Classic,
    MixedWorld,
    assignment,
    classics,
    orders,
    settle_all,
    settle_classic,
    subscription,
)
from tests.test_groups.world import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    commit_body,
    committed,
    fetch_body,
    join_body,
    protocols,
    transaction_commit_body,
)

ALL = parts("orders", 0, 1, 2, 3)


@pytest.fixture
def world():
    return MixedWorld()


def world_with(policy, **more):
    return MixedWorld(GroupConfig(group_consumer_migration_policy=policy, **more))


def code(answer):
    assert isinstance(answer, Rejected), answer
    return answer.code


def owned(*members):
    return sorted(
        row for m in members for row in (m.owned_ids if isinstance(m, Classic) else m.owned)
    )


# --- upgrade -------------------------------------------------------------------------------------


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
    assert world.group.state == GroupState.STABLE
    assert owned(*old, new) == sorted(ALL)
    assert [error for m in old for error in m.errors if error in (22, 25)] == []


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
    new = Member(world, "n")
    new.join()
    world.fail_over()
    assert world.kind == "consumer"
    assert world.group.members[old[0].member_id].classic.session_timeout_ms == SESSION_MS
    settle_all(old, [new])
    assert world.group.state == GroupState.STABLE
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
    """Clients assign as they like; the group must not end for it."""
    entered = [world.enter() for _ in range(2)]
    generation = world.until(entered[0][1]).generation_id
    given = {member_id: assignment(orders(0, 1, 99)) for member_id, _ in entered}
    for member_id, _ in reversed(entered):
        world.sync(member_id, generation, given)
    Member(world, "n").join()
    held = [world.group.members[member_id].assigned for member_id, _ in entered]
    assert held == [parts("orders", 0, 1), frozenset()]


# --- classic members in the mixed group ----------------------------------------------------------


@pytest.fixture
def mixed(world):
    """One classic and one new member, two partitions each."""
    (old,) = classics(world, 1)
    new = Member(world, "n")
    new.join()
    settle_all([old], [new])
    old.errors.clear()
    assert (len(old.owned), len(new.owned)) == (2, 2)
    return world, old, new


def test_a_cooperative_member_keeps_its_epoch_until_it_has_given_up(world):
    (old,) = classics(world, 1)
    new = Member(world, "n")
    new.join()
    generation = old.generation
    assert old.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    old.act()
    old.act()
    # Told the smaller assignment in the old generation; what it gives up is not free yet.
    assert old.generation == generation
    assert world.group.members[old.member_id].state == MemberState.UNREVOKED_PARTITIONS
    assert new.beat().assignment is None
    old.act()
    assert old.owned_ids | parts("orders", 2, 3) == ALL
    # It has given up, and joins again: only now.
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
    assert old.member_id not in world.group.members if world.kind == "consumer" else True
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
    rows = world.leave((old.member_id, None), (old.member_id, None), ("n", None), ("x", None))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [row.error for row in rows] == [ErrorCode.NONE, unknown, unknown, unknown]
    settle([new])
    assert new.owned == ALL


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


# --- downgrade -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["leaves", "is silent"])
def test_the_last_consumer_goes_and_the_group_is_classic_again(mixed, how):
    world, old, new = mixed
    generation = old.generation
    if how == "leaves":
        new.leave()
    else:
        for _ in range(50):
            old.beat()
            world.advance(1_000)
    assert world.kind == "classic"
    # Its number is known to the members: they hear of a rebalance, not of a lost generation.
    assert old.beat() == ErrorCode.REBALANCE_IN_PROGRESS if how == "leaves" else True
    settle_classic([old])
    assert old.owned_ids == ALL
    assert old.generation > generation
    assert ErrorCode.ILLEGAL_GENERATION not in old.errors
    assert world.loaded().groups[GROUP].generation_id == old.generation


def test_the_downgrade_is_one_batch(mixed):
    world, _, new = mixed
    before = len(world.appends)
    new.leave()
    (batch,) = world.appends[before:]
    assert batch.records[-1].value is not None
    assert all(record.value is None for record in batch.records[-4:-1])


def test_a_fail_over_right_after_a_downgrade_rebalances(mixed):
    world, old, new = mixed
    new.leave()
    world.fail_over()
    assert world.state == "PreparingRebalance"
    settle_classic([old])
    assert old.owned_ids == ALL


def test_a_classic_client_takes_the_last_consumers_static_place(world):
    (old,) = classics(world, 1)
    static = Member(world, "s", instance_id="one")
    static.join()
    settle_all([old], [static])
    static.leave(-2)
    assert world.kind == "consumer"
    back = Classic(world, "b", instance="one")
    back.act()
    assert world.kind == "classic"
    settle_classic([old, back])
    assert owned(old, back) == sorted(ALL)
    assert (len(old.owned), len(back.owned)) == (2, 2)


@pytest.mark.parametrize("policy", [MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL])
def test_the_policy_allows_the_downgrade_or_not(policy):
    world = world_with(policy)
    (old,) = classics(world, 1)
    new = Member(world, "n")
    new.join()
    settle_all([old], [new])
    new.leave()
    assert world.kind == ("consumer" if policy == MigrationPolicy.UPGRADE else "classic")
    settle_classic([old])
    assert old.owned_ids == ALL


def test_a_group_of_classic_members_only_hears_of_a_topic_that_grows():
    world = world_with(MigrationPolicy.UPGRADE)
    (old,) = classics(world, 1)
    new = Member(world, "n")
    new.join()
    settle_all([old], [new])
    new.leave()
    settle_all([old], [])
    world.set_topic("orders", 6)
    assert old.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    settle_all([old], [])
    assert len(old.owned) == 6


def test_more_classic_members_than_a_classic_group_may_have_stay():
    world = world_with(MigrationPolicy.BIDIRECTIONAL, group_max_size=1)
    (new,) = joined(world, "n")
    old = [Classic(world, f"c{number}").enter() for number in range(2)]
    new.leave()
    assert world.kind == "consumer"
    settle_all(old, [])
    assert owned(*old) == sorted(ALL)


def test_a_group_goes_there_and_back_and_there_again(world):
    old = classics(world, 2)
    numbers = []
    for round_number in range(3):
        new = Member(world, f"n{round_number}")
        new.join()
        settle_all(old, [new])
        assert owned(*old, new) == sorted(ALL)
        numbers.append(world.group.group_epoch)
        new.leave()
        settle_classic(old)
        numbers.append(world.classic.generation_id)
        assert owned(*old) == sorted(ALL)
    assert numbers == sorted(numbers)
    assert not [error for m in old for error in m.errors if error in (22, 25)]


# --- the setting ---------------------------------------------------------------------------------


def test_the_policy_has_four_names_in_any_case():
    assert [parse_policy(policy.value.upper()) for policy in MigrationPolicy] == list(
        MigrationPolicy
    )
    with pytest.raises(
        ValueError, match="it is one of bidirectional, upgrade, downgrade, disabled"
    ):
        parse_policy("both")
    assert GroupConfig().group_consumer_migration_policy == MigrationPolicy.BIDIRECTIONAL


def test_protocols_of_version_nought_are_eager(world):
    """A subscription that cannot name what is owned owns nothing."""
    offers = protocols(EAGER)
    member_id, token = world.enter(offers=offers)
    generation = world.until(token).generation_id
    world.sync(member_id, generation, {member_id: assignment(orders(0, 1, 2, 3))})
    new = Member(world, "n")
    new.join()
    world.call(join_body(member_id, offers=offers))
    assert len(new.beat().assignment) == 2
