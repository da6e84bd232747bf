"""A group's own session time-out and heartbeat interval, above those of the broker."""

from __future__ import annotations

import dataclasses

from kvorum.broker.coordinator.model import TopicsChanged
from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.metadata.image.persistent_map import Map
from tests.test_groups.consumer.world import ConsumerWorld, Member, image_of
from tests.test_groups.world import GROUP

CONFIG = GroupConfig(group_consumer_session_timeout_ms=45_000)


def set_configs(world: ConsumerWorld, group_id: str, **configs: str) -> None:
    named = Map({key.replace("_", "."): value for key, value in configs.items()})
    image = dataclasses.replace(image_of(world.counts), configs=Map({(32, group_id): named}))
    world.give(TopicsChanged(image=image, changed=frozenset(), deleted=frozenset()))


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
