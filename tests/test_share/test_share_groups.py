"""Facts about share groups whose share coordinators are slow, or refuse."""

from __future__ import annotations

from typing import Any

import pytest

from kvorum.broker.coordinator.model import FactLearned
from kvorum.broker.groups.shard import GroupShard
from kvorum.broker.groups.share.requests import (
    AlterShareOffsets,
    DeleteShareOffsets,
    DeleteStates,
    InitializeStates,
    OffsetToAlter,
    ShareHeartbeat,
    ShareHeartbeated,
    StatesAnswered,
    StatesChanged,
)
from kvorum.broker.groups.steps.requests import DeleteGroup
from kvorum.broker.metrics.share_counters import ShareMetrics
from kvorum.runtime.errors import ErrorCode
from tests.test_groups.consumer.world import ConsumerWorld, parts, topic_id
from tests.test_groups.world import GROUP

DOWN = ErrorCode.COORDINATOR_NOT_AVAILABLE
FIRST, SECOND = sorted(parts("orders", 0, 1))


class ShareWorld(ConsumerWorld):
    """One share group on a topic of two partitions."""

    def __init__(self) -> None:
        super().__init__(counts={"orders": 2})

    def beat(self, member_id: str, epoch: int, **more: Any) -> Any:
        return self.call(
            ShareHeartbeat(group_id=GROUP, member_id=member_id, member_epoch=epoch, **more)
        )

    def join(self, member_id: str = "a", **more: Any) -> Any:
        return self.beat(member_id, 0, subscribed_topic_names=("orders",))

    def states_answered(self, *errors: ErrorCode) -> None:
        """Answer the oldest question. errors: of its share-partitions; NONE where none is named."""
        question = self.questions.pop(0)
        rows = (
            [(row.topic_id, row.partition) for row in question.rows]
            if isinstance(question, InitializeStates)
            else list(question.partitions)
        )
        found = dict.fromkeys(rows, ErrorCode.NONE) | dict(zip(rows, errors, strict=False))
        self.give(FactLearned(fact=StatesAnswered(question=question, errors=found)))

    def emptied(self) -> None:
        """The group has states and no members."""
        self.join()
        self.states_answered()
        self.beat("a", -1)

    def delete_offsets(self) -> int:
        return self.ask(DeleteShareOffsets(group_id=GROUP, topic_ids=(topic_id("orders"),)))

    def assigned_anew(self) -> Any:
        """The members' partitions, with a new member, once the share coordinators answered."""
        self.join("b")
        while self.questions:
            self.states_answered()
        self.now_ms += self.config.group_share_assignment_interval_ms
        assert isinstance(self.join("b"), ShareHeartbeated)
        return frozenset().union(*self.shard.share.groups[GROUP].targets.values())

    @property
    def states(self) -> Any:
        return self.shard.share.groups[GROUP].states


def test_a_rebalance_is_a_heartbeat_that_begins_an_epoch_of_its_group():
    metrics = ShareMetrics()
    world = ShareWorld()
    world.shard = GroupShard(world.config, world.rng, metrics)
    world.tell_topics(frozenset())
    world.join("a")
    assert metrics.rebalances == 1
    world.states_answered()  # a new epoch, which no heartbeat began
    epoch = world.join("b").member_epoch
    assert metrics.rebalances == 2
    world.beat("b", epoch)
    world.beat("b", -1)
    assert metrics.rebalances == 2


def test_a_state_that_an_alteration_failed_for_is_not_made_anew():
    world = ShareWorld()
    world.emptied()
    row = OffsetToAlter(topic_id=FIRST[0], topic="orders", partition=FIRST[1], start_offset=5)
    token = world.ask(AlterShareOffsets(group_id=GROUP, offsets=(row,)))
    world.states_answered(DOWN)
    assert world.answers[token] == StatesChanged(errors={FIRST: DOWN})
    world.now_ms += world.config.group_share_initialize_retry_interval_ms
    world.join()
    assert world.questions == []
    assert world.assigned_anew() == parts("orders", 0, 1)


def test_offsets_whose_deletion_failed_can_be_deleted_again():
    world = ShareWorld()
    world.emptied()
    token = world.delete_offsets()
    world.states_answered(ErrorCode.NONE, DOWN)
    assert world.answers[token] == StatesChanged(errors={FIRST: ErrorCode.NONE, SECOND: DOWN})
    assert world.states.initialized == {SECOND}
    token = world.delete_offsets()
    (question,) = world.questions
    assert isinstance(question, DeleteStates)
    assert question.partitions == (SECOND,)
    world.states_answered()
    assert world.answers[token] == StatesChanged(errors={SECOND: ErrorCode.NONE})


def test_states_that_are_gone_are_made_anew_for_a_new_member():
    world = ShareWorld()
    world.emptied()
    world.delete_offsets()
    world.states_answered(ErrorCode.NONE, DOWN)
    world.join()
    (question,) = world.questions
    assert [(row.topic_id, row.partition) for row in question.rows] == [FIRST]
    assert world.assigned_anew() == parts("orders", 0, 1)


@pytest.mark.parametrize("is_whole_group", [False, True])
def test_states_are_made_anew_after_a_fail_over_in_the_middle_of_a_deletion(is_whole_group):
    world = ShareWorld()
    world.emptied()
    if is_whole_group:
        world.ask(DeleteGroup(group_id=GROUP))
    else:
        world.delete_offsets()
    world.questions.clear()
    world.fail_over()
    world.join()
    (question,) = world.questions
    assert len(question.rows) == 2
    assert world.assigned_anew() == parts("orders", 0, 1)


def test_a_group_whose_deletion_failed_can_be_deleted_again():
    world = ShareWorld()
    world.emptied()
    token = world.ask(DeleteGroup(group_id=GROUP))
    world.states_answered(ErrorCode.NONE, DOWN)
    assert world.answers[token] == DOWN
    token = world.ask(DeleteGroup(group_id=GROUP))
    world.states_answered()
    assert world.answers[token] == ErrorCode.NONE
    assert GROUP not in world.shard.share.groups


def test_a_member_that_joins_a_group_in_deletion_keeps_it():
    world = ShareWorld()
    world.emptied()
    token = world.ask(DeleteGroup(group_id=GROUP))
    world.join()
    world.states_answered()
    assert world.answers[token] == ErrorCode.NON_EMPTY_GROUP
    assert world.assigned_anew() == parts("orders", 0, 1)


def test_members_hurry_only_for_states_that_may_be_made_soon():
    world = ShareWorld()
    usual_ms = world.config.group_share_heartbeat_interval_ms
    assert world.join().heartbeat_interval_ms == 500
    world.states_answered(DOWN, DOWN)
    world.now_ms += usual_ms - 1
    assert world.beat("a", 1).heartbeat_interval_ms == 500
    world.now_ms += 1
    assert world.beat("a", 1).heartbeat_interval_ms == usual_ms
    world.now_ms += world.config.group_share_initialize_retry_interval_ms
    assert world.beat("a", 1).heartbeat_interval_ms == 500
    assert len(world.questions) == 1


def test_a_topic_that_a_member_adds_gets_states():
    world = ShareWorld()
    world.set_topic("payments", 1)
    epoch = world.join().member_epoch
    world.states_answered()
    world.beat("a", epoch, subscribed_topic_names=("orders", "payments"))
    (question,) = world.questions
    assert {(row.topic_id, row.partition) for row in question.rows} == parts("payments", 0)
