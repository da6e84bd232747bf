"""Fencing in chunks: what is in between, and that it comes to the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from metadata.controller import ControllerConfig
from metadata.decide.brokers import fence
from metadata.decide.elections import Sweep
from metadata.decide.fencing import begin_fencing, fence_chunk
from metadata.delta import Delta
from metadata.records import BrokerRegistrationChange
from tests.test_metadata.worlds import World

SILENCE_MS = 5_000


def of_chunks(world, broker_id, chunk_changes, between=lambda: None):
    """Fence in chunks; the records of each. The world's image follows."""
    at = begin_fencing(world.image, broker_id, "its session timed out")
    chunks = []
    while at is not None:
        decision = fence_chunk(
            world.image, at, is_unclean_default=False, chunk_changes=chunk_changes
        )
        chunks.append(decision.records)
        world.commit(*decision.records)
        at = decision.reply
        if at is not None:
            between()
    return chunks


def holds_anything(image, broker_id):
    return [
        (topic.name, i)
        for topic in image.topics.values()
        for i, partition in topic.partitions.items()
        if broker_id == partition.leader or broker_id in partition.isr
    ]


def world_of(partition_counts):
    world = World()
    for number, count in enumerate(partition_counts):
        world.create(f"t{number}", partitions=count)
    return world


@given(counts=st.lists(st.integers(1, 5), max_size=4), chunk_changes=st.integers(1, 30))
def test_chunks_come_to_the_same_as_all_at_once(counts, chunk_changes):
    world = world_of(counts)
    delta = Delta(world.image)
    delta.replay_all(fence(world.image, 101))
    chunks = of_chunks(world, 101, chunk_changes)
    expected = delta.apply(end_offset=world.image.end_offset, epoch=world.image.epoch)
    assert world.image == expected
    assert all(len(chunk) <= chunk_changes + 1 for chunk in chunks[:-1])
    last = chunks[-1][-1]
    assert isinstance(last, BrokerRegistrationChange)
    assert last.is_fenced


def test_broker_that_holds_little_is_fenced_in_one_chunk():
    world = world_of([2])
    (records,) = of_chunks(world, 101, 100)
    assert len(records) == 3


def test_what_is_placed_on_the_broker_meanwhile_is_taken_away_in_the_end():
    world = world_of([4])
    names = iter("abcdefgh")
    chunks = of_chunks(world, 101, 1, between=lambda: world.create(next(names)))
    assert len(chunks) > 3
    assert holds_anything(world.image, 101) == []
    assert world.image.brokers[101].is_fenced
    assert all(p.has_leader for t in world.image.topics.values() for p in t.partitions.values())


def test_topic_deleted_meanwhile_is_passed_over():
    world = world_of([3, 3])
    of_chunks(world, 101, 1, between=lambda: world.delete("t1"))
    assert holds_anything(world.image, 101) == []
    assert list(world.image.topic_ids) == ["t0"]


def test_broker_that_registered_anew_meanwhile_is_left_alone():
    world = world_of([3])
    epoch = world.epochs[101]

    def come_back():
        if world.image.brokers[101].broker_epoch == epoch:
            world.controller.sessions.drop(101)
            world.join(101, incarnation=2)

    chunks = of_chunks(world, 101, 1, between=come_back)
    assert chunks[-1] == ()
    assert not world.image.brokers[101].is_fenced


def test_requests_are_decided_between_two_chunks_of_a_session_that_ended():
    world = World(config=ControllerConfig(fencing_chunk_changes=1))
    world.create("t", partitions=3)
    world.controller.sessions.touch(102, world.epochs[102], 0, SILENCE_MS)
    world.controller.sessions.touch(103, world.epochs[103], 0, SILENCE_MS)
    world.controller.expire_sessions(SILENCE_MS)
    records, done = world.controller.fence_chunk()
    assert (len(records), done, world.controller.is_fencing) == (1, None, True)
    world.records += records
    world.controller.note_committed(world.controller.speculative)
    assert not world.create("u").error
    assert world.expire(SILENCE_MS) == [101]
    assert holds_anything(world.image, 101) == []


def test_fencing_under_way_ends_with_the_leadership():
    world = World(config=ControllerConfig(fencing_chunk_changes=1))
    world.create("t", partitions=3)
    world.controller.expire_sessions(SILENCE_MS)
    assert world.controller.is_fencing
    world.controller.renounce()
    assert not world.controller.is_fencing


def test_walk_stops_in_the_middle_of_a_topic():
    world = world_of([5])
    at = begin_fencing(world.image, 101, "")
    decision = fence_chunk(world.image, at, is_unclean_default=False, chunk_changes=2)
    assert decision.reply.walk == Sweep(at.walk.topic_ids, 0, 2)
