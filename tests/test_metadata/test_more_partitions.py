"""CreatePartitions: topics that grow."""

import pytest

from kvorum.metadata.controller.decide import partitions
from kvorum.metadata.requests.controller_requests import CreatePartitions, NewPartitions
from kvorum.runtime.errors import ErrorCode
from tests.test_metadata.worlds import World

A, B, C, D = 101, 102, 103, 104


@pytest.fixture
def world():
    world = World(brokers=(A, B, C, D))
    world.create("t", partitions=2, factor=2)
    return world


def grow(world, *topics, validate_only=False):
    return world.ask(CreatePartitions(topics=topics, validate_only=validate_only))


def more(count, assignments=None, name="t"):
    return NewPartitions(name=name, count=count, assignments=assignments)


def test_the_new_partitions_are_as_those_that_there_were(world):
    before = dict(world.image.topic("t").partitions)
    (grown,) = grow(world, more(5))
    assert grown.error is ErrorCode.NONE
    after = world.image.topic("t").partitions
    assert sorted(after) == [0, 1, 2, 3, 4]
    assert {i: after[i] for i in before} == before
    for partition_id in (2, 3, 4):
        partition = after[partition_id]
        assert len(partition.replicas) == 2
        assert partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)


def test_replicas_may_be_given_by_hand(world):
    grow(world, more(4, ((D, A), (C, D))))
    found = world.image.topic("t").partitions
    assert (found[2].replicas, found[3].replicas) == ((D, A), (C, D))


def test_validation_writes_nothing(world):
    before = world.image.end_offset
    assert grow(world, more(9), validate_only=True)[0].error is ErrorCode.NONE
    assert world.image.end_offset == before


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (more(2), ErrorCode.INVALID_PARTITIONS),
        (more(1), ErrorCode.INVALID_PARTITIONS),
        (more(0), ErrorCode.INVALID_PARTITIONS),
        (more(-1), ErrorCode.INVALID_PARTITIONS),
        (more(40_001), ErrorCode.POLICY_VIOLATION),
        (more(3, name="nobody"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (more(3, ()), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more(3, ((A, B), (A, B))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more(3, ((A,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more(3, ((A, A),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more(3, ((A, 999),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more(3, ((),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be_is_refused(world, wanted, error):
    before = world.image.end_offset
    (refused,) = grow(world, wanted)
    assert refused.error is error
    assert refused.message
    assert world.image.end_offset == before


def test_partitions_with_fenced_replicas_only_are_refused(world):
    world.fence(C)
    world.fence(D)
    (refused,) = grow(world, more(3, ((C, D),)))
    assert refused.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    grow(world, more(3, ((D, A),)))
    partition = world.partition("t", 2)
    assert (partition.leader, partition.isr) == (A, (A,))


def test_too_few_brokers_are_refused():
    world = World(brokers=(A, B))
    world.create("t", partitions=1, factor=2)
    world.fence(A)
    world.fence(B)
    assert grow(world, more(2))[0].error is ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_topic_that_is_being_reassigned_grows_with_the_factor_that_is_to_come(world, size):
    before = world.partition().replicas
    target = [b for b in (A, B, C, D) if b not in before] + list(before)
    world.reassign(target[:size])
    assert world.partition().is_reassigning
    grown = grow(world, more(3), more(3, name="nobody"))
    assert grown[0].error is ErrorCode.NONE
    added = world.partition("t", 2)
    assert len(added.replicas) == len(added.isr) == size
    assert not added.is_reassigning
    by_hand = grow(world, more(4, (tuple(target[:size]),)))
    assert by_hand[0].error is ErrorCode.NONE
    world.reassign(None)
    assert world.partition().replicas == before


def test_one_bad_item_does_not_spoil_the_others(world):
    world.create("u", partitions=1, factor=1)
    answers = grow(world, more(1), more(3, name="u"), more(3, name="v"))
    assert [a.error for a in answers] == [
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert len(world.image.topic("u").partitions) == 3


def test_a_topic_named_twice_is_refused_twice(world):
    answers = grow(world, more(3), more(4))
    assert [a.error for a in answers] == [ErrorCode.INVALID_REQUEST] * 2
    assert len(world.image.topic("t").partitions) == 2


def test_a_request_has_a_limit_and_says_what_it_left_out(world, monkeypatch):
    monkeypatch.setattr(partitions, "RECORDS_PER_BATCH_MAX", 3)
    world.create("u", partitions=1, factor=1)
    answers = grow(world, more(4), more(3, name="u"))
    assert [a.error for a in answers] == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]
