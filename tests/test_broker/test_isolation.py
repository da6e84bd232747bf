"""A leader that hears from no controller and no in-sync follower."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.manager.isolation import Isolation
from kvorum.broker.metadata_answers.topic_names import OFFSETS_TOPIC
from kvorum.broker.partition.core.partition import Partition
from kvorum.broker.partition.replica import Replica
from kvorum.metadata.image.image import PartitionImage
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import build_batch
from tests.polling import eventually
from tests.test_broker.harness import Harness
from tests.test_broker.led_partition import make
from tests.test_broker.raw_client import RawClient, fetch_values, produce_values

CONFIG = BrokerConfig(
    broker_session_timeout_ms=200, replica_fetch_wait_max_ms=50, offsets_topic_num_partitions=1
)

# --- the rule --------------------------------------------------------------------------------


def fetched(partition: Partition, **last_fetch_ms: int) -> Partition:
    partition.peer_brokers.last_fetch_ms = {int(k[1:]): v for k, v in last_fetch_ms.items()}
    return partition


def test_one_in_sync_follower_that_fetches_is_enough() -> None:
    partition = fetched(make(), b2=100, b3=10)
    assert partition.has_followers_left({2, 3}, since_ms=50)
    assert not partition.has_followers_left({3}, since_ms=50), "2 fetches other partitions"
    assert not partition.has_followers_left({2, 3}, since_ms=101), "both have stopped"


def test_a_follower_out_of_sync_does_not_count() -> None:
    partition = fetched(make(isr=(1, 2)), b2=10, b3=100)
    assert not partition.has_followers_left({2, 3}, since_ms=50)


@pytest.mark.parametrize("replicas", [(1,), (1, 2, 3)])
def test_a_leader_alone_in_its_isr_has_no_successor(replicas: tuple[int, ...]) -> None:
    partition = make(isr=(1,))
    partition.become_leader(PartitionImage(replicas, (1,), 1, 6, 9), 0)
    assert partition.has_followers_left(set(), since_ms=0)


@pytest.mark.parametrize(
    ("acks", "error"),
    [(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (0, ErrorCode.NONE), (1, ErrorCode.NONE)],
)
def test_an_abandoned_leader_refuses_what_it_cannot_commit(acks: int, error: ErrorCode) -> None:
    partition = make()
    partition.is_abandoned = True
    assert partition.check_produce(acks) is error


def test_a_new_image_ends_it() -> None:
    partition = make()
    partition.is_abandoned = True
    assert partition.check_consumer(5, from_any_replica=True) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.become_follower(PartitionImage((1, 2, 3), (2, 3), 2, 6, 9))
    assert partition.check_consumer(6, from_any_replica=True) is ErrorCode.NONE


# --- brokers ---------------------------------------------------------------------------------


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path, count=3, config=CONFIG)
    yield harness
    for broker_id, broker in harness.cluster.brokers.items():
        harness.cluster.controller.managers[broker_id] = broker.manager
    harness.close()


@pytest.fixture
def client(harness: Harness) -> Iterator[RawClient]:
    client = RawClient(harness.cluster.ports[1])
    yield client
    client.close()


def heartbeat_answered(harness: Harness, *, is_fenced: bool = False) -> None:
    isolation = harness.cluster.brokers[1].manager.isolation
    harness.call(lambda: isolation.on_controller_answer(is_fenced=is_fenced))


def send(client: RawClient, value: bytes, *, acks: int = -1, topic: str = "t") -> None:
    batch = bytes(build_batch([(None, value)], timestamp_ms=1000))
    client.send("produce", 10, produce_values(topic, batch, acks=acks, timeout_ms=60_000))


def code_of(client: RawClient) -> Any:
    return client.answer("produce", 10).responses[0].partition_responses[0].error_code


def told(harness: Harness, topic: str = "t") -> tuple[Any, int]:
    """(error, leader) of a topic's partition in broker 1's Metadata answer."""
    client = RawClient(harness.cluster.ports[1])
    answer = client.call("metadata", 9, {"topics": [{"name": topic}]})
    client.close()
    (partition,) = answer.topics[0].partitions
    return partition.error_code, partition.leader_id


def lose_the_controllers(harness: Harness) -> Any:
    """Broker 1 leads "t", a controller answers it once more, and then no message reaches it."""
    harness.call(lambda: harness.cluster.controller.create("t", [(1, 2, 3)]))
    heartbeat_answered(harness)
    return harness.call(lambda: harness.cluster.controller.managers.pop(1))


def core_of(harness: Harness) -> Partition:
    return harness.cluster.replica(1, "t").core


def wait_until_abandoned(harness: Harness) -> None:
    eventually(lambda: core_of(harness).is_abandoned, "nobody is heard of")


def test_writers_and_readers_are_sent_away_until_a_controller_answers(
    harness: Harness, client: RawClient
) -> None:
    manager = lose_the_controllers(harness)
    send(client, b"a")
    assert code_of(client) is KioError.none
    reader = RawClient(harness.cluster.ports[1])
    reader.send("fetch", 12, fetch_values("t", 1, max_wait_ms=60_000))
    replica = harness.cluster.replica(1, "t")
    eventually(lambda: any(not w.state.is_replica for w in replica.watchers), "it waits")
    harness.call(lambda: harness.cluster.brokers[3].manager.fetchers.pause(True))
    send(client, b"never committed")
    eventually(lambda: replica.pending_acks, "it waits for 3")
    harness.call(lambda: harness.cluster.fence(1))
    # Waiting requests and new requests are both refused.
    assert code_of(client) is KioError.not_leader_or_follower
    row = reader.answer("fetch", 12).responses[0].partitions[0]
    assert row.error_code is KioError.not_leader_or_follower
    assert row.current_leader.leader_id == -1
    send(client, b"refused")
    assert code_of(client) is KioError.not_leader_or_follower
    offsets = {"name": "t", "partitions": [{"partition_index": 0, "current_leader_epoch": -1,
               "timestamp": -1}]}  # fmt: skip
    asked = {"replica_id": -1, "isolation_level": 0, "topics": [offsets]}
    (answer,) = client.call("list_offsets", 5, asked).topics[0].partitions
    assert answer.error_code is KioError.not_leader_or_follower
    assert told(harness) == (KioError.leader_not_available, -1)
    assert core_of(harness).is_leader, "roles and epochs are the metadata's"
    # A heartbeat answer that calls the broker fenced does not end it: others may lead.
    heartbeat_answered(harness, is_fenced=True)
    assert told(harness) == (KioError.leader_not_available, -1)
    heartbeat_answered(harness)
    assert told(harness) == (KioError.none, 1)
    other = RawClient(harness.cluster.ports[2])
    send(other, b"b")
    assert code_of(other) is KioError.none
    other.close()
    # The broker gets the metadata again, and follows the new leader.
    harness.cluster.controller.managers[1] = manager
    harness.call(lambda: manager.publish(None, harness.cluster.controller.image))
    harness.call(lambda: harness.cluster.brokers[3].manager.fetchers.pause(False))
    logs = [harness.cluster.replica(broker_id, "t").log for broker_id in (1, 2)]
    eventually(lambda: logs[0].last_epoch == logs[1].last_epoch, "it follows")
    eventually(lambda: logs[0].end_offset == logs[1].end_offset, "it has caught up")
    assert told(harness) == (KioError.none, 2)
    reader.close()


def test_with_the_whole_quorum_down_the_data_plane_goes_on(
    harness: Harness, client: RawClient
) -> None:
    lose_the_controllers(harness)
    isolation = harness.cluster.brokers[1].manager.isolation
    checks = []
    look = isolation._set_abandoned
    isolation._set_abandoned = lambda replicas: checks.append(look(replicas))  # type: ignore[method-assign]
    eventually(lambda: len(checks) >= 8, "two session timeouts are over")
    send(client, b"a")
    assert code_of(client) is KioError.none
    assert told(harness) == (KioError.none, 1)


def test_followers_that_stop_while_a_controller_answers_are_the_isrs_business(
    harness: Harness,
) -> None:
    harness.call(lambda: harness.cluster.controller.create("t", [(1, 2, 3)]))
    isolation = harness.cluster.brokers[1].manager.isolation
    fetchers = [harness.cluster.brokers[b].manager.fetchers for b in (2, 3)]
    armed, changed = [], []
    isolation._on_change = changed.append
    arm = isolation._arm

    def note(wait_ms: int) -> None:
        armed.append(wait_ms)
        arm(wait_ms)

    def beat() -> None:
        isolation.on_controller_answer(is_fenced=False)
        if len(armed) < 6:
            harness.loop.call_later(0.02, beat)

    isolation._arm = note  # type: ignore[method-assign]
    harness.call(lambda: [f.pause(True) for f in fetchers])
    harness.call(beat)
    eventually(lambda: len(armed) >= 6, "several session timeouts are over")
    assert changed == []


def test_a_partition_without_followers_goes_on(harness: Harness, client: RawClient) -> None:
    harness.call(lambda: harness.cluster.controller.create("alone", [(1,)]))
    lose_the_controllers(harness)
    harness.call(lambda: harness.cluster.fence(1))
    wait_until_abandoned(harness)
    send(client, b"a", topic="alone")
    assert code_of(client) is KioError.none
    assert told(harness, "alone") == (KioError.none, 1)


def test_followers_that_come_back_end_it_as_well(harness: Harness, client: RawClient) -> None:
    lose_the_controllers(harness)
    fetchers = [harness.cluster.brokers[b].manager.fetchers for b in (2, 3)]
    harness.call(lambda: [f.pause(True) for f in fetchers])
    wait_until_abandoned(harness)
    harness.call(lambda: [f.pause(False) for f in fetchers])
    eventually(lambda: not core_of(harness).is_abandoned, "they fetch again")
    send(client, b"a")
    assert code_of(client) is KioError.none


def test_a_broker_that_no_controller_ever_answered_waits(harness: Harness) -> None:
    # The broker has just started, and its first heartbeat is on its way.
    assert harness.cluster.brokers[1].manager.isolation._timer is None


def test_it_names_another_broker_as_the_controller(harness: Harness, client: RawClient) -> None:
    def named() -> tuple[int, int, int]:
        every = client.call("metadata", 9, {"topics": None})
        one = client.call("metadata", 9, {"topics": []})
        cluster = client.call("describe_cluster", 0, {})
        return every.controller_id, one.controller_id, cluster.controller_id

    assert named() == (1, 1, 1)
    harness.cluster.controller.is_answering = False
    assert named() == (2, 2, 2)
    harness.cluster.controller.is_answering = True
    assert named() == (1, 1, 1)


def test_it_hangs_up_behind_what_it_cannot_answer(harness: Harness, client: RawClient) -> None:
    # Otherwise a client that is connected to this broker alone would retry there for ever.
    manager = lose_the_controllers(harness)
    harness.call(lambda: harness.cluster.controller.create("other", [(2, 3)]))
    harness.call(lambda: manager.publish(None, harness.cluster.controller.image))
    fetchers = [harness.cluster.brokers[b].manager.fetchers for b in (2, 3)]
    harness.call(lambda: [f.pause(True) for f in fetchers])
    wait_until_abandoned(harness)
    for _ in range(2):
        client.call("metadata", 9, {"topics": [{"name": "other"}]})
    for topics in ([{"name": "t"}], None):
        client = RawClient(harness.cluster.ports[1])
        answer = client.call("metadata", 9, {"topics": topics})
        (asked,) = [topic for topic in answer.topics if topic.name == "t"]
        assert asked.partitions[0].error_code is KioError.leader_not_available
        assert client.is_closed_by_peer()
        client.close()


def test_a_request_that_no_controller_answers_ends_its_connection(
    harness: Harness, client: RawClient
) -> None:
    topic = {
        "name": "new", "num_partitions": 1, "replication_factor": 1,
        "assignments": (), "configs": (),
    }  # fmt: skip
    asked = {"topics": [topic], "timeout": 1000, "validate_only": False}
    harness.cluster.controller.is_answering = False
    answer = client.call("create_topics", 5, asked)
    assert answer.topics[0].error_code is KioError.request_timed_out
    assert client.is_closed_by_peer()


def test_a_coordinator_that_is_abandoned_sends_its_groups_away(
    harness: Harness, client: RawClient
) -> None:
    harness.call(lambda: harness.cluster.controller.create(OFFSETS_TOPIC, [(1, 2, 3)]))

    def commit(offset: int) -> dict[str, Any]:
        partition = {
            "partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1,
            "committed_metadata": "",
        }  # fmt: skip
        return {
            "group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "",
            "group_instance_id": None, "topics": [{"name": "t", "partitions": [partition]}],
        }  # fmt: skip

    def code(answer: Any) -> Any:
        return answer.topics[0].partitions[0].error_code

    harness.call(lambda: harness.cluster.controller.create("t", [(2, 3)]))
    eventually(
        lambda: code(client.call("offset_commit", 8, commit(5))) is KioError.none, "it is loaded"
    )
    heartbeat_answered(harness)
    fetchers = [harness.cluster.brokers[b].manager.fetchers for b in (2, 3)]
    harness.call(lambda: [f.pause(True) for f in fetchers])
    client.send("offset_commit", 8, commit(6))
    assert code(client.answer("offset_commit", 8)) is KioError.not_coordinator
    assert code(client.call("offset_commit", 8, commit(7))) is KioError.not_coordinator
    found = client.call("find_coordinator", 4, {"key_type": 0, "coordinator_keys": ["g"]})
    assert found.coordinators[0].error_code is KioError.coordinator_not_available
    harness.call(lambda: [f.pause(False) for f in fetchers])
    heartbeat_answered(harness)
    eventually(
        lambda: code(client.call("offset_commit", 8, commit(8))) is KioError.none, "it goes on"
    )


def test_nothing_is_said_of_a_replica_that_is_closed(harness: Harness) -> None:
    # Its topic may have been created again, and the new replica may serve a coordinator.
    lose_the_controllers(harness)
    isolation = harness.cluster.brokers[1].manager.isolation
    fetchers = [harness.cluster.brokers[b].manager.fetchers for b in (2, 3)]
    harness.call(lambda: [f.pause(True) for f in fetchers])
    wait_until_abandoned(harness)
    replica = harness.cluster.replica(1, "t")
    told_of: list[object] = []

    def end() -> None:
        isolation._on_change = told_of.append
        replica.is_closed = True
        isolation.on_controller_answer(is_fenced=False)
        replica.is_closed = False

    harness.call(end)
    assert (told_of, replica.core.is_abandoned) == ([], False)


def test_a_check_that_is_overdue_is_made_at_once_and_an_early_one_waits() -> None:
    now = [0]
    seen: list[int] = []

    def replicas() -> list[Replica]:
        seen.append(now[0])
        return []

    async def live() -> None:
        config = BrokerConfig(broker_session_timeout_ms=1_000)
        isolation = Isolation(replicas, lambda: now[0], config, lambda replica: None)
        isolation.on_controller_answer(is_fenced=False)
        isolation.check_if_due()
        assert seen == []
        # The process was stopped for a while, and no timer has run yet.
        now[0] = 5_000
        isolation.check_if_due()
        isolation.check_if_due()
        assert seen == [5_000]
        isolation.stop()

    asyncio.run(live())
