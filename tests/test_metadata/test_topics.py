import pytest

from kvorum.metadata.controller.core.controller import ControllerConfig
from kvorum.metadata.requests.controller_requests import (
    CreateTopics,
    DeleteTopics,
    NewTopic,
    TopicReference,
)
from kvorum.runtime.errors import ErrorCode
from tests.test_metadata.worlds import World


def test_a_topic_gets_an_id_and_every_partition_a_leader_in_its_isr():
    world = World()
    made = world.create("t", partitions=5)
    assert made.error is ErrorCode.NONE
    topic = world.image.topic("t")
    assert topic.topic_id == made.topic_id != bytes(16)
    for partition in topic.partitions.values():
        assert partition.leader == partition.isr[0] == partition.replicas[0]
        assert sorted(partition.isr) == [101, 102, 103]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)


def test_a_recreated_topic_is_another_topic():
    world = World()
    first = world.create("t").topic_id
    world.ask(DeleteTopics(topics=(TopicReference(name="t"),)))
    assert world.image.topic("t") is None
    assert world.create("t").topic_id != first


def test_a_topic_can_be_deleted_by_id():
    world = World()
    topic_id = world.create("t").topic_id
    (gone,) = world.ask(DeleteTopics(topics=(TopicReference(topic_id=topic_id),)))
    assert (gone.error, gone.name) == (ErrorCode.NONE, "t")
    assert not world.image.topics


def test_deleting_a_topic_takes_its_configs_along():
    world = World()
    world.create("t", configs=(("min.insync.replicas", "2"),))
    assert world.image.topic_configs("t")["min.insync.replicas"] == "2"
    world.ask(DeleteTopics(topics=(TopicReference(name="t"),)))
    assert not world.image.configs


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"name": ""}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": ".."}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "__cluster_metadata"}, ErrorCode.INVALID_REQUEST),
        ({"name": "a/b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "x" * 250}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "t", "num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "t", "num_partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "t", "num_partitions": 100_000}, ErrorCode.POLICY_VIOLATION),
        ({"name": "t", "replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"name": "t", "replication_factor": 4}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"name": "t", "configs": (("no.such", "1"),)}, ErrorCode.INVALID_CONFIG),
        ({"name": "t", "configs": (("retention.ms", "x"),)}, ErrorCode.INVALID_CONFIG),
        ({"name": "t", "assignments": ((101, 101),)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "t", "assignments": ((101, 999),)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            {"name": "t", "assignments": ((101, 102), (103,))},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            {"name": "t", "assignments": ((101,),), "num_partitions": 1},
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_bad_topics_are_refused_with_kafkas_code_and_leave_no_trace(fields, error):
    world = World()
    before = world.image
    (made,) = world.ask(CreateTopics(topics=(NewTopic(**fields),)))
    assert made.error is error
    assert made.message
    assert world.image is before


def test_one_bad_topic_does_not_spoil_the_request():
    world = World()
    topics = (NewTopic(name="good"), NewTopic(name="bad name"), NewTopic(name="good"))
    results = world.ask(CreateTopics(topics=topics))
    assert [r.error for r in results] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
    ]
    assert list(world.image.topic_ids) == ["good"]


def test_an_existing_name_is_refused():
    world = World()
    world.create("t")
    assert world.create("t").error is ErrorCode.TOPIC_ALREADY_EXISTS


def test_names_that_differ_only_in_dot_and_underscore_collide():
    world = World()
    world.create("a.b")
    assert world.create("a_b").error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert world.create("a-b").error is ErrorCode.NONE


def test_validate_only_changes_nothing():
    world = World()
    request = CreateTopics(topics=(NewTopic(name="t", replication_factor=3),), validate_only=True)
    (made,) = world.ask(request)
    assert made.error is ErrorCode.NONE
    assert world.image.topic("t") is None


def test_replicas_by_hand_are_taken_as_given():
    world = World()
    world.create("t", partitions=-1, factor=-1, assignments=((103, 101), (102, 103)))
    assert world.partition("t", 0).replicas == (103, 101)
    assert world.partition("t", 1).leader == 102


def test_a_fenced_replica_is_not_in_the_first_isr():
    world = World()
    world.controller.sessions.stream_broke(102, world.epochs[102], 0)
    assert world.expire(200) == [102]
    world.create("t", partitions=-1, factor=-1, assignments=((102, 101, 103),))
    assert world.partition().isr == (101, 103)
    assert world.partition().leader == 101


def test_a_controller_that_has_deletion_disabled_removes_nothing():
    world = World(config=ControllerConfig(delete_topic_enable=False))
    world.create("t")
    before = world.image
    (named, unknown) = world.ask(
        DeleteTopics(topics=(TopicReference(name="t"), TopicReference(name="u")))
    )
    assert named.error is unknown.error is ErrorCode.TOPIC_DELETION_DISABLED
    assert "delete.topic.enable=false" in named.message
    assert world.image is before
