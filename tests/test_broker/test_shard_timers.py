"""A request sees what the timers that are due at its time have ended, however late the event loop
would have fired them."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from kvorum.broker.coordinator.model import (
    Client,
    ReplayedRecord,
    SetTimer,
    Shard,
    TimerFired,
    TopicsChanged,
)
from kvorum.broker.coordinator.shard_context import ShardContext, ShardState
from kvorum.broker.coordinator.shard_timers import ShardTimers
from kvorum.broker.groups.consumer.requests import ConsumerHeartbeat, DescribeConsumerGroup
from kvorum.broker.groups.shard import GroupShard
from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.broker.groups.steps.requests import (
    DeleteGroup,
    DescribeGroup,
    FetchOffsets,
    ListGroups,
)
from kvorum.runtime.errors import ErrorCode
from tests.test_groups.consumer.world import JOIN, image_of
from tests.test_groups.world import GROUP, World, commit_body, join_body

SESSION_MS = 6_000
REBALANCE_MS = 300_000


class Never:
    """Deadlines that no event loop looks at."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def add(self, item: Any, deadline_ms: int) -> None:
        self.items.append(item)

    def remove(self, item: Any) -> None:
        if item in self.items:
            self.items.remove(item)


class Alone:
    """A shard context whose replica is the only one, with a clock that stands."""

    def __init__(self, shard: Shard) -> None:
        self.now_ms = 1_000
        self.end_offset = 0
        core = SimpleNamespace(
            topic="__consumer_offsets",
            partition_id=0,
            leader_epoch=1,
            high_watermark=1 << 60,
            check_produce=lambda _: ErrorCode.NONE,
        )
        replica = SimpleNamespace(
            core=core,
            log=SimpleNamespace(end_offset=0),
            is_offline=False,
            append_own=lambda *_: ErrorCode.NONE,
        )
        self.deadlines = Never()
        made: Any = {"replica": replica, "deadlines": self.deadlines}
        self.context = ShardContext(
            shard=shard,
            first_image_end=0,
            clock=SimpleNamespace(monotonic_ms=lambda: self.now_ms, wall_ms=lambda: self.now_ms),  # type: ignore[arg-type]
            ask=lambda *_: None,
            on_broken=lambda _: None,
            **made,
        )
        self.context.state = ShardState.ACTIVE
        self.context.give(
            TopicsChanged(image=image_of({"t": 1}), changed=frozenset(), deleted=frozenset())
        )

    def ask(self, body: Any) -> Any:
        answers: list[Any] = []
        self.context.call(body, Client(id="c", host="/127.0.0.1"), answers.append)
        assert len(answers) == 1, f"{body} has {len(answers)} answers"
        return answers[0]


def three_static_members() -> Alone:
    """A stable group of three static members, loaded from the log, whose sessions start now."""
    world = World()
    tokens = [
        world.join("", instance=name, session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS)
        for name in "abc"
    ]
    first = world.until(tokens[0])
    for token in tokens:
        world.sync(
            world.answers[token].member_id,
            first.generation_id,
            {},
            instance="abc"[tokens.index(token)],
        )
    shard = GroupShard(GroupConfig(), random.Random(1))
    for record in world.log:
        assert isinstance(record, ReplayedRecord)
        shard.replay(record)
    alone = Alone(shard)
    alone.context._carry_out(shard.on_loaded(alone.context._now()))
    assert len(shard.groups[GROUP].members) == 3
    return alone


def test_a_group_may_be_deleted_at_the_very_end_of_its_members_sessions() -> None:
    # librdkafka's test 0081: three static members close without LeaveGroup, and the group is
    # deleted as soon as their sessions are over.
    alone = three_static_members()
    alone.now_ms += SESSION_MS - 1
    assert alone.ask(DeleteGroup(group_id=GROUP)) == ErrorCode.NON_EMPTY_GROUP
    alone.now_ms += 1
    assert alone.ask(DeleteGroup(group_id=GROUP)) == ErrorCode.NONE
    assert alone.ask(DeleteGroup(group_id=GROUP)) == ErrorCode.GROUP_ID_NOT_FOUND


def test_describe_and_list_see_a_group_as_empty_at_the_end_of_its_sessions() -> None:
    alone = three_static_members()
    alone.now_ms += SESSION_MS - 1
    assert [row.state for row in alone.ask(ListGroups())] == ["Stable"]
    alone.now_ms += 1
    assert [row.state for row in alone.ask(ListGroups())] == ["Empty"]
    described = alone.ask(DescribeGroup(group_id=GROUP))
    assert (described.state, described.members) == ("Empty", ())


def test_offsets_of_a_group_whose_sessions_are_over_may_be_committed_by_a_tool() -> None:
    alone = three_static_members()
    alone.now_ms += SESSION_MS - 1
    assert alone.ask(commit_body(("t", 0, 5))) == ErrorCode.UNKNOWN_MEMBER_ID
    alone.now_ms += 1
    assert alone.ask(commit_body(("t", 0, 5))).errors == (ErrorCode.NONE,)


def test_a_member_of_the_consumer_protocol_is_gone_at_its_deadline() -> None:
    alone = Alone(GroupShard(GroupConfig(), random.Random(1)))
    session_ms = GroupConfig().group_consumer_session_timeout_ms
    beat = ConsumerHeartbeat(
        group_id=GROUP, member_id="m", member_epoch=0, subscribed_topic_names=("t",), **JOIN
    )
    alone.ask(beat)
    alone.now_ms += session_ms - 1
    assert len(alone.ask(DescribeConsumerGroup(group_id=GROUP)).members) == 1
    assert alone.ask(DeleteGroup(group_id=GROUP)) == ErrorCode.NON_EMPTY_GROUP
    alone.now_ms += 1
    assert alone.ask(DescribeConsumerGroup(group_id=GROUP)).members == ()
    assert [row.state for row in alone.ask(ListGroups())] == ["Empty"]
    assert alone.ask(DeleteGroup(group_id=GROUP)) == ErrorCode.NONE


def test_a_pending_member_id_ends_at_its_deadline() -> None:
    alone = Alone(GroupShard(GroupConfig(), random.Random(1)))
    body = join_body(session_ms=SESSION_MS)
    member_id = alone.ask(body).member_id
    alone.now_ms += SESSION_MS
    late = join_body(member_id, session_ms=SESSION_MS)
    assert alone.ask(late).error == ErrorCode.UNKNOWN_MEMBER_ID


class Echo:
    """A shard that sets itself a timer of 0 ms each time one fires."""

    fired = 0

    def step(self, event: Any, now: Any) -> list[Any]:
        if isinstance(event, TimerFired):
            self.fired += 1
            return [SetTimer(name="again", deadline_ms=now.monotonic_ms)]
        return []


def test_a_timer_of_no_time_fires_once_for_each_request() -> None:
    shard: Any = Echo()
    alone = Alone(shard)
    alone.context._carry_out([SetTimer(name="again", deadline_ms=0)])
    for number in (1, 2):
        body = FetchOffsets(group_id=GROUP, topics=None, require_stable=False)
        alone.context.call(body, Client(), lambda _: None)
        assert shard.fired == number


@pytest.mark.parametrize("seed", range(20))
def test_timers_come_in_the_order_of_their_deadlines_and_once(seed: int) -> None:
    rng = random.Random(seed)
    deadlines: Any = Never()
    timers = ShardTimers(deadlines, lambda _: None)
    expected: dict[int, int] = {}
    now_ms = 0
    for _ in range(2_000):
        name = rng.randrange(40)
        match rng.randrange(4):
            case 0 | 1:
                expected[name] = now_ms + rng.randrange(1, 50)
                timers.set(name, expected[name])
            case 2:
                expected.pop(name, None)
                timers.cancel(name)
            case _:
                now_ms += rng.randrange(10)
                due = [n for n, at in expected.items() if at <= now_ms]
                found = list(timers.take_due(now_ms))
                assert sorted(found) == sorted(due)  # type: ignore[type-var]
                times = [expected.pop(n) for n in found]  # type: ignore[call-overload]
                assert times == sorted(times)
        assert len(timers) == len(expected) == len(deadlines.items)
        assert len(timers._order) <= 2 * len(timers) + 65
