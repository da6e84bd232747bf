"""Static members (KIP-345): known by their instance id, they come and go without a rebalance."""

from __future__ import annotations

from kvorum.runtime.errors import ErrorCode
from tests.test_groups.world import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    World,
    join_body,
    protocols,
    subscription,
)


def stable(world: World, *instances: str, **more):
    tokens = [world.join(instance=instance, **more) for instance in instances]
    answers = [world.until(token) for token in tokens]
    members = [answer.member_id for answer in answers]
    generation_id = answers[0].generation_id
    given = {member_id: instances[i].encode() for i, member_id in enumerate(members)}
    for i in range(len(members) - 1, -1, -1):
        world.sync(members[i], generation_id, given if i == 0 else None, instance=instances[i])
    assert world.state == "Stable"
    return members, generation_id


def test_a_static_member_needs_no_second_round_to_join():
    world = World()
    (first, _), _ = stable(world, "a", "b")
    assert first.startswith("a-")


def test_a_restarted_member_gets_its_assignment_back_without_a_rebalance():
    world = World()
    (_, old), generation_id = stable(world, "a", "b")
    appended = len(world.log)
    answer = world.call(join_body(instance="b"))
    assert answer.generation_id == generation_id
    assert answer.member_id not in (old, "")
    assert world.state == "Stable"
    assert len(world.log) == appended + 1
    token = world.sync(answer.member_id, generation_id, instance="b")
    assert world.answers[token].assignment == b"b"
    # The new id is in the log: another coordinator fences the old one too.
    world.fail_over()
    assert world.heartbeat(old, generation_id, "b") == ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat(answer.member_id, generation_id, "b") == ErrorCode.NONE


def test_its_new_id_is_told_once_it_is_replicated():
    world = World()
    stable(world, "a", "b")
    world.is_replicating = False
    token = world.join(instance="b")
    assert token not in world.answers
    world.replicate()
    assert world.answers[token].error == ErrorCode.NONE


def test_the_old_process_is_fenced():
    world = World()
    (_, old), generation_id = stable(world, "a", "b")
    world.call(join_body(instance="b"))
    assert world.heartbeat(old, generation_id, "b") == ErrorCode.FENCED_INSTANCE_ID
    token = world.sync(old, generation_id, instance="b")
    assert world.answers[token].error == ErrorCode.FENCED_INSTANCE_ID
    assert world.call(join_body(old, instance="b")).error == ErrorCode.FENCED_INSTANCE_ID
    assert world.leave((old, "b"))[0].error == ErrorCode.FENCED_INSTANCE_ID
    # Without its instance id it is just unknown.
    assert world.heartbeat(old, generation_id) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_restarted_leader_leads_on_and_need_not_assign():
    world = World()
    (old, _), generation_id = stable(world, "a", "b")
    answer = world.call(join_body(instance="a"))
    assert answer.leader == answer.member_id
    assert answer.skip_assignment
    assert [member.group_instance_id for member in answer.members] == ["a", "b"]
    # A client that does not know of this is told the old leader, so that it does not assign.
    answer = world.call(join_body(instance="a", version=8))
    assert answer.leader not in (old, answer.member_id)
    assert (answer.members, answer.skip_assignment) == ((), False)
    assert answer.generation_id == generation_id


def test_a_member_that_comes_back_with_other_topics_starts_a_rebalance():
    world = World()
    stable(world, "a", "b")
    token = world.join(instance="b", topics=("orders", "payments"))
    assert token not in world.answers
    assert world.state == "PreparingRebalance"


def test_partitions_it_no_longer_owns_are_no_other_subscription():
    """A cooperative member lists its owned partitions in its subscription; after a restart it has
    none."""
    world = World()
    owned = subscription("orders")[:-4] + bytes.fromhex("ffffffff 00000001 0001 78 00000000")
    offers = (protocols("cooperative-sticky")[0]._replace(metadata=owned),)
    stable(world, "a", "b", offers=offers)
    world.call(join_body(instance="b", names=("cooperative-sticky",)))
    assert world.state == "Stable"


def test_a_member_that_changes_what_would_be_chosen_starts_a_rebalance():
    world = World()
    stable(world, "a", "b", names=("range", "sticky"))
    world.join(instance="b", names=("sticky",))
    assert world.state == "PreparingRebalance"


def test_a_member_replaced_before_the_assignment_starts_it_anew():
    world = World()
    tokens = [world.join(instance=name) for name in ("a", "b")]
    leader, old = (world.until(token).member_id for token in tokens)
    assert world.state == "CompletingRebalance"
    waiting = world.sync(old, 1, instance="b")
    token = world.join(instance="b")
    assert world.answers[waiting].error == ErrorCode.FENCED_INSTANCE_ID
    assert world.state == "PreparingRebalance"
    again = world.join(leader, instance="a")
    members = [member.member_id for member in world.answers[again].members]
    assert members == [leader, world.answers[token].member_id]


def test_a_member_replaced_while_it_waits_to_join_is_fenced():
    world = World()
    one = world.join(instance="a")
    two = world.join(instance="a")
    assert world.answers[one].error == ErrorCode.FENCED_INSTANCE_ID
    assert world.until(two).error == ErrorCode.NONE
    assert len(world.shard.groups[GROUP].members) == 1


def test_a_static_member_that_is_away_keeps_its_place_until_its_session_ends():
    world = World()
    (_, away), generation_id = stable(world, "a", "b", session_ms=4 * REBALANCE_MS)
    _, token = world.enter()
    first = next(iter(world.shard.groups[GROUP].members))
    world.join(first, instance="a", session_ms=4 * REBALANCE_MS)
    world.advance(REBALANCE_MS)
    assert world.answers[token].generation_id == generation_id + 1
    assert away in world.shard.groups[GROUP].members


def test_a_rebalance_whose_only_members_are_away_waits_for_their_sessions():
    world = World()
    stable(world, "a", "b", session_ms=3 * REBALANCE_MS)
    dynamic, token = world.enter()
    world.leave((dynamic, None))
    assert token in world.answers
    world.advance(REBALANCE_MS)
    assert world.state == "PreparingRebalance"
    world.advance(3 * REBALANCE_MS)
    assert world.state == "Empty"


def test_administrators_remove_a_static_member_by_its_instance_id():
    world = World()
    stable(world, "a", "b")
    rows = world.leave(("", "b"), ("", "c"), ("", None))
    assert [row.error for row in rows] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert list(world.shard.groups[GROUP].static_members) == ["a"]


def test_a_static_member_is_lost_after_its_session():
    world = World()
    (first, _), generation_id = stable(world, "a", "b")
    world.advance(SESSION_MS - 1)
    world.heartbeat(first, generation_id, "a")
    world.advance(1)
    assert list(world.shard.groups[GROUP].static_members) == ["a"]


def test_a_static_member_may_not_use_an_id_that_was_handed_out():
    world = World()
    pending = world.call(join_body()).member_id
    refused = world.call(join_body(pending, instance="a"))
    assert refused.error == ErrorCode.UNKNOWN_MEMBER_ID
