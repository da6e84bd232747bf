"""A group of the consumer protocol becomes a classic one: each rule as a short story."""

from __future__ import annotations

import pytest

from kvorum.broker.groups.steps.migration_policy import MigrationPolicy
from kvorum.runtime.errors import ErrorCode
from tests.test_groups.consumer.world import Member, joined
from tests.test_groups.migration.world import (
    ALL,
    Classic,
    MixedWorld,
    classics,
    one_of_each,
    owned,
    settle_all,
    settle_classic,
    world_with,
)
from tests.test_groups.world import (
    GROUP,
)


@pytest.fixture
def world():
    return MixedWorld()


@pytest.fixture
def mixed(world):
    return one_of_each(world)


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
    # The classic group goes on with a generation that its members know: their heartbeats get
    # REBALANCE_IN_PROGRESS, not ILLEGAL_GENERATION.
    assert old.beat() == ErrorCode.REBALANCE_IN_PROGRESS
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
