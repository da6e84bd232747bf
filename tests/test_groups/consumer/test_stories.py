"""Groups of the consumer protocol: each rule as a short story."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvorum.broker.groups.consumer.requests import ConsumerHeartbeat, DescribeConsumerGroup
from kvorum.broker.groups.consumer.states import ConsumerGroupState, MemberState
from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.broker.groups.steps.requests import ListGroups
from kvorum.runtime.errors import ErrorCode, Rejected
from tests.test_groups.consumer.world import (
    JOIN,
    REBALANCE_MS,
    ConsumerWorld,
    Member,
    joined,
    parts,
    settle,
)
from tests.test_groups.world import (
    GROUP,
)

SESSION_MS = GroupConfig().group_consumer_session_timeout_ms
OFFSETS_OF_GONE_MS = GroupConfig().offsets_retention_ms


@pytest.fixture
def world():
    return ConsumerWorld()


def code(answer):
    assert isinstance(answer, Rejected), answer
    return answer.code


def all_of(members):
    return sorted(row for member in members for row in member.owned)


def beating(member_id, epoch, **more):
    return ConsumerHeartbeat(group_id=GROUP, member_id=member_id, member_epoch=epoch, **more)


# --- joining and sharing -------------------------------------------------------------------------


def test_the_first_member_gets_all_with_its_first_heartbeat(world):
    member = Member(world, "a")
    answer = member.join()
    assert (answer.member_epoch, answer.assignment) == (1, parts("orders", 0, 1, 2, 3))
    assert answer.heartbeat_interval_ms == 5_000
    assert world.group.state == ConsumerGroupState.STABLE


def test_a_heartbeat_without_news_has_no_assignment_and_writes_nothing(world):
    (member,) = joined(world, "a")
    before = len(world.log)
    assert member.beat(owned=None).assignment is None
    assert len(world.log) == before


def test_a_full_heartbeat_is_told_everything_again(world):
    (member,) = joined(world, "a")
    answer = member.beat(
        owned=member.owned, rebalance_timeout_ms=1, subscribed_topic_names=("orders",)
    )
    assert answer.assignment == parts("orders", 0, 1, 2, 3)


def test_a_second_member_waits_until_the_first_has_given_up(world):
    (first,) = joined(world, "a")
    second = Member(world, "b")
    assert second.join().assignment == frozenset()
    assert world.group.state == ConsumerGroupState.RECONCILING
    first.is_slow = True
    told = first.beat()
    # The member stays in its old epoch until it confirms.
    assert (told.member_epoch, told.assignment) == (1, parts("orders", 0, 1))
    assert second.beat().assignment is None
    first.own()
    assert first.beat().member_epoch == 2
    assert second.beat().assignment == parts("orders", 2, 3)
    settle([first, second])
    assert world.group.state == ConsumerGroupState.STABLE
    assert all_of([first, second]) == sorted(parts("orders", 0, 1, 2, 3))


def test_what_a_member_still_reads_is_not_given_away(world):
    (first,) = joined(world, "a")
    second = Member(world, "b")
    second.join()
    first.is_slow = True
    first.beat()
    first.beat(owned=parts("orders", 0, 1, 2))
    assert world.group.members["a"].state == MemberState.UNREVOKED_PARTITIONS
    assert second.beat(owned=None).assignment is None


def test_a_heartbeat_that_does_not_say_what_it_owns_confirms_nothing(world):
    (first,) = joined(world, "a")
    second = Member(world, "b")
    second.join()
    first.is_slow = True
    first.beat()
    first.beat(owned=None)
    assert second.beat(owned=None).assignment is None


def test_a_member_that_does_not_give_up_in_time_is_out(world):
    (first,) = joined(world, "a")
    second = Member(world, "b")
    second.join()
    first.is_slow = True
    for _ in range(REBALANCE_MS // 20_000):
        first.beat(owned=first.owned)
        second.beat()
        world.advance(20_000)
    assert list(world.group.members) == ["b"]
    assert code(first.beat()) == ErrorCode.UNKNOWN_MEMBER_ID
    settle([second])
    assert second.owned == parts("orders", 0, 1, 2, 3)


def test_the_rebalance_timer_ends_when_all_is_given_up(world):
    members = joined(world, "a", "b")
    for _ in range(5):
        world.advance(20_000)
        settle(members, 1)
    assert sorted(world.group.members) == ["a", "b"]


def test_leaving_frees_at_once(world):
    first, second = joined(world, "a", "b")
    assert first.leave().member_epoch == -1
    assert second.beat().assignment == parts("orders", 0, 1, 2, 3)


def test_a_silent_member_is_out_after_its_session(world):
    first, second = joined(world, "a", "b")
    world.advance(SESSION_MS - 1)
    second.beat()
    assert "a" in world.group.members
    world.advance(1)
    assert list(world.group.members) == ["b"]
    assert code(first.beat()) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_member_leaves_an_empty_group_behind(world):
    (member,) = joined(world, "a")
    member.leave()
    assert world.group.state == ConsumerGroupState.EMPTY
    assert world.call(ListGroups(states=frozenset({"empty"})))[0].group_type == "consumer"


# --- epochs --------------------------------------------------------------------------------------


def test_an_epoch_that_is_not_the_members_is_fenced(world):
    member, _ = joined(world, "a", "b")
    for epoch in (member.epoch + 1, 99):
        assert code(world.beat("a", epoch)) == ErrorCode.FENCED_MEMBER_EPOCH
    # The previous epoch is fenced, too, if the heartbeat does not name the owned partitions.
    assert code(world.beat("a", member.epoch - 1)) == ErrorCode.FENCED_MEMBER_EPOCH


def test_only_one_epoch_before_is_heard(world):
    member, other = joined(world, "a", "b")
    other.leave()
    settle([member])
    assert member.epoch == 3
    for epoch in (1, 0):
        answer = world.beat("a", epoch, subscribed_topic_names=("orders",), **JOIN)
        assert code(answer) == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_lost_answer_is_given_again(world):
    first = world.beat("a", 0, subscribed_topic_names=("orders",), **JOIN)
    again = world.beat("a", 0, subscribed_topic_names=("orders",), **JOIN)
    assert (again.member_epoch, again.assignment) == (first.member_epoch, first.assignment)
    assert world.group.group_epoch == 1


def test_the_epoch_before_is_fenced_if_it_owns_more(world):
    first, second = joined(world, "a", "b")
    epoch = first.epoch
    second.leave()
    first.is_slow = True
    assert first.beat().member_epoch == epoch + 1
    first.epoch = epoch
    assert code(first.beat(owned=parts("other", 0))) == ErrorCode.FENCED_MEMBER_EPOCH
    first.epoch = epoch
    assert first.beat(owned=parts("orders", 0)).member_epoch == epoch + 1


def test_a_heartbeat_of_the_epoch_before_confirms_nothing(world):
    """1. "a" joins; its request is also on its way a second time. 2. It reads all four. 3. "b"
    joins. 4. The first request arrives at last and names no partitions."""
    first = Member(world, "a")
    first.join()
    second = Member(world, "b")
    second.join()
    world.beat("a", 0, subscribed_topic_names=("orders",), **JOIN)
    world.beat("a", 0, subscribed_topic_names=("orders",), **JOIN)
    assert second.beat().assignment is None
    assert first.owned == parts("orders", 0, 1, 2, 3)


def test_a_change_of_subscription_is_a_new_epoch(world):
    world.set_topic("payments", 2)
    (member,) = joined(world, "a")
    answer = member.beat(subscribed_topic_names=("payments",))
    assert answer.member_epoch == 1
    settle([member])
    assert (world.group.group_epoch, member.owned) == (2, parts("payments", 0, 1))


@pytest.mark.parametrize("count", [6, 1])
def test_a_topic_that_grows_or_begins_is_a_new_epoch(world, count):
    (member,) = joined(world, "a", topics=("orders", "later"))
    name = "orders" if count > 4 else "later"
    world.set_topic(name, count)
    assert member.beat().assignment >= parts(name, *range(count))
    assert world.group.group_epoch == 2


def test_a_deleted_topic_goes_from_the_assignment(world):
    world.set_topic("payments", 2)
    (member,) = joined(world, "a", topics=("orders", "payments"))
    world.delete_topic("payments")
    settle([member])
    assert member.owned == parts("orders", 0, 1, 2, 3)


def test_topics_of_nobody_change_nothing(world):
    (member,) = joined(world, "a")
    world.set_topic("other", 3)
    member.beat()
    assert world.group.group_epoch == 1


# --- expressions and assignors -------------------------------------------------------------------


def test_an_expression_subscribes_to_what_there_is_and_will_be(world):
    (member,) = joined(world, "a", topics=None, subscribed_topic_regex="ord.*")
    assert member.owned == parts("orders", 0, 1, 2, 3)
    world.set_topic("ordeals", 1)
    settle([member])
    assert member.owned == parts("orders", 0, 1, 2, 3) | parts("ordeals", 0)
    assert member.beat(subscribed_topic_regex="").member_epoch
    settle([member])
    assert member.owned == frozenset()
    assert world.group.expressions == {}


def test_an_expression_matches_only_topics_that_its_client_may_know_of(world):
    world.set_topic("ordeals", 1)
    world.may_describe = lambda name: name != "ordeals"
    (member,) = joined(world, "a", topics=None, subscribed_topic_regex="ord.*")
    assert member.owned == parts("orders", 0, 1, 2, 3)
    world.may_describe = None
    world.set_topic("ordinary", 1)
    settle([member])
    assert member.owned == (
        parts("orders", 0, 1, 2, 3) | parts("ordeals", 0) | parts("ordinary", 0)
    )


def test_who_joins_with_no_expression_and_no_names_subscribes_to_nothing(world):
    # Java sends "" when an application drops its expression.
    (member,) = joined(world, "a", topics=None, subscribed_topic_regex="")
    assert member.owned == frozenset()
    assert world.group.members["a"].subscribed_topic_regex is None


def test_internal_topics_are_not_meant_by_expressions(world):
    world.set_topic("__consumer_offsets", 3)
    (member,) = joined(world, "a", topics=None, subscribed_topic_regex=".*")
    assert member.owned == parts("orders", 0, 1, 2, 3)


def test_a_bad_expression_is_refused_and_changes_nothing(world):
    member = Member(world, "a", topics=None, subscribed_topic_regex="(")
    assert code(member.join()) == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert GROUP not in world.shard.groups
    assert world.log == []


def test_an_expression_of_kafkas_that_we_do_not_take_keeps_its_topics(world):
    joined(world, "a", topics=None, subscribed_topic_regex="ord.*")
    foreign = "(?=s)"
    log = [
        item._replace(
            key=item.key.replace(b"\x00\x05ord.*", b"\x00\x05" + foreign.encode()),
            value=item.value and item.value.replace(b"ord.*", foreign.encode()),
        )
        for item in world.log
    ]
    world.log = log
    world.fail_over()
    assert world.group.members["a"].subscribed_topic_regex == foreign
    world.set_topic("others", 3)
    answer = world.beat("a", 1, owned=parts("orders", 0, 1, 2, 3))
    assert answer.member_epoch == 1
    assert world.group.expressions[foreign].topics == ("orders",)


def test_most_members_choose_the_assignor(world):
    world.set_topic("payments", 4)
    joined(world, "a", "b", topics=("orders", "payments"), server_assignor="range")
    described = world.call(DescribeConsumerGroup(group_id=GROUP))
    assert described.assignor_name == "range"
    targets = [row.target for row in described.members]
    assert targets[0] == parts("orders", 0, 1) | parts("payments", 0, 1)


def test_an_assignor_that_is_configured_no_more_is_replaced_by_the_default(world):
    joined(world, "a", "b", server_assignor="range")
    world.config = replace(world.config, group_consumer_assignors=("uniform",))
    world.fail_over()
    described = world.call(DescribeConsumerGroup(group_id=GROUP))
    assert described.assignor_name == "uniform"


def test_an_unknown_assignor_is_refused(world):
    member = Member(world, "a", server_assignor="sticky")
    answer = member.join()
    assert code(answer) == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "uniform, range" in answer.message


@pytest.mark.parametrize(
    "wrong",
    [
        {"member_id": ""},
        {"instance_id": ""},
        {"rack_id": ""},
        {"member_epoch": -3},
        {"member_epoch": -2},
        {"rebalance_timeout_ms": -1},
        {"owned": None},
        {"owned": parts("orders", 1)},
        {"subscribed_topic_names": None},
    ],
)
def test_bad_requests_are_refused_in_words(world, wrong):
    right = {"member_id": "a", "subscribed_topic_names": ("orders",), "member_epoch": 0, **JOIN}
    values = {**right, **wrong}
    answer = world.beat(values.pop("member_id"), values.pop("member_epoch"), **values)
    assert code(answer) == ErrorCode.INVALID_REQUEST
    assert answer.message
    assert GROUP not in world.shard.groups


def test_a_full_group_takes_nobody():
    world = ConsumerWorld(GroupConfig(group_consumer_max_size=2))
    members = joined(world, "a", "b")
    assert code(Member(world, "c").join()) == ErrorCode.GROUP_MAX_SIZE_REACHED
    settle(members)


def test_a_static_member_comes_back_to_a_full_group():
    world = ConsumerWorld(GroupConfig(group_consumer_max_size=1))
    (member,) = joined(world, "a", instance_id="one")
    member.leave(-2)
    assert Member(world, "b", instance_id="one").join().assignment == member.told


# --- static members ------------------------------------------------------------------------------


def test_a_static_member_comes_back_to_what_it_had(world):
    first, second = joined(world, "a", topics=("orders",), instance_id="one") + joined(world, "b")
    settle([first, second])
    had, epoch = first.owned, world.group.group_epoch
    assert first.leave(-2).member_epoch == -2
    settle([second])
    back = Member(world, "a2", instance_id="one")
    assert back.join().assignment == had
    assert world.group.group_epoch == epoch
    assert sorted(world.group.members) == ["a2", "b"]
    assert code(first.beat(owned=None)) == ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_id_that_is_held_is_not_given_away(world):
    joined(world, "a", instance_id="one")
    assert code(Member(world, "b", instance_id="one").join()) == ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_static_member_that_stays_away_is_out(world):
    (member,) = joined(world, "a", instance_id="one")
    member.leave(-2)
    world.advance(SESSION_MS)
    assert world.group.state == ConsumerGroupState.EMPTY
    assert code(member.leave(-2)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_may_leave_for_good(world):
    (member,) = joined(world, "a", instance_id="one")
    assert code(Member(world, "b", instance_id="one").leave()) == ErrorCode.FENCED_INSTANCE_ID
    assert member.leave().member_epoch == -1
    assert world.group.members == {}


def test_one_that_is_away_cannot_go_on_as_if_it_were_not(world):
    (member,) = joined(world, "a", instance_id="one")
    member.leave(-2)
    assert code(member.beat()) == ErrorCode.FENCED_MEMBER_EPOCH


# --- fail-over -----------------------------------------------------------------------------------


def test_after_a_fail_over_everything_is_as_it_was(world):
    members = joined(world, "a", "b")
    before = world.group.summary()
    world.fail_over()
    assert world.group.summary() == before
    settle(members, 2)
    assert world.group.summary() == before


def test_what_a_member_says_later_takes_nothing_from_what_it_has(world):
    (member,) = joined(world, "a")
    member.beat(rack_id="r2")
    world.fail_over()
    assert world.group.members["a"].rack_id == "r2"
    assert world.group.members["a"].assigned == parts("orders", 0, 1, 2, 3)


def test_sessions_and_rebalances_run_again_after_a_fail_over(world):
    (first,) = joined(world, "a")
    second = Member(world, "b")
    second.join()
    first.is_slow = True
    first.beat()
    world.fail_over()
    world.advance(SESSION_MS - 1)
    assert sorted(world.group.members) == ["a", "b"]
    first.beat(owned=first.owned)
    second.beat()
    world.advance(REBALANCE_MS - SESSION_MS + 1)
    assert sorted(world.group.members) == ["b"]


def test_nobody_is_told_what_is_not_replicated(world):
    _, second = joined(world, "a", "b")
    world.is_replicating = False
    token = world.ask(beating("a", -1))
    assert token not in world.answers
    told = world.ask(beating("b", second.epoch))
    assert told not in world.answers
    again = world.ask(beating("b", second.epoch, owned=second.owned))
    assert again not in world.answers
    world.fail_over()
    assert sorted(world.group.members) == ["a", "b"]
