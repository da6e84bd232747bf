"""Stories of Streams groups, told as what members send and get."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvorum.broker.groups.consumer.requests import ConsumerHeartbeat
from kvorum.broker.groups.share.requests import ShareHeartbeat
from kvorum.broker.groups.steps.requests import (
    DeleteGroup,
    DescribeGroup,
    ListGroups,
)
from kvorum.broker.groups.streams.description import (
    DescribedSubtopology,
    Node,
    TopologyDescription,
)
from kvorum.broker.groups.streams.group import StreamsGroup
from kvorum.broker.groups.streams.member import Endpoint
from kvorum.broker.groups.streams.requests import (
    DescribeStreamsGroup,
    EndpointPartitions,
    UpdateTopologyDescription,
)
from kvorum.broker.groups.streams.states import Status, StreamsMemberState
from kvorum.broker.groups.streams.tasks import Tasks
from kvorum.runtime.errors import ErrorCode, Rejected
from tests.test_groups.consumer.world import set_configs
from tests.test_groups.streams.world import (
    AT_ONCE,
    CHANGELOG,
    STATEFUL,
    STATELESS,
    StreamsWorld,
    Thread,
    joined,
    one_part,
    settle,
    tasks,
)
from tests.test_groups.world import GROUP, commit_body, join_body


@pytest.fixture
def world() -> StreamsWorld:
    return StreamsWorld()


def code(answer: object) -> ErrorCode:
    return answer.code if isinstance(answer, Rejected) else ErrorCode.NONE


# --- joining, sharing, leaving -------------------------------------------------------------------


def test_the_first_member_gets_every_task(world):
    thread = Thread(world, "a")
    answer = thread.join()
    assert answer.member_epoch == 2
    assert thread.owned.active == tasks("0", 0, 1, 2, 3)
    assert world.streams.state.value == "Stable"


def test_two_members_share_the_tasks_and_none_is_with_both(world):
    first = Thread(world, "a")
    first.join()
    first.is_slow = True
    second = Thread(world, "b")
    second.join()
    assert second.owned.active == frozenset()
    first.beat()
    assert len(first.told.active) == 2
    second.beat()
    assert second.owned.active == frozenset(), "the first has not given them up"
    first.own()
    first.beat()
    second.beat()
    assert len(second.owned.active) == 2
    assert first.owned.active.isdisjoint(second.owned.active)
    settle([first, second])
    assert world.streams.state.value == "Stable"


def test_the_tasks_of_a_member_that_left_go_to_the_others(world):
    first, second = joined(world, "a", "b")
    first.leave()
    settle([second])
    assert second.owned.active == tasks("0", 0, 1, 2, 3)


def test_a_member_that_is_silent_is_out_after_its_session(world):
    first, second = joined(world, "a", "b")
    world.advance(world.config.group_streams_session_timeout_ms - 1)
    settle([second])
    world.advance(1)
    settle([second])
    assert list(world.streams.members) == ["b"]
    assert second.owned.active == tasks("0", 0, 1, 2, 3)
    assert code(first.beat()) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_gives_nothing_up_is_out_after_its_rebalance_timeout(world):
    first = Thread(world, "a")
    first.join()
    first.is_slow = True
    second = Thread(world, "b")
    second.join()
    first.beat()
    for _ in range(3):
        world.advance(20_000)
        second.beat()
        first.beat()
    settle([second])
    assert second.owned.active == tasks("0", 0, 1, 2, 3)


def test_a_lost_answer_is_told_again(world):
    first, second = joined(world, "a", "b")
    second.leave()
    epoch, owned = first.epoch, first.owned
    first.beat()
    first.epoch, first.owned, first.told = epoch, owned, owned  # the answer was lost
    first.beat()
    assert first.epoch == world.streams.assignment_epoch
    assert first.owned.active == tasks("0", 0, 1, 2, 3)


def test_a_member_in_its_last_epoch_that_owns_more_than_it_was_told_is_fenced(world):
    first, second = joined(world, "a", "b")
    epoch = first.epoch
    second.leave()
    first.beat()
    first.epoch = epoch
    assert code(first.beat(owned=Tasks(active=tasks("0", 0, 1, 2, 3)))) == ErrorCode.NONE
    third = Thread(world, "c")
    third.join()
    first.beat()
    first.beat()
    first.epoch = world.streams.members["a"].previous_member_epoch
    everything = Tasks(active=tasks("0", 0, 1, 2, 3))
    assert code(first.beat(owned=everything)) == ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("epoch", [1, 99])
def test_another_epoch_than_the_members_is_fenced(world, epoch):
    [thread] = joined(world, "a")
    thread.epoch = epoch
    assert code(thread.beat()) == ErrorCode.FENCED_MEMBER_EPOCH
    thread.join()
    assert thread.owned.active == tasks("0", 0, 1, 2, 3)


def test_a_group_with_as_many_members_as_allowed_takes_no_other():
    world = StreamsWorld(config=replace(AT_ONCE, group_streams_max_size=1))
    joined(world, "a")
    assert code(Thread(world, "b").join()) == ErrorCode.GROUP_MAX_SIZE_REACHED


# --- static members ------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_keeps_its_tasks_and_nobody_notices(world):
    first = Thread(world, "a", instance_id="one")
    second = Thread(world, "b")
    first.join()
    second.join()
    settle([first, second])
    epoch, has = second.epoch, first.owned
    first.leave(-2)
    settle([second])
    back = Thread(world, "c", instance_id="one", process_id="process-a")
    back.join()
    settle([back, second])
    assert (back.owned, second.epoch) == (has, epoch)
    assert list(world.streams.members) == ["b", "c"]
    assert code(first.beat()) == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_did_not_leave_cannot_be_replaced(world):
    joined(world, "a", instance_id="one")
    other = Thread(world, "b", instance_id="one")
    assert code(other.join()) == ErrorCode.UNRELEASED_INSTANCE_ID
    unknown = Thread(world, "b", instance_id="two")
    unknown.epoch = 3
    assert code(unknown.beat()) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_was_fenced_may_join_again_under_its_id(world):
    [thread] = joined(world, "a", instance_id="one")
    thread.epoch = 99
    assert code(thread.beat()) == ErrorCode.FENCED_MEMBER_EPOCH
    thread.join()
    settle([thread])
    assert thread.owned.active == tasks("0", 0, 1, 2, 3)


def test_a_static_member_on_another_process_does_not_get_what_a_member_there_has_open():
    world = StreamsWorld(
        counts={"orders": 2, CHANGELOG: 2},
        config=replace(AT_ONCE, group_streams_num_standby_replicas=1),
    )
    moving = Thread(world, "a", STATEFUL, instance_id="one")
    staying = Thread(world, "b", STATEFUL)
    moving.join()
    staying.join()
    settle([moving, staying])
    moving.leave(-2)
    staying.is_slow = True
    back = Thread(world, "c", STATEFUL, instance_id="one", process_id="process-b")
    back.join()
    has = staying.owned.active | staying.owned.standby
    assert has == tasks("0", 0, 1)
    assert back.owned.is_empty


# --- topologies and topics -----------------------------------------------------------------------


def test_a_missing_source_topic_is_a_status_until_it_is_there(world):
    thread = Thread(world, "a", one_part("payments"))
    answer = thread.join()
    assert [status.detail for status in answer.statuses] == ["Source topics payments are missing."]
    assert thread.statuses == [Status.MISSING_SOURCE_TOPICS]
    assert world.streams.state.value == "NotReady"
    world.set_topic("payments", 2)
    thread.beat()
    assert thread.owned.active == tasks("0", 0, 1)
    assert thread.statuses == []


def test_missing_internal_topics_are_told_with_what_they_need(world):
    thread = Thread(world, "a", STATEFUL)
    answer = thread.join()
    assert thread.statuses == [Status.MISSING_INTERNAL_TOPICS]
    assert [(topic.name, topic.num_partitions) for topic in answer.to_create] == [(CHANGELOG, 4)]
    world.set_topic(CHANGELOG, 4)
    assert thread.beat().to_create == ()
    assert thread.owned.active == tasks("0", 0, 1, 2, 3)


def test_a_topic_that_grows_gives_the_group_more_tasks(world):
    [thread] = joined(world, "a")
    world.set_topic("orders", 6)
    settle([thread])
    assert thread.owned.active == tasks("0", 0, 1, 2, 3, 4, 5)


def test_a_topic_that_is_deleted_takes_the_tasks_away(world):
    [thread] = joined(world, "a")
    world.delete_topic("orders")
    settle([thread])
    assert thread.owned.is_empty
    assert thread.statuses == [Status.MISSING_SOURCE_TOPICS]


def test_a_member_with_another_topology_of_the_same_epoch_is_refused(world):
    joined(world, "a")
    other = Thread(world, "b", one_part("payments"))
    answer = other.join()
    assert (code(answer), answer.message) == (
        ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.",
    )  # fmt: skip
    assert list(world.streams.members) == ["a"]


def test_a_member_with_an_older_topology_gets_tasks_and_a_status(world):
    joined(world, "a", topology=one_part("orders", epoch=3))
    old = Thread(world, "b", one_part("orders", epoch=2))
    old.join()
    assert Status.STALE_TOPOLOGY in old.statuses


# --- delays and configs --------------------------------------------------------------------------


def test_an_empty_group_waits_for_more_members_before_it_assigns():
    world = StreamsWorld(config=replace(AT_ONCE, group_streams_initial_rebalance_delay_ms=3_000))
    first, second = Thread(world, "a"), Thread(world, "b")
    first.join()
    assert first.statuses == [Status.ASSIGNMENT_DELAYED]
    assert (first.owned.is_empty, first.epoch) == (True, 1)
    world.advance(2_000)
    second.join()
    world.advance(1_000)
    first.beat()
    second.beat()
    assert (len(first.owned.active), len(second.owned.active)) == (2, 2)


def test_a_target_is_not_made_before_the_last_one_has_its_least_age():
    world = StreamsWorld(config=replace(AT_ONCE, group_streams_assignment_interval_ms=1_000))
    first = Thread(world, "a")
    first.join()
    second = Thread(world, "b")
    second.join()
    assert second.statuses == [Status.ASSIGNMENT_DELAYED]
    world.advance(1_000)
    settle([first, second])
    assert len(second.owned.active) == 2


def test_standbys_are_on_other_processes():
    world = StreamsWorld(
        counts={"orders": 4, CHANGELOG: 4},
        config=replace(AT_ONCE, group_streams_num_standby_replicas=1),
    )
    first, second = joined(world, "a", "b", topology=STATEFUL)
    assert first.owned.standby == second.owned.active
    assert second.owned.standby == first.owned.active


def test_a_standby_of_a_dead_member_becomes_active_with_the_other():
    world = StreamsWorld(
        counts={"orders": 4, CHANGELOG: 4},
        config=replace(AT_ONCE, group_streams_num_standby_replicas=1),
    )
    first, second = joined(world, "a", "b", topology=STATEFUL)
    first.leave()
    settle([second])
    assert second.owned == Tasks(active=tasks("0", 0, 1, 2, 3))


def test_required_client_tags_that_a_member_lacks_are_named():
    config = replace(AT_ONCE, group_streams_rack_aware_assignment_tags="zone, rack")
    world = StreamsWorld(config=config)
    thread = Thread(world, "a", client_tags=(("zone", "1"),))
    answer = thread.join()
    assert thread.statuses == [Status.MISSING_CLIENT_TAGS]
    assert "[rack]" in answer.statuses[0].detail
    old = Thread(world, "b")
    old.join(knows_description=False)
    assert old.statuses == []


# --- the application -----------------------------------------------------------------------------


def test_one_member_can_ask_all_to_shut_down(world):
    first, second = joined(world, "a", "b")
    first.beat(shutdown_application=True)
    second.beat()
    assert second.statuses == [Status.SHUTDOWN_APPLICATION]
    first.leave()
    second.leave()
    third = Thread(world, "c")
    third.join()
    assert third.statuses == []


def test_endpoints_are_told_with_the_partitions_that_they_serve(world):
    first = Thread(world, "a", user_endpoint=Endpoint("one", 80))
    answer = first.join()
    assert answer.endpoints == (
        EndpointPartitions(
            endpoint=Endpoint("one", 80), active=(("orders", (0, 1, 2, 3)),), standby=()
        ),
    )
    assert first.beat(endpoint_epoch=answer.endpoint_epoch).endpoints is None
    second = Thread(world, "b", user_endpoint=Endpoint("two", 81))
    second.join()
    settle([first, second])
    told = {row.endpoint.host: len(row.active[0][1]) for row in first.beat().endpoints}
    assert told == {"one": 2, "two": 2}


# --- offsets -------------------------------------------------------------------------------------


def committed(world: StreamsWorld, thread: Thread, epoch: int, partition: int) -> ErrorCode:
    body = commit_body(("orders", partition, 5), member_id=thread.member_id, generation_id=epoch)
    answer = world.call(body)
    return answer if isinstance(answer, ErrorCode) else answer.errors[0]


def test_a_member_commits_in_an_older_epoch_what_it_has_had_since_then(world):
    first = Thread(world, "a")
    first.join()
    before = first.epoch
    second = Thread(world, "b")
    second.join()
    settle([first, second])
    (kept, *_), (given, *_) = sorted(first.owned.active), sorted(second.owned.active)
    assert committed(world, first, before, kept[1]) == ErrorCode.NONE
    assert committed(world, first, before, given[1]) == ErrorCode.STALE_MEMBER_EPOCH
    assert committed(world, first, first.epoch + 1, kept[1]) == ErrorCode.STALE_MEMBER_EPOCH
    assert committed(world, first, first.epoch, kept[1]) == ErrorCode.NONE
    assert committed(world, second, before, given[1]) == ErrorCode.STALE_MEMBER_EPOCH


def test_a_tool_commits_only_while_the_group_is_empty(world):
    [thread] = joined(world, "a")
    assert world.call(commit_body(("orders", 0, 9))) == ErrorCode.UNKNOWN_MEMBER_ID
    thread.leave()
    assert world.call(commit_body(("orders", 0, 9))).errors == (ErrorCode.NONE,)


@pytest.mark.parametrize("is_member", [True, False])
def test_offsets_expire_once_no_member_reads_their_topic(is_member):
    config = replace(
        AT_ONCE, offsets_retention_minutes=1, offsets_retention_check_interval_ms=10_000
    )
    world = StreamsWorld(config=config)
    [thread] = joined(world, "a")
    committed(world, thread, thread.epoch, 0)
    if not is_member:
        thread.leave()
    for _ in range(4):
        world.advance(20_000)
        if is_member:
            thread.beat()
    assert (GROUP in world.shard.groups) is is_member
    assert (world.shard.offsets.book(GROUP).get("orders", 0) is not None) is is_member


# --- other types of groups -----------------------------------------------------------------------


def test_other_protocols_are_refused_by_a_group_with_members(world):
    joined(world, "a")
    assert world.call(join_body()).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    consumer = world.call(
        ConsumerHeartbeat(
            group_id=GROUP, member_id="c", member_epoch=0, rebalance_timeout_ms=1,
            subscribed_topic_names=("orders",), owned=frozenset(),
        )
    )  # fmt: skip
    share = world.call(
        ShareHeartbeat(
            group_id=GROUP, member_id="s", member_epoch=0, subscribed_topic_names=("orders",)
        )
    )
    for answer in (consumer, share, world.call(DescribeGroup(group_id=GROUP))):
        found = answer if isinstance(answer, ErrorCode) else answer.code
        assert found == ErrorCode.GROUP_ID_NOT_FOUND
    [row] = world.call(ListGroups())
    assert row == (GROUP, "streams", "Stable", "streams")


def test_an_empty_group_becomes_a_classic_one_and_back(world):
    [thread] = joined(world, "a")
    committed(world, thread, thread.epoch, 0)
    thread.leave()
    world.enter()
    assert not isinstance(world.shard.groups[GROUP], StreamsGroup)
    assert world.shard.offsets.book(GROUP).get("orders", 0) is not None


def test_a_group_with_members_cannot_be_deleted_and_an_empty_one_leaves_nothing(world):
    [thread] = joined(world, "a")
    assert world.call(DeleteGroup(group_id=GROUP)) == ErrorCode.NON_EMPTY_GROUP
    thread.leave()
    assert world.call(DeleteGroup(group_id=GROUP)) == ErrorCode.NONE
    world.fail_over()
    assert world.shard.groups == {}
    answer = world.call(DescribeStreamsGroup(group_id=GROUP))
    assert answer.message == f"Streams group {GROUP} not found."


# --- the description of a topology ---------------------------------------------------------------


def described(name: str = "source") -> TopologyDescription:
    node = Node(name, 1, ("orders",), None, (), ())
    return TopologyDescription(
        subtopologies=(DescribedSubtopology("0", (node,)),), global_stores=()
    )


def push(world: StreamsWorld, description: TopologyDescription, epoch: int = 0) -> object:
    return world.call(
        UpdateTopologyDescription(
            group_id=GROUP, member_id="a", topology_epoch=epoch, description=description
        )
    )


def test_one_member_is_asked_for_the_description_and_it_is_kept(world):
    first, second = Thread(world, "a"), Thread(world, "b")
    assert first.join().is_description_required
    assert not second.join().is_description_required
    assert world.call(DescribeStreamsGroup(group_id=GROUP)).description is None
    assert push(world, described()) == ErrorCode.NONE
    world.fail_over()
    assert world.call(DescribeStreamsGroup(group_id=GROUP)).description == described()
    assert not first.beat().is_description_required


def test_a_description_that_was_not_pushed_is_asked_for_again(world):
    [thread] = joined(world, "a")
    world.advance(30_000)
    assert thread.beat().is_description_required


def test_a_description_of_another_epoch_or_with_unknown_nodes_is_refused(world):
    joined(world, "a")
    assert code(push(world, described(), epoch=1)) == ErrorCode.INVALID_REQUEST
    strange = TopologyDescription(
        subtopologies=(DescribedSubtopology("0", (Node("x", 9, (), None, (), ()),)),),
        global_stores=(),
    )
    assert code(push(world, strange)) == ErrorCode.INVALID_REQUEST


def test_a_description_that_does_not_fit_is_not_asked_for_again():
    world = StreamsWorld(config=replace(AT_ONCE, message_max_bytes=1_000))
    [thread] = joined(world, "a")
    refused = push(world, described("x" * 2_000))
    assert code(refused) == ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED
    world.advance(30_000)
    assert not thread.beat().is_description_required


# --- fail-over -----------------------------------------------------------------------------------


def test_a_new_coordinator_goes_on_where_the_old_one_was(world):
    first = Thread(world, "a")
    first.join()
    first.is_slow = True
    second = Thread(world, "b")
    second.join()
    first.beat()
    world.fail_over()
    assert world.streams.members["a"].state == StreamsMemberState.UNREVOKED_TASKS
    first.own()
    settle([first, second])
    assert len(second.owned.active) == 2
    assert first.owned.active.isdisjoint(second.owned.active)


def test_a_topology_too_large_for_a_record_is_refused():
    world = StreamsWorld(config=replace(AT_ONCE, message_max_bytes=300))
    thread = Thread(world, "a", one_part("orders", *(f"topic-{n}" for n in range(100))))
    assert code(thread.join()) == ErrorCode.INVALID_REQUEST
    assert GROUP not in world.shard.groups
    assert STATELESS.epoch == 0


@pytest.mark.parametrize("blank", ["", " ", "\t\n"])
@pytest.mark.parametrize("field", ["member_id", "instance_id", "rack_id"])
def test_a_name_of_blanks_is_an_empty_one(world, field, blank):
    answer = Thread(world, **{"member_id": "a", field: blank}).join()
    assert (answer.code, "can't be empty" in answer.message) == (ErrorCode.INVALID_REQUEST, True)


def test_members_are_told_their_groups_own_lag_and_interval(world):
    set_configs(
        world,
        GROUP,
        streams_acceptable_recovery_lag="1",
        streams_task_offset_interval_ms="15000",
    )
    answer = Thread(world, "a").join()
    assert (answer.acceptable_recovery_lag, answer.task_offset_interval_ms) == (1, 15_000)
