"""Stories of classic groups: joins, leaders, answers, and their timing."""

from __future__ import annotations

from pathlib import Path

from kvorum.broker.groups.classic.states import TRANSITIONS, ClassicGroupState, is_allowed
from kvorum.broker.groups.steps.config import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from kvorum.broker.groups.steps.requests import DescribeGroup, ListGroups
from kvorum.broker.groups.steps.timers import SyncTimer
from kvorum.runtime.errors import ErrorCode
from tests.test_groups.world import GROUP, REBALANCE_MS, SESSION_MS, World, join_body

DELAY_MS = 3_000


def test_two_consumers_join_and_share_a_generation():
    world = World()
    first, first_token = world.enter()
    assert first.startswith("client-")
    second, second_token = world.enter()
    assert first_token not in world.answers
    world.advance(2 * DELAY_MS)
    leader, follower = world.answers[first_token], world.answers[second_token]
    assert (leader.generation_id, follower.generation_id) == (1, 1)
    assert leader.leader == follower.leader == first
    assert [member.member_id for member in leader.members] == [first, second]
    assert follower.members == ()
    assert world.state == "CompletingRebalance"
    waiting = world.sync(second, 1)
    assert waiting not in world.answers
    done = world.sync(first, 1, {first: b"left", second: b"right"})
    assert world.answers[done].assignment == b"left"
    assert world.answers[waiting].assignment == b"right"
    assert world.state == "Stable"
    assert world.heartbeat(second, 1) == ErrorCode.NONE


def test_an_old_client_joins_without_an_id_of_its_own():
    world = World()
    token = world.join(version=3)
    world.advance(DELAY_MS)
    assert world.answers[token].error == ErrorCode.NONE
    assert world.answers[token].member_id.startswith("client-")


def test_the_initial_delay_runs_on_while_members_come_up_to_the_rebalance_timeout():
    world = World()
    _, first = world.enter(rebalance_ms=8_000)
    for _ in range(3):
        world.advance(2_500)
        world.enter(rebalance_ms=8_000)
        assert first not in world.answers
    world.advance(499)
    assert first not in world.answers
    world.advance(1)
    assert len(world.answers[first].members) == 4


def test_nobody_waits_longer_than_the_initial_delay_when_alone():
    world = World()
    _, token = world.enter()
    world.advance(DELAY_MS - 1)
    assert token not in world.answers
    world.advance(1)
    assert token in world.answers


def test_a_third_member_makes_the_others_join_again():
    world = World()
    (first, second), generation_id = world.stable(2)
    third, token = world.enter()
    assert world.state == "PreparingRebalance"
    assert world.heartbeat(first, generation_id) == ErrorCode.REBALANCE_IN_PROGRESS
    world.join(first)
    assert token not in world.answers
    world.join(second)
    assert world.answers[token].generation_id == generation_id + 1
    assert {first, second, third} == set(world.shard.groups[GROUP].members)


def test_a_cooperative_rebalance_takes_two_generations():
    """KIP-429: the first generation takes partitions from their owner, the second gives them to the
    new member."""
    world = World()
    names = ("cooperative-sticky",)
    (owner,), generation_id = world.stable(1, names=names)
    newcomer, token = world.enter(names=names)
    again = world.join(owner, names=names)
    first = world.answers[again]
    assert first.generation_id == generation_id + 1
    assert first.protocol_name == "cooperative-sticky"
    assert first.leader == owner
    waiting = world.sync(newcomer, first.generation_id)
    world.sync(owner, first.generation_id, {owner: b"p0", newcomer: b""})
    assert world.answers[waiting].assignment == b""
    # The owner has given up p1 and asks for a rebalance that hands it over.
    again = world.join(owner, names=names, topics=("orders", "orders"))
    assert world.heartbeat(newcomer, first.generation_id) == ErrorCode.REBALANCE_IN_PROGRESS
    token = world.join(newcomer, names=names)
    second = world.answers[again]
    assert second.generation_id == world.answers[token].generation_id == first.generation_id + 1
    waiting = world.sync(newcomer, second.generation_id)
    world.sync(owner, second.generation_id, {owner: b"p0", newcomer: b"p1"})
    assert world.answers[waiting].assignment == b"p1"


def test_members_that_do_not_join_again_are_out_when_the_rebalance_times_out():
    world = World()
    (first, second), generation_id = world.stable(2, session_ms=REBALANCE_MS * 2)
    world.enter()
    token = world.join(first)
    world.advance(REBALANCE_MS)
    assert second not in world.shard.groups[GROUP].members
    assert world.answers[token].generation_id == generation_id + 1
    assert world.heartbeat(second, generation_id) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_come_back_is_replaced():
    world = World()
    (_, second), _ = world.stable(2, session_ms=REBALANCE_MS * 2)
    third, _ = world.enter()
    token = world.join(second)
    world.advance(REBALANCE_MS)
    assert world.answers[token].leader == second
    assert [m.member_id for m in world.answers[token].members] == [second, third]


def test_a_leader_that_dies_before_it_assigns_is_replaced():
    world = World()
    _, token = world.enter()
    follower, _ = world.enter()
    world.advance(2 * DELAY_MS)
    generation_id = world.answers[token].generation_id
    waiting = world.sync(follower, generation_id)
    world.advance(SESSION_MS)
    assert world.answers[waiting].error == ErrorCode.REBALANCE_IN_PROGRESS
    assert list(world.shard.groups[GROUP].members) == [follower]
    token = world.join(follower)
    assert world.answers[token].leader == follower
    token = world.sync(follower, generation_id + 1, {follower: b"all"})
    assert world.answers[token].assignment == b"all"


def test_a_member_that_never_syncs_is_out_after_the_rebalance_timeout():
    """The member joined and sends heartbeats, but does not ask for its assignment with
    SyncGroup."""
    world = World()
    first, token = world.enter(rebalance_ms=SESSION_MS)
    second, _ = world.enter(rebalance_ms=SESSION_MS)
    world.advance(2 * DELAY_MS)
    generation_id = world.answers[token].generation_id
    world.sync(first, generation_id, {})
    assert world.state == "Stable"
    for _ in range(2):
        world.advance(SESSION_MS // 2)
        world.heartbeat(first, generation_id)
        world.heartbeat(second, generation_id)
    assert list(world.shard.groups[GROUP].members) == [first]
    assert world.state == "PreparingRebalance"


def test_the_time_to_sync_ends_with_its_generation():
    """A member that has not synced is removed. The next generation has a full time-out."""
    world = World()
    first, token = world.enter()
    second, _ = world.enter()
    generation_id = world.until(token).generation_id
    world.sync(first, generation_id, {})
    world.leave((second, None))
    assert SyncTimer(GROUP) not in world.timers


def test_a_silent_member_is_out_after_its_session():
    world = World()
    (first, second), generation_id = world.stable(2)
    world.advance(SESSION_MS - 1)
    assert world.heartbeat(first, generation_id) == ErrorCode.NONE
    world.advance(1)
    assert list(world.shard.groups[GROUP].members) == [first]
    assert world.heartbeat(first, generation_id) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.heartbeat(second, generation_id) == ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_keep_a_member_and_need_one_timer_a_session():
    world = World()
    (member,), generation_id = world.stable(1)
    for _ in range(10):
        world.advance(SESSION_MS - 1)
        assert world.heartbeat(member, generation_id) == ErrorCode.NONE
    assert sum("session" in str(name) for name in world.timers) == 1


def test_a_new_member_that_waits_too_long_is_dropped():
    """Its client may be gone, which nothing else shows while the JoinGroup is parked."""
    world = World()
    (first,), generation_id = world.stable(1, rebalance_ms=NEW_MEMBER_JOIN_TIMEOUT_MS * 2)
    newcomer, token = world.enter()
    while token not in world.answers:
        world.advance(SESSION_MS // 2)
        assert world.heartbeat(first, generation_id) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.now_ms >= NEW_MEMBER_JOIN_TIMEOUT_MS
    assert world.answers[token].error == ErrorCode.UNKNOWN_MEMBER_ID
    assert newcomer not in world.shard.groups[GROUP].members


def test_an_id_that_is_not_used_is_forgotten_after_the_session():
    world = World()
    (member,), generation_id = world.stable(1)
    pending = world.call(join_body()).member_id
    assert world.state == "Stable"
    world.advance(SESSION_MS - 1)
    world.heartbeat(member, generation_id)
    world.advance(1)
    assert world.shard.groups[GROUP].pending_members == {}
    assert world.call(join_body(pending)).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_ids_that_were_handed_out():
    world = World()
    (first, second), _ = world.stable(2)
    pending = world.call(join_body()).member_id
    first_token, _ = world.join(first), world.join(second)
    assert first_token not in world.answers
    assert world.leave((pending, None))[0].error == ErrorCode.NONE
    assert first_token in world.answers


def test_the_last_member_that_leaves_makes_the_group_empty_in_the_log():
    world = World()
    (member,), generation_id = world.stable(1)
    before = len(world.log)
    assert world.leave((member, None))[0].error == ErrorCode.NONE
    assert world.state == "Empty"
    assert len(world.log) == before + 1
    group = world.loaded().groups[GROUP]
    assert (group.state, group.generation_id) == (ClassicGroupState.EMPTY, generation_id + 1)
    assert (group.protocol_type, group.protocol_name, group.leader_id) == ("consumer", None, None)
    assert world.heartbeat(member, generation_id) == ErrorCode.UNKNOWN_MEMBER_ID


def test_each_leaving_member_has_its_own_outcome_and_there_is_one_rebalance():
    world = World()
    (first, second, third), generation_id = world.stable(3)
    rows = world.leave((first, None), ("nobody", None), (second, None), (first, None))
    assert [row.error for row in rows] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    token = world.join(third)
    assert world.answers[token].generation_id == generation_id + 1


def test_leaving_a_group_that_is_not_there_is_an_error_of_each_member():
    rows = World().leave(("a", None), ("", "i"))
    assert [row.error for row in rows] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


def test_a_follower_that_joins_unchanged_gets_the_present_generation():
    world = World()
    (_, second), generation_id = world.stable(2)
    token = world.join(second)
    assert world.answers[token].generation_id == generation_id
    assert world.state == "Stable"
    token = world.sync(second, generation_id)
    assert world.answers[token].assignment == b"1"


def test_a_follower_that_subscribes_to_something_else_starts_a_rebalance():
    world = World()
    (_, second), _ = world.stable(2)
    world.join(second, topics=("orders", "payments"))
    assert world.state == "PreparingRebalance"


def test_a_leader_that_joins_again_starts_a_rebalance():
    world = World()
    (first, _), _ = world.stable(2)
    world.join(first)
    assert world.state == "PreparingRebalance"


def test_a_join_repeated_before_the_assignment_gets_the_same_answer():
    world = World()
    first, token = world.enter()
    world.advance(DELAY_MS)
    assert world.answers[world.join(first)] == world.answers[token]


def test_a_member_that_asks_twice_is_answered_twice():
    """The client gave up waiting for the first request, which must not stay parked for ever."""
    world = World()
    (first, second), generation_id = world.stable(2)
    one = world.join(first)
    two = world.join(first)
    assert world.answers[one].error == ErrorCode.REBALANCE_IN_PROGRESS
    world.join(second)
    assert world.answers[two].generation_id == generation_id + 1
    one = world.sync(second, generation_id + 1)
    two = world.sync(second, generation_id + 1)
    assert world.answers[one].error == ErrorCode.REBALANCE_IN_PROGRESS
    world.sync(first, generation_id + 1, {second: b"x"})
    assert world.answers[two].assignment == b"x"


def test_the_protocol_with_most_votes_among_those_that_all_offer_is_chosen():
    world = World()
    _, token = world.enter(names=("sticky", "range"))
    world.enter(names=("range", "sticky"))
    world.enter(names=("roundrobin", "range", "sticky"))
    world.advance(4 * DELAY_MS)
    assert world.answers[token].protocol_name == "range"


def test_a_member_with_nothing_in_common_is_refused():
    world = World()
    world.stable(1)
    refused = world.call(join_body(names=("sticky",)))
    assert refused.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    refused = world.call(join_body(protocol_type="connect"))
    assert refused.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    refused = World().call(join_body(names=()))
    assert refused.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_session_timeouts_have_bounds():
    world = World(GroupConfig(group_min_session_timeout_ms=100, group_max_session_timeout_ms=200))
    for session_ms in (99, 201):
        refused = world.call(join_body(session_ms=session_ms))
        assert refused.error == ErrorCode.INVALID_SESSION_TIMEOUT
    for session_ms in (100, 200):
        assert world.call(join_body(session_ms=session_ms)).error == ErrorCode.MEMBER_ID_REQUIRED


def test_names_that_the_log_cannot_hold_are_refused():
    world = World()
    refused = world.call(join_body(instance="i" * 40_000))
    assert refused.error == ErrorCode.INVALID_REQUEST
    assert world.shard.groups == {}


def test_a_full_group_takes_nobody_more():
    world = World(GroupConfig(group_max_size=2))
    (first, _), generation_id = world.stable(2)
    assert world.call(join_body(version=3)).error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.heartbeat(first, generation_id) == ErrorCode.NONE


def test_a_group_that_is_larger_than_a_lowered_limit_shrinks_when_it_is_loaded():
    world = World()
    members, generation_id = world.stable(3)
    world.config = GroupConfig(group_max_size=2)
    world.fail_over()
    assert world.state == "PreparingRebalance"
    tokens = [world.join(member_id) for member_id in members]
    assert world.answers[tokens[2]].error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.answers[tokens[0]].generation_id == generation_id + 1
    assert len(world.answers[tokens[0]].members) == 2


def test_requests_of_another_generation_or_of_nobody_are_refused():
    world = World()
    (first, second), generation_id = world.stable(2)
    assert world.heartbeat(first, generation_id - 1) == ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat("nobody", generation_id) == ErrorCode.UNKNOWN_MEMBER_ID
    token = world.sync(first, generation_id + 1)
    assert world.answers[token].error == ErrorCode.ILLEGAL_GENERATION
    token = world.sync("nobody", generation_id)
    assert world.answers[token].error == ErrorCode.UNKNOWN_MEMBER_ID
    token = world.sync(first, generation_id, protocol_name="sticky")
    assert world.answers[token].error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    token = world.sync(first, generation_id, protocol_type="connect")
    assert world.answers[token].error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    token = world.sync(first, generation_id, group_id="none")
    assert world.answers[token].error == ErrorCode.UNKNOWN_MEMBER_ID
    world.join(first)
    token = world.sync(second, generation_id)
    assert world.answers[token].error == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_id_of_a_group_that_is_not_there_is_unknown():
    world = World()
    assert world.call(join_body("old-id")).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.shard.groups == {}


def test_nobody_learns_its_assignment_before_it_is_replicated():
    world = World()
    first, token = world.enter()
    world.advance(DELAY_MS)
    world.is_replicating = False
    token = world.sync(first, 1, {first: b"all"})
    assert world.heartbeat(first, 1) == ErrorCode.NONE
    again = world.sync(first, 1)
    assert token not in world.answers
    assert again not in world.answers
    world.replicate()
    assert world.answers[token].assignment == world.answers[again].assignment == b"all"


def test_a_generation_that_the_log_cannot_hold_is_told_to_all_and_tried_again():
    world = World(GroupConfig(message_max_bytes=1_000))
    (first, second), generation_id = world.stable(2)
    token, _ = world.join(first), world.join(second)
    generation_id = world.answers[token].generation_id
    waiting = world.sync(second, generation_id)
    appended = len(world.log)
    token = world.sync(first, generation_id, {second: b"x" * 1_000})
    for answer in (world.answers[token], world.answers[waiting]):
        assert answer.error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (world.state, len(world.log)) == ("PreparingRebalance", appended)
    token, _ = world.join(first), world.join(second)
    token = world.sync(first, world.answers[token].generation_id, {first: b"all"})
    assert world.answers[token].assignment == b"all"


def test_a_failover_in_a_rebalance_brings_the_last_written_generation_back():
    world = World()
    (first, second), generation_id = world.stable(2)
    world.enter()
    world.join(first)
    token = world.join(second)
    assert world.answers[token].generation_id == generation_id + 1
    world.fail_over()
    assert world.state == "Stable"
    # A member that knows the lost generation gets an error and joins again.
    assert world.heartbeat(first, generation_id + 1) == ErrorCode.ILLEGAL_GENERATION
    token = world.sync(second, generation_id)
    assert world.answers[token].assignment == b"1"


def test_a_failover_before_replication_takes_the_assignment_back_that_nobody_heard_of():
    world = World()
    first, _ = world.enter()
    world.advance(DELAY_MS)
    world.is_replicating = False
    token = world.sync(first, 1, {first: b"all"})
    world.fail_over()
    assert token not in world.answers
    assert world.heartbeat(first, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_are_silent_after_a_failover_are_lost_in_their_session():
    world = World()
    world.stable(2)
    world.fail_over()
    world.advance(SESSION_MS)
    assert world.state == "Empty"


def test_administrators_see_groups_and_members():
    world = World()
    (first, _), _ = world.stable(2)
    found = world.call(DescribeGroup(group_id=GROUP))
    assert (found.state, found.protocol_type, found.protocol_name) == (
        "Stable",
        "consumer",
        "range",
    )
    assert [m.assignment for m in found.members] == [b"0", b"1"]
    assert found.members[0].client_host == "/127.0.0.1"
    assert found.members[0].metadata
    world.join(first)
    found = world.call(DescribeGroup(group_id=GROUP))
    assert (found.state, found.protocol_name) == ("PreparingRebalance", "")
    assert found.members[0].metadata == b""
    missing = world.call(DescribeGroup(group_id="none"))
    assert missing == ErrorCode.GROUP_ID_NOT_FOUND
    listed = world.call(ListGroups())
    assert listed == ((GROUP, "consumer", "PreparingRebalance", "classic"),)
    assert world.call(ListGroups(states=frozenset({"preparingREBALANCE"}))) == listed
    assert world.call(ListGroups(states=frozenset({"Stable"}))) == ()
    assert world.call(ListGroups(types=frozenset({"Classic"}))) == listed
    assert world.call(ListGroups(types=frozenset({"consumer"}))) == ()


def test_the_table_has_every_state_and_no_way_out_of_dead():
    named = {row.source for row in TRANSITIONS} | {row.target for row in TRANSITIONS}
    assert named == set(ClassicGroupState)
    assert not any(is_allowed(ClassicGroupState.DEAD, state) for state in ClassicGroupState)


def test_the_page_on_groups_shows_the_table():
    whole = (Path(__file__).parents[2] / "docs" / "protocol" / "groups.md").read_text()
    page, _, _ = whole.partition("## The consumer protocol")
    for row in TRANSITIONS:
        assert f"| {row.source.value} | {row.target.value} | {row.when} |" in page
        assert f"    {row.source.value} --> {row.target.value}\n" in page
    assert page.count(" --> ") == len(TRANSITIONS) + 2
