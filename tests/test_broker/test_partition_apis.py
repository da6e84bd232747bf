"""The APIs about partitions, every version, over a real socket; the decisions are the real ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.metadata.image.records import BrokerRegistrationChange, PartitionChange
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    harness = Harness(tmp_path_factory.mktemp("partitions"), count=3)
    yield harness
    harness.close()


_names = iter(range(1000))


@pytest.fixture
def topic(harness: Harness) -> str:
    name = f"topic-{next(_names):03}"
    harness.call(lambda: harness.cluster.controller.create(name, [(1, 2), (2, 1)]))
    return name


@pytest.mark.parametrize("version", range(4))
def test_every_version_of_create_partitions_grows_a_topic(
    harness: Harness, client: RawClient, topic: str, version: int
) -> None:
    def grow(count: int, *, validate_only: bool) -> KioError:
        rows = [{"name": topic, "count": count, "assignments": None}]
        values = {"topics": rows, "timeout": 1000, "validate_only": validate_only}
        error: KioError = client.call("create_partitions", version, values).results[0].error_code
        return error

    assert grow(4, validate_only=True) is KioError.none
    assert grow(4, validate_only=False) is KioError.none
    assert grow(4, validate_only=False) is KioError.invalid_partitions
    image = harness.cluster.controller.image
    assert len(image.topic(topic).partitions) == 4


def test_replicas_of_new_partitions_may_be_given(
    harness: Harness, client: RawClient, topic: str
) -> None:
    rows = [{"name": topic, "count": 3, "assignments": [{"broker_ids": [3, 2]}]}]
    values = {"topics": rows, "timeout": 1000, "validate_only": False}
    assert client.call("create_partitions", 3, values).results[0].error_code is KioError.none
    assert harness.cluster.controller.image.topic(topic).partitions[2].replicas == (3, 2)


@pytest.mark.parametrize("version", range(2))
def test_every_version_moves_lists_and_cancels(client: RawClient, topic: str, version: int) -> None:
    def alter(replicas: list[int] | None, partition: int = 0) -> KioError:
        rows = [{"partition_index": partition, "replicas": replicas}]
        values: dict = {"timeout": 1000, "topics": [{"name": topic, "partitions": rows}]}
        if version >= 1:
            values["allow_replication_factor_change"] = True
        answer = client.call("alter_partition_reassignments", version, values)
        assert answer.error_code is KioError.none
        error: KioError = answer.responses[0].partitions[0].error_code
        return error

    def listed(topics: list | None) -> list:
        values = {"timeout": 1000, "topics": topics}
        answer = client.call("list_partition_reassignments", 0, values)
        return [
            (t.name, p.partition_index, p.adding_replicas, p.removing_replicas)
            for t in answer.topics
            for p in t.partitions
        ]

    assert alter(None) is KioError.no_reassignment_in_progress
    assert alter([9, 1]) is KioError.invalid_replica_assignment
    assert alter([1], partition=7) is KioError.unknown_topic_or_partition
    assert alter([3, 1]) is KioError.none
    assert listed(None) == [(topic, 0, (3,), (2,))]
    assert listed([{"name": topic, "partition_indexes": [1]}]) == []
    assert alter(None) is KioError.none
    assert listed(None) == []


def test_a_request_may_forbid_another_replication_factor(client: RawClient, topic: str) -> None:
    rows = [{"partition_index": 0, "replicas": [1, 2, 3]}]
    values = {
        "timeout": 1000,
        "topics": [{"name": topic, "partitions": rows}],
        "allow_replication_factor_change": False,
    }
    answer = client.call("alter_partition_reassignments", 1, values)
    assert answer.responses[0].partitions[0].error_code is KioError.invalid_replication_factor
    assert answer.allow_replication_factor_change is False


@pytest.mark.parametrize("version", range(3))
def test_every_version_of_elect_leaders_answers(
    client: RawClient, topic: str, version: int
) -> None:
    rows = [{"topic": topic, "partitions": [0]}]
    values: dict = {"topic_partitions": rows, "timeout": 1000}
    for election_type, expected in ((0, KioError.election_not_needed), (7, None)):
        if version >= 1:
            values["election_type"] = election_type
        elif election_type:
            continue
        answer = client.call("elect_leaders", version, values)
        partition = answer.replica_election_results[0].partition_result[0]
        assert partition.error_code is (expected or KioError.invalid_request)
        if expected is None:
            assert answer.error_code is KioError.invalid_request


def described(client: RawClient, topics: list[str], limit: int = 2000, cursor=None):
    values = {
        "topics": [{"name": name} for name in topics],
        "response_partition_limit": limit,
        "cursor": cursor,
    }
    return client.call("describe_topic_partitions", 0, values)


def test_partitions_are_described_with_who_is_eligible_and_offline(
    harness: Harness, client: RawClient, topic: str
) -> None:
    topic_id = harness.cluster.controller.image.topic_ids[topic]
    change = PartitionChange(topic_id, 0, isr=(1,), elr=(2,), last_known_elr=(2,))
    harness.call(lambda: harness.cluster.controller.commit(change))
    harness.call(lambda: harness.cluster.fence(2))
    found, missing = sorted(
        described(client, [topic, "zz-nobody"]).topics, key=lambda row: str(row.name)
    )
    assert missing.error_code is KioError.unknown_topic_or_partition
    first = found.partitions[0]
    epoch = harness.cluster.controller.image.brokers[2].broker_epoch
    back = BrokerRegistrationChange(2, epoch, is_fenced=False)
    assert (first.eligible_leader_replicas, first.last_known_elr) == ((2,), (2,))
    assert first.offline_replicas == (2,)
    harness.call(lambda: harness.cluster.controller.commit(back))


def test_a_cursor_leads_through_all_partitions_once(client: RawClient, topic: str) -> None:
    seen: list[tuple[str, int]] = []
    cursor = None
    while True:
        answer = described(client, [], limit=3, cursor=cursor)
        page = [(str(t.name), p.partition_index) for t in answer.topics for p in t.partitions]
        assert 0 < len(page) <= 3
        seen += page
        if answer.next_cursor is None:
            break
        cursor = {
            "topic_name": answer.next_cursor.topic_name,
            "partition_index": answer.next_cursor.partition_index,
        }
    assert seen == sorted(set(seen))
    whole = described(client, [])
    assert seen == [(str(t.name), p.partition_index) for t in whole.topics for p in t.partitions]
    assert whole.next_cursor is None


@pytest.mark.parametrize(("at", "index"), [("zz-other", 0), (None, -1)])
def test_a_cursor_that_no_answer_gave_is_refused_for_each_named_topic(
    client: RawClient, topic: str, at: str | None, index: int
) -> None:
    cursor = {"topic_name": at or topic, "partition_index": index}
    answer = described(client, [topic, "zz-nobody"], cursor=cursor)
    assert [(row.name, row.error_code, row.partitions) for row in answer.topics] == [
        (topic, KioError.invalid_request, ()), ("zz-nobody", KioError.invalid_request, ()),
    ]  # fmt: skip
    assert answer.next_cursor is None
    # Without names, a cursor may stand at a topic that was deleted meanwhile.
    everything = described(client, [], cursor={"topic_name": "a", "partition_index": 0})
    assert topic in [row.name for row in everything.topics]


def test_a_replica_moved_away_is_let_go_and_answers_not_leader(
    harness: Harness, topic: str
) -> None:
    controller = harness.cluster.controller
    topic_id = controller.image.topic_ids[topic]
    away = PartitionChange(topic_id, 0, replicas=(2, 3), isr=(2, 3), leader=2)
    harness.call(lambda: controller.commit(away))
    manager = harness.cluster.brokers[1].manager
    assert manager.registry.find(topic_id, 0) is None
    assert manager.registry.missing_error(topic, topic_id, 0).name == "NOT_LEADER_OR_FOLLOWER"
