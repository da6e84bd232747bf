"""Whom a broker followed, and what they may not have heard."""

from __future__ import annotations

import dataclasses

import pytest

from broker.former_leaders import FormerLeaders
from metadata.delta import Delta
from metadata.image import EMPTY_IMAGE, ClusterImage
from metadata.records import (
    BrokerRegistrationChange,
    Partition,
    PartitionChange,
    Record,
    RegisterBroker,
    RemoveTopic,
    Topic,
)

TOPIC_ID = bytes(15) + b"t"
KEY = (TOPIC_ID, 0)
FENCE_1 = BrokerRegistrationChange(1, 10, is_fenced=True)


class World:
    """Broker 2 follows broker 1 in t-0 of 1, 2 and 3, and has heard of nothing else."""

    def __init__(self, *, has_deltas: bool, replicas: tuple[int, ...] = (1, 2, 3)) -> None:
        self.image: ClusterImage = EMPTY_IMAGE
        self.former = FormerLeaders(2)
        self._has_deltas = has_deltas
        for broker_id in (1, 2, 3):
            self.register(broker_id, 10)
        self.commit(Topic("t", TOPIC_ID), Partition(TOPIC_ID, 0, replicas, replicas, 1))

    def register(self, broker_id: int, epoch: int) -> None:
        self.commit(RegisterBroker(broker_id, epoch, bytes(16), (), None))
        self.commit(BrokerRegistrationChange(broker_id, epoch, is_fenced=False))

    def commit(self, *records: Record) -> list[int]:
        """Whom there is something new to tell."""
        delta, before = Delta(self.image), self.image
        delta.replay_all(records)
        self.image = delta.apply(end_offset=before.end_offset + len(records), epoch=1)
        return self.former.on_image(before, delta if self._has_deltas else None, self.image)

    def news(self, leader: int = 1) -> list[tuple[int, int]]:
        """(partition id, who leads it)."""
        found = self.former.news_of(leader, self.image, 1_000)
        return [(key[1], partition.leader) for key, partition in found]

    def tell(self) -> None:
        self.former.on_told(1, self.former.news_of(1, self.image, 1_000), self.image)


def led_by(leader: int, isr: tuple[int, ...] = (2, 3)) -> PartitionChange:
    return PartitionChange(TOPIC_ID, 0, isr=isr, leader=leader)


@pytest.fixture(params=[True, False], ids=["with deltas", "without"])
def world(request: pytest.FixtureRequest) -> World:
    return World(has_deltas=request.param)


def test_who_was_fenced_has_to_hear_who_leads_instead(world: World) -> None:
    assert world.commit(led_by(3), FENCE_1) == [1]
    assert world.news() == [(0, 3)]
    world.tell()
    assert world.news() == []
    assert world.commit(PartitionChange(TOPIC_ID, 0, isr=(3,))) == [], "the ISR is not its business"


def test_who_is_not_fenced_hears_it_from_the_controllers(world: World) -> None:
    assert world.commit(led_by(2, (1, 2, 3))) == []
    assert world.news() == []


def test_who_is_fenced_later_has_to_hear_it_then(world: World) -> None:
    world.commit(led_by(2, (1, 2, 3)))
    assert world.commit(FENCE_1) == [1]
    assert world.news() == [(0, 2)]


def test_each_later_leader_is_news(world: World) -> None:
    world.commit(led_by(2), FENCE_1)
    world.tell()
    assert world.commit(led_by(3)) == [1]
    assert world.news() == [(0, 3)]


def test_what_changes_while_it_is_told_is_news_still(world: World) -> None:
    world.commit(led_by(2), FENCE_1)
    told = world.former.news_of(1, world.image, 1)
    world.commit(led_by(3))
    world.former.on_told(1, told, world.image)
    assert world.news() == [(0, 3)]


def test_nobody_is_no_successor(world: World) -> None:
    assert world.commit(led_by(-1, (1,)), FENCE_1) == []
    assert world.news() == []
    assert world.commit(led_by(3)) == [1]


def test_news_that_are_none_any_more_are_not_told(world: World) -> None:
    world.commit(led_by(2), FENCE_1)
    assert world.commit(led_by(-1)) == []
    assert world.news() == []


def test_who_asked_to_go_knows(world: World) -> None:
    world.commit(BrokerRegistrationChange(1, 10, in_controlled_shutdown=True))
    assert world.commit(led_by(2), FENCE_1) == []
    assert world.news() == []


def test_another_process_of_the_broker_led_nothing(world: World) -> None:
    world.commit(led_by(2), FENCE_1)
    world.commit(RegisterBroker(1, 20, bytes(16), (), None))
    assert world.news() == []
    world.commit(BrokerRegistrationChange(1, 20, is_fenced=False))
    assert world.commit(BrokerRegistrationChange(1, 20, is_fenced=True)) == []


def test_another_process_of_the_broker_is_told_of_what_it_led_itself(world: World) -> None:
    world.commit(led_by(2), FENCE_1)
    world.register(1, 20)
    world.commit(led_by(1, (1, 2, 3)))
    assert world.commit(led_by(3), BrokerRegistrationChange(1, 20, is_fenced=True)) == [1]
    assert world.news() == [(0, 3)]


def test_who_leads_again_need_not_hear_who_did_meanwhile(world: World) -> None:
    world.commit(led_by(2, (1, 2, 3)))
    world.commit(led_by(1, (1, 2, 3)))
    assert world.commit(FENCE_1) == []
    assert world.commit(led_by(3)) == [1]


def test_a_topic_that_is_gone_is_no_news(world: World) -> None:
    world.commit(led_by(2), FENCE_1)
    world.commit(RemoveTopic(TOPIC_ID))
    assert world.news() == []
    assert world.former._by_leader[1].led == set()


def test_of_what_one_did_not_follow_others_tell() -> None:
    world = World(has_deltas=True, replicas=(1, 3))
    assert world.commit(led_by(3, (3,)), FENCE_1) == []


def test_as_much_is_told_at_once_as_a_request_holds(world: World) -> None:
    world.commit(Partition(TOPIC_ID, 1, (1, 2), (1, 2), 1))
    world.commit(led_by(2), PartitionChange(TOPIC_ID, 1, isr=(2,), leader=2), FENCE_1)
    first = world.former.news_of(1, world.image, 1)
    assert len(first) == 1
    world.former.on_told(1, first, world.image)
    assert len(world.news()) == 1


def test_two_brokers_are_told_of_their_own(world: World) -> None:
    world.commit(led_by(3, (1, 2, 3)))
    fence_3 = dataclasses.replace(FENCE_1, broker_id=3)
    assert sorted(world.commit(led_by(2, (2,)), FENCE_1, fence_3)) == [1, 3]
    assert world.news(1) == world.news(3) == [(0, 2)]
