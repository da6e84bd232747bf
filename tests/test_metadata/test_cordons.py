"""Brokers that have cordoned their data directories get no new replicas (KIP-1066)."""

import pytest

from kvorum.metadata.configs.cordons import cordoned_paths, cordons_problem
from kvorum.metadata.image.image import RESOURCE_BROKER
from kvorum.metadata.image.records import Config
from kvorum.metadata.requests.controller_requests import CreatePartitions, NewPartitions
from kvorum.runtime.errors import ErrorCode
from tests.test_metadata.worlds import World

A, B, C = 101, 102, 103
DIRS = ["/a", "/b"]


@pytest.fixture
def world():
    return World(brokers=(A, B, C))


def cordon(world, broker_id, value="*"):
    world.commit(Config(RESOURCE_BROKER, str(broker_id), "cordoned.log.dirs", value))


def test_no_new_replica_is_placed_on_a_broker_that_has_cordoned_all(world):
    cordon(world, B)
    made = world.create("t", partitions=12, factor=2)
    assert made.error is ErrorCode.NONE
    assert {r for p in world.image.topic("t").partitions.values() for r in p.replicas} == {A, C}
    assert world.create("u", factor=3).error is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_broker_with_one_directory_left_gets_replicas(world):
    cordon(world, B, "/a")
    assert world.create("t", factor=3).error is ErrorCode.NONE


def test_a_cluster_whose_brokers_have_all_cordoned_says_so(world):
    for broker_id in (A, B, C):
        cordon(world, broker_id)
    refused = world.create("t", factor=1)
    assert refused.error is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "cordoned" in refused.message


def test_assignments_by_hand_to_a_cordoned_broker_are_refused(world):
    world.create("t", partitions=-1, factor=-1, assignments=((A,),))
    cordon(world, B)
    refused = world.create("u", partitions=-1, factor=-1, assignments=((B,),))
    assert refused.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT and "[102]" in refused.message
    more = NewPartitions(name="t", count=2, assignments=((B,),))
    (grown,) = world.ask(CreatePartitions(topics=(more,), validate_only=False))
    assert grown.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    moved = world.reassign([A, B])
    assert moved.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT and "cordoned" in moved.message


def test_a_replica_on_a_cordoned_broker_stays_while_others_move(world):
    world.create("t", partitions=-1, factor=-1, assignments=((A, B),))
    cordon(world, B)
    assert world.reassign([B, C]).error is ErrorCode.NONE


@pytest.mark.parametrize("text", ["", None, "*", "/a", "/a,/b", " /b , /a "])
def test_cordons_that_a_broker_can_have(text):
    assert cordons_problem(cordoned_paths(text), DIRS) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [("/c", "/c, which is not in log.dirs (/a,/b)"), ("/a/", "as they stand there"),
     ("*,/a", "leave the others out"), ("/a,/a", "/a twice")],
)  # fmt: skip
def test_cordons_that_a_broker_cannot_have_are_named(text, reason):
    assert reason in cordons_problem(cordoned_paths(text), DIRS)
