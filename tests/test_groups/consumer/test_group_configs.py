"""A group's own session time-out and heartbeat interval, above those of the broker."""

from __future__ import annotations

import dataclasses

from kvorum.broker.groups.steps.config import GroupConfig
from tests.test_groups.consumer.world import ConsumerWorld, Member, set_configs
from tests.test_groups.world import GROUP

CONFIG = GroupConfig(group_consumer_session_timeout_ms=45_000)


def test_a_member_is_out_after_the_session_that_its_group_sets():
    world = ConsumerWorld(CONFIG)
    set_configs(world, GROUP, consumer_session_timeout_ms="60000")
    Member(world, "a").join()
    world.advance(59_999)
    assert "a" in world.group.members
    world.advance(1)
    assert "a" not in world.group.members


def test_a_groups_session_holds_from_the_next_heartbeat_on():
    world = ConsumerWorld(CONFIG)
    member = Member(world, "a")
    member.join()
    set_configs(world, GROUP, consumer_session_timeout_ms="50000")
    world.advance(40_000)
    member.beat()
    world.advance(49_999)
    assert "a" in world.group.members
    world.advance(1)
    assert "a" not in world.group.members


def test_a_member_hears_its_groups_heartbeat_interval_and_no_other_groups():
    world = ConsumerWorld(CONFIG)
    set_configs(world, GROUP, consumer_heartbeat_interval_ms="7000")
    assert Member(world, "a").join().heartbeat_interval_ms == 7_000
    set_configs(world, "another", consumer_heartbeat_interval_ms="9000")
    assert Member(world, "b").join().heartbeat_interval_ms == 5_000


def test_a_young_target_is_made_anew_by_the_first_heartbeat_after_its_interval():
    """The epochs are those that Apache Kafka 4.4 answers, whose default is 1000 ms."""
    world = ConsumerWorld(CONFIG)
    set_configs(world, GROUP, consumer_assignment_interval_ms="1000")
    first, second = Member(world, "a"), Member(world, "b")
    first.join()
    epoch = world.group.assignment_epoch
    assert second.join().member_epoch == epoch
    world.advance(999)
    assert second.beat().member_epoch == epoch
    assert first.beat().assignment is None
    world.advance(1)
    assert first.beat().assignment is not None
    assert world.group.assignment_epoch == world.group.group_epoch == epoch + 1


def test_a_group_without_an_interval_gets_each_target_at_once():
    world = ConsumerWorld(CONFIG)
    Member(world, "a").join()
    epoch = world.group.assignment_epoch
    assert Member(world, "b").join().member_epoch == epoch + 1


def test_a_groups_own_value_is_held_to_the_bounds_of_the_broker():
    config = dataclasses.replace(
        CONFIG,
        group_consumer_min_heartbeat_interval_ms=6_000,
        group_consumer_max_heartbeat_interval_ms=8_000,
    )
    for own_ms, told_ms in ((5_000, 6_000), (7_000, 7_000), (15_000, 8_000)):
        world = ConsumerWorld(config)
        set_configs(world, GROUP, consumer_heartbeat_interval_ms=str(own_ms))
        assert Member(world, "a").join().heartbeat_interval_ms == told_ms
