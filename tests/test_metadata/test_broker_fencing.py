"""A dead broker with many partitions is taken out of them in chunks, first those that it leads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.metadata.controller.core.controller import Controller, ControllerConfig
from kvorum.metadata.controller.decide import broker_fencing
from kvorum.metadata.controller.decide.broker_fencing import begin_fencing, fence_next_chunk
from kvorum.metadata.controller.decide.brokers import fence
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.records import NO_LEADER, BrokerRegistrationChange, PartitionChange
from kvorum.metadata.requests.controller_requests import ElectLeaders
from tests.test_metadata.worlds import World

DEAD = 101
LONG_AGO_MS = 10_000


def fence_by_twos(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Controller.__init__

    def with_chunk(self, *arguments, **options):
        plain(self, *arguments, fencing_chunk=2, **options)

    monkeypatch.setattr(Controller, "__init__", with_chunk)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose controller fences in chunks of two partitions."""
    fence_by_twos(monkeypatch)
    world = World()
    world.now_ms = LONG_AGO_MS
    for broker_id in world.epochs:
        if broker_id != DEAD:
            world.heartbeat(broker_id)
    return world


def chunk(world: World):
    """Decide and commit one chunk; its records."""
    found = world.controller.fence_next(LONG_AGO_MS)
    assert found is not None
    fenced, records = found
    assert list(fenced) == ([] if world.controller.is_fencing else [DEAD])
    world.records += records
    world.controller.note_committed(world.controller.speculative)
    return records


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
    assert world.controller.fence_next(LONG_AGO_MS) is None


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
    assert world.controller.fence_next(LONG_AGO_MS) is None
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


RACK = (101, 102, 103)


@pytest.fixture
def racks(monkeypatch: pytest.MonkeyPatch) -> World:
    """Six brokers, of which three do not live any more; chunks of two partitions."""
    fence_by_twos(monkeypatch)
    world = World(brokers=(101, 102, 103, 104, 105, 106))
    world.now_ms = LONG_AGO_MS
    for broker_id in world.epochs:
        if broker_id not in RACK:
            world.heartbeat(broker_id)
    return world


def chunk_of_rack(world: World):
    """Decide and commit one chunk; the ids that it fences, and its records."""
    found = world.controller.fence_next(LONG_AGO_MS)
    assert found is not None
    world.records += found[1]
    world.controller.note_committed(world.controller.speculative)
    return list(found[0]), found[1]


def test_a_rack_is_fenced_together_and_no_partition_moves_within_it(racks):
    racks.create("t", partitions=40)
    while any(p.leader in RACK for p in racks.image.topic("t").partitions.values()):
        fenced, records = chunk_of_rack(racks)
        assert fenced == []
        assert all(record.leader not in RACK for record in records)
    while racks.controller.is_fencing:
        fenced, _ = chunk_of_rack(racks)
    assert fenced == list(RACK)
    assert not any(set(RACK) & set(p.isr) for p in racks.image.topic("t").partitions.values())
    assert [b for b, broker in racks.image.brokers.items() if broker.is_fenced] == list(RACK)


def test_the_leader_stays_where_the_whole_isr_dies_and_leads_none_until_it_is_fenced(racks):
    racks.create("t", partitions=-1, factor=-1, assignments=((102, 101, 103),) * 3)
    racks.create("u", partitions=9)
    while racks.controller.is_fencing or not racks.image.brokers[101].is_fenced:
        _, records = chunk_of_rack(racks)
        if racks.controller.is_fencing:
            assert all(p.leader == 102 for p in racks.image.topic("t").partitions.values())
    for partition in racks.image.topic("t").partitions.values():
        assert (partition.leader, partition.isr) == (NO_LEADER, (102,))
    assert [type(record).__name__ for record in records[-3:]] == ["BrokerRegistrationChange"] * 3


def test_of_a_rack_the_broker_that_comes_back_meanwhile_is_not_fenced(racks):
    racks.create("t", partitions=20)
    chunk_of_rack(racks)
    racks.join(102, incarnation=2)
    while racks.controller.is_fencing:
        fenced, _ = chunk_of_rack(racks)
    assert fenced == [101, 103]
    assert not racks.image.brokers[102].is_fenced


def test_a_broker_that_dies_meanwhile_joins_the_rack(racks):
    racks.create("t", partitions=40)
    chunk_of_rack(racks)
    racks.now_ms = later_ms = LONG_AGO_MS + 5_000
    for broker_id in (105, 106):
        racks.heartbeat(broker_id)
    while racks.controller.is_fencing:
        fenced, records = racks.controller.fence_next(later_ms)
        racks.records += records
        racks.controller.note_committed(racks.controller.speculative)
        led = [r for r in records if isinstance(r, PartitionChange) and r.leader is not None]
        assert all(record.leader in (105, 106, NO_LEADER) for record in led)
    assert list(fenced) == [*RACK, 104]
    assert not any(
        {*RACK, 104} & set(p.isr) and p.leader != NO_LEADER
        for p in racks.image.topic("t").partitions.values()
    )


def test_a_rack_is_looked_for_once(racks, monkeypatch):
    looked = []
    plain = broker_fencing._find_affected

    def counted(image, at):
        looked.extend(at.unseen[:1])
        return plain(image, at)

    monkeypatch.setattr(broker_fencing, "_find_affected", counted)
    for number in range(6):
        racks.create(f"t{number}", partitions=30)
    while racks.controller.is_fencing or not racks.image.brokers[101].is_fenced:
        chunk_of_rack(racks)
    assert len(looked) == len(set(looked))


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
    fencing = begin_fencing(image, [DEAD], chunk=size)
    while fencing is not None:
        decision = fence_next_chunk(image, fencing)
        image, fencing = after(image, decision.records), decision.reply
    assert image.topics == whole.topics
    assert image.brokers == whole.brokers


def test_there_is_nothing_to_begin_for_a_broker_that_is_fenced_or_unknown(world):
    world.expire(LONG_AGO_MS)
    assert begin_fencing(world.image, [DEAD]) is None
    assert begin_fencing(world.image, [999]) is None


def test_a_late_heartbeat_of_a_broker_that_is_being_fenced_begins_no_other_search(racks):
    for number in range(8):
        racks.create(f"t{number}", partitions=30)
    chunk_of_rack(racks)
    left = racks.controller._fencing.unseen
    racks.heartbeat(101)
    racks.now_ms = LONG_AGO_MS + 1_999
    for broker_id in (104, 105, 106):
        racks.heartbeat(broker_id)
    found = racks.controller.fence_next(LONG_AGO_MS + 2_000)
    assert found is not None
    assert set(racks.controller._fencing.unseen) < set(left)
