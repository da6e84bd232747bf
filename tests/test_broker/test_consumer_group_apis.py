"""The APIs of the consumer protocol (KIP-848) over the wire: every version, exact codes."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvorum.metadata.image.features import GROUP_VERSION
from kvorum.metadata.image.records import FeatureLevel
from kvorum.runtime.errors import ErrorCode
from tests.polling import eventually
from tests.test_broker.group_requests import (
    commit_values,
    find,
    group_led_by,
    join_values,
    offsets_of,
    versions,
)
from tests.test_broker.harness import QUICK, Harness
from tests.test_broker.raw_client import RawClient

CONFIG = dataclasses.replace(
    QUICK,
    offsets_topic_replication_factor=2,
    offsets_topic_num_partitions=4,
    group_initial_rebalance_delay_ms=0,
    group_consumer_heartbeat_interval_ms=700,
    group_consumer_max_size=2,
)


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    harness = Harness(tmp_path_factory.mktemp("consumer-groups"), count=2, config=CONFIG)
    controller = harness.cluster.controller
    harness.call(lambda: controller.create("orders", [(1, 2)] * 3))
    yield harness
    harness.close()


@pytest.fixture
def client(harness: Harness) -> Iterator[RawClient]:
    client = RawClient(harness.cluster.brokers[1].port)
    eventually(
        lambda: find(client, "warm-up").error_code == 0 and find(client, "x").error_code == 0,
        "the topic of offsets is there",
    )
    yield client
    client.close()


@pytest.fixture
def group_id(client: RawClient, request: pytest.FixtureRequest) -> str:
    return group_led_by(client, 1, request.node.name)


def beat(
    client: RawClient, group_id: str, member_id: str, epoch: int, version: int = 1, **more: Any
) -> Any:
    first: dict[str, Any] = {}
    if epoch == 0:
        first = {
            "rebalance_timeout": 10_000,
            "subscribed_topic_names": ["orders"],
            "topic_partitions": [],
        }
    values = {
        "group_id": group_id,
        "member_id": member_id,
        "member_epoch": epoch,
        "topic_partitions": None,
        **first,
        **more,
    }
    return client.call("consumer_group_heartbeat", version, values)


def topic_id(harness: Harness) -> uuid.UUID:
    topic = harness.cluster.controller.image.topic("orders")
    assert topic is not None
    return uuid.UUID(bytes=topic.topic_id)


@pytest.mark.parametrize("version", versions("consumer_group_heartbeat"))
def test_a_life_of_a_member_in_every_version(harness, client, group_id, version):
    answer = beat(client, group_id, "" if version == 0 else "me", 0, version)
    assert (answer.error_code, answer.error_message, answer.member_epoch) == (0, None, 1)
    assert answer.heartbeat_interval.total_seconds() == 0.7
    assert answer.member_id == "me" if version else len(answer.member_id) == 36
    (topic,) = answer.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (topic_id(harness), (0, 1, 2))
    again = beat(client, group_id, answer.member_id, 1, version)
    assert (again.error_code, again.assignment) == (0, None)
    owned = [{"topic_id": topic_id(harness).bytes, "partitions": [0, 1, 2]}]
    assert (
        beat(client, group_id, answer.member_id, 1, version, topic_partitions=owned).error_code == 0
    )
    assert beat(client, group_id, answer.member_id, -1, version).member_epoch == -1
    gone = beat(client, group_id, answer.member_id, 1, version)
    assert gone.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert answer.member_id in gone.error_message


def test_refusals_have_kafkas_codes(client, group_id):
    assert beat(client, "", "a", 0).error_code == ErrorCode.INVALID_REQUEST
    assert beat(client, group_id, "", 0).error_code == ErrorCode.INVALID_REQUEST
    assert beat(client, group_id, "a", 3).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    wrong = beat(client, group_id, "a", 0, server_assignor="sticky")
    assert wrong.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    wrong = beat(client, group_id, "a", 0, subscribed_topic_regex="(")
    assert wrong.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert beat(client, group_id, "a", 0, instance_id="one").error_code == 0
    wrong = beat(client, group_id, "b", 0, instance_id="one")
    assert wrong.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert (
        beat(client, group_id, "a", 9, instance_id="one").error_code
        == ErrorCode.FENCED_MEMBER_EPOCH
    )
    assert beat(client, group_id, "b", 0).error_code == 0
    assert beat(client, group_id, "c", 0).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    answer = client.call("join_group", 9, join_values(group_id))
    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize("version", versions("consumer_group_describe"))
def test_groups_are_described_in_every_version(harness, client, group_id, version):
    beat(client, group_id, "a", 0, instance_id="one", rack_id="r1")
    values = {"group_ids": [group_id, "", group_id], "include_authorized_operations": True}
    found, empty = client.call("consumer_group_describe", version, values).groups
    assert empty.error_code == ErrorCode.INVALID_GROUP_ID
    assert (found.error_code, found.group_state, found.assignor_name) == (0, "Stable", "uniform")
    assert (found.group_epoch, found.assignment_epoch) == (1, 1)
    (member,) = found.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("a", "one", "r1")
    assert (member.client_id, member.client_host) == ("raw", "/127.0.0.1")
    assert (member.member_epoch, member.subscribed_topic_names) == (1, ("orders",))
    for assignment in (member.assignment, member.target_assignment):
        (topic,) = assignment.topic_partitions
        assert (topic.topic_name, topic.topic_id) == ("orders", topic_id(harness))
        assert topic.partitions == (0, 1, 2)
    if version >= 1:
        assert member.member_type == 1
    older = client.call(
        "describe_groups", 6, {"groups": [group_id], "include_authorized_operations": False}
    )
    assert older.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    values = {"states_filter": [], "types_filter": ["consumer"]}
    rows = {row.group_id: row for row in client.call("list_groups", 5, values).groups}
    assert (rows[group_id].group_type, rows[group_id].group_state) == ("consumer", "Stable")


def test_a_classic_group_is_no_consumer_group(client, group_id):
    client.call("offset_commit", 9, commit_values(group_id, {"orders": {0: 7}}))
    values = {"group_ids": [group_id], "include_authorized_operations": False}
    (found,) = client.call("consumer_group_describe", 1, values).groups
    assert found.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert found.error_message == f"Group {group_id} is not a consumer group."
    missing = group_led_by(client, 1, "missing")
    values = {"group_ids": [missing], "include_authorized_operations": False}
    (found,) = client.call("consumer_group_describe", 1, values).groups
    assert found.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert found.error_message == f"Group {missing} not found."


def test_members_of_both_protocols_in_one_group(client, group_id):
    beat(client, group_id, "a", 0)
    asked = client.call("join_group", 9, join_values(group_id))
    assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = client.call("join_group", 9, join_values(group_id, asked.member_id))
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 2, "")
    assert (joined.protocol_type, joined.protocol_name, joined.members) == ("consumer", "range", ())
    me = {"group_id": group_id, "member_id": joined.member_id, "generation_id": 2}
    me["group_instance_id"] = None
    protocol = {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}
    synced = client.call("sync_group", 5, me | protocol)
    assert (synced.error_code, synced.protocol_name) == (0, "range")
    # The assignment is empty so far: a version, no topics, no user data.
    assert synced.assignment == b"\0\0" + bytes(4) + b"\xff" * 4
    assert beat(client, group_id, "a", 1, topic_partitions=[]).member_epoch == 2
    assert client.call("heartbeat", 4, me).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    values = {"group_ids": [group_id], "include_authorized_operations": False}
    (found,) = client.call("consumer_group_describe", 1, values).groups
    assert {m.member_id: m.member_type for m in found.members} == {"a": 1, joined.member_id: 0}
    beat(client, group_id, "a", -1)
    (found,) = client.call("consumer_group_describe", 1, values).groups
    assert found.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert client.call("heartbeat", 4, me).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_members_commit_and_fetch_in_their_epoch(client, group_id):
    beat(client, group_id, "a", 0)

    def commit(epoch: int, version: int = 9) -> Any:
        values = commit_values(
            group_id, {"orders": {0: 7}}, generation_id_or_member_epoch=epoch, member_id="a"
        )
        return client.call("offset_commit", version, values).topics[0].partitions[0].error_code

    def fetch(epoch: int, member_id: str = "a") -> Any:
        topics = [{"name": "orders", "partition_indexes": [0]}]
        group = {
            "group_id": group_id,
            "member_id": member_id,
            "member_epoch": epoch,
            "topics": topics,
        }
        values = {"groups": [group], "require_stable": True}
        return client.call("offset_fetch", 9, values).groups[0]

    assert commit(1) == 0
    assert commit(2) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(2, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert offsets_of(fetch(1)) == {("orders", 0): 7}
    assert fetch(2).error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch(1, "b").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_without_group_version_there_are_no_such_groups(tmp_path: Path) -> None:
    harness = Harness(tmp_path, count=2, config=CONFIG)
    try:
        controller = harness.cluster.controller
        harness.call(lambda: controller.commit(FeatureLevel(GROUP_VERSION, 0)))
        client = RawClient(harness.cluster.brokers[1].port)
        eventually(
            lambda: beat(client, "g", "a", 0).error_code == ErrorCode.UNSUPPORTED_VERSION,
            "the level is known",
        )
        client.close()
    finally:
        harness.close()
