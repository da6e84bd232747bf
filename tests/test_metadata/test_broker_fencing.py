"""A dead broker with many partitions is taken out of them in chunks, first those that it leads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.metadata.controller.core.controller import Controller, ControllerConfig
from kvorum.metadata.controller.decide.broker_fencing import begin_fencing, fence_next_chunk
from kvorum.metadata.controller.decide.brokers import fence
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.records import NO_LEADER, BrokerRegistrationChange, PartitionChange
from kvorum.metadata.requests.controller_requests import ElectLeaders
from tests.test_metadata.worlds import World

DEAD = 101
LONG_AGO_MS = 10_000


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose controller fences in chunks of two partitions."""
    plain = Controller.__init__

    def with_chunk(self, *arguments, **options):
        plain(self, *arguments, fencing_chunk=2, **options)

    monkeypatch.setattr(Controller, "__init__", with_chunk)
    world = World()
    world.now_ms = LONG_AGO_MS
    for broker_id in world.epochs:
        if broker_id != DEAD:
            world.heartbeat(broker_id)
    return world


def chunk(world: World):
    """Decide and commit one chunk; its records."""
    found = world.controller.fence_next_broker(LONG_AGO_MS)
    assert found is not None
    assert found[0] == DEAD
    world.records += found[2]
    world.controller.note_committed(world.controller.speculative)
    return found[2]


def after(image: ClusterImage, records) -> ClusterImage:
    delta = Delta(image)
    delta.replay_all(records)
    return delta.apply(end_offset=image.end_offset + len(records), epoch=1)


def concerned(image: ClusterImage):
    return [
        partition
        for topic in image.topics.values()
        for partition in topic.partitions.values()
        if partition.leader == DEAD or (DEAD in partition.isr and len(partition.isr) > 1)
    ]


def led(image: ClusterImage):
    return [partition for partition in concerned(image) if partition.leader == DEAD]


def test_what_it_led_has_new_leaders_first_and_the_fencing_stands_last(world):
    world.create("t", partitions=9)
    assert len(led(world.image)) == 3
    sizes = []
    while not world.image.brokers[DEAD].is_fenced:
        before = len(led(world.image))
        records = chunk(world)
        changes = [record for record in records if isinstance(record, PartitionChange)]
        sizes.append(len(changes))
        assert before - len(led(world.image)) == min(before, len(changes))
        assert world.controller.is_fencing is not world.image.brokers[DEAD].is_fenced
    assert sizes == [2, 1, 2, 2, 2]
    assert concerned(world.image) == []
    assert isinstance(records[-1], BrokerRegistrationChange)
    assert world.controller.fence_next_broker(LONG_AGO_MS) is None


def test_leaderships_go_first_however_long_it_takes_to_find_them(world):
    for number in range(4):
        world.create(f"t{number}", partitions=30)
    looked_in_vain = 0
    while led(world.image):
        records = chunk(world)
        assert all(record.leader is not None for record in records)
        looked_in_vain += not records
    while world.controller.is_fencing:
        chunk(world)
    assert concerned(world.image) == []
    assert not looked_in_vain, "what is found is left while the search goes on"


def test_leaderships_that_are_found_late_go_before_what_it_only_follows(world):
    for number in range(4):
        world.create(f"t{number}", partitions=30)
    seen_first = sorted(world.image.topics)[:2]
    world.commit(
        *(
            PartitionChange(topic_id, i, leader=102)
            for topic_id, topic in world.image.topics.items()
            for i, partition in topic.partitions.items()
            if partition.leader == DEAD and topic_id in seen_first
        )
    )
    while led(world.image):
        assert all(record.leader is not None for record in chunk(world))
    assert len(concerned(world.image)) > 60


def test_a_leadership_it_gets_back_meanwhile_is_left_again(world):
    world.create("t", partitions=9)
    topic_id = world.image.topic("t").topic_id
    mine = [i for i, p in world.image.topic("t").partitions.items() if p.leader == DEAD]
    world.commit(*(PartitionChange(topic_id, i, leader=102) for i in mine))
    chunk(world)
    world.ask(ElectLeaders())
    assert led(world.image)
    while world.controller.is_fencing:
        chunk(world)
    assert concerned(world.image) == []


def test_a_leadership_that_the_periodic_check_gives_it_meanwhile_is_left_again(world):
    world.create("t", partitions=9)
    topic_id = world.image.topic("t").topic_id
    mine = [i for i, p in world.image.topic("t").partitions.items() if p.leader == DEAD]
    world.commit(*(PartitionChange(topic_id, i, leader=102) for i in mine))
    chunk(world)
    assert world.controller.sweep_leaders(None).records
    world.controller.note_committed(world.controller.speculative)
    assert led(world.image)
    while world.controller.is_fencing:
        chunk(world)
    assert concerned(world.image) == []


def test_few_partitions_go_in_one_piece(world):
    world.create("t", partitions=2)
    *changes, last = chunk(world)
    assert len(changes) == 2
    assert last == BrokerRegistrationChange(DEAD, world.epochs[DEAD], is_fenced=True)
    assert not world.controller.is_fencing


def test_nobody_lets_it_back_in_meanwhile(world):
    world.create("t", partitions=6)
    chunk(world)
    partition_id, partition = next(
        (i, p) for i, p in world.image.topic("t").partitions.items() if DEAD not in p.isr
    )
    answer = world.propose((*partition.isr, DEAD), partition_id=partition_id)
    assert answer.error.name == "INELIGIBLE_REPLICA"


def test_partitions_placed_on_it_meanwhile_do_not_stay_behind(world):
    world.create("t", partitions=6)
    chunk(world)
    world.create("new", partitions=3)
    assert [p.leader for p in world.image.topic("new").partitions.values()].count(DEAD) == 1
    while world.controller.is_fencing:
        chunk(world)
    assert concerned(world.image) == []
    assert world.image.brokers[DEAD].is_fenced


def test_a_topic_that_is_deleted_meanwhile_is_passed_over(world):
    world.create("t", partitions=6)
    world.create("u", partitions=2)
    chunk(world)
    world.delete("t")
    while world.controller.is_fencing:
        chunk(world)
    assert concerned(world.image) == []


def test_another_process_of_that_broker_is_not_fenced_for_the_first(world):
    world.create("t", partitions=6)
    chunk(world)
    world.join(DEAD, incarnation=2)
    assert not world.image.brokers[DEAD].is_fenced
    end_offset = world.image.end_offset
    assert world.controller.fence_next_broker(LONG_AGO_MS) is None
    assert (world.controller.is_fencing, world.image.end_offset) == (False, end_offset)


def test_the_next_controller_finds_what_was_left(world):
    world.create("t", partitions=6)
    chunk(world)
    world.controller.renounce()
    assert not world.controller.is_fencing
    world.controller.claim(2, world.image.end_offset, LONG_AGO_MS)
    fenced = world.expire(2 * LONG_AGO_MS)
    assert set(fenced) == {101, 102, 103}
    assert all(
        p.leader == NO_LEADER and len(p.isr) == 1
        for p in world.image.topic("t").partitions.values()
    )


def test_a_broker_that_is_the_last_in_sync_everywhere_is_fenced_all_the_same(world):
    world.create("alone", partitions=12, factor=1)
    while not world.image.brokers[DEAD].is_fenced:
        chunk(world)
    left = [p for p in world.image.topic("alone").partitions.values() if p.isr == (DEAD,)]
    assert len(left) == 4
    assert {p.leader for p in left} == {NO_LEADER}


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(1, 7), st.integers(1, 3)), max_size=4),
    st.integers(0, 1000),
)
def test_in_chunks_it_comes_to_what_one_piece_would_be(size, topics, seed):
    world = World(seed=seed, config=ControllerConfig())
    for number, (partitions, factor) in enumerate(topics):
        world.create(f"t{number}", partitions=partitions, factor=factor)
    image = world.image
    whole = after(image, fence(image, DEAD))
    fencing = begin_fencing(image, DEAD, chunk=size)
    while fencing is not None:
        decision = fence_next_chunk(image, fencing)
        image, fencing = after(image, decision.records), decision.reply
    assert image.topics == whole.topics
    assert image.brokers == whole.brokers


def test_there_is_nothing_to_begin_for_a_broker_that_is_fenced_or_unknown(world):
    world.expire(LONG_AGO_MS)
    assert begin_fencing(world.image, DEAD) is None
    assert begin_fencing(world.image, 999) is None
