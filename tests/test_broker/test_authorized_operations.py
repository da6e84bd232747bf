"""Authorized operations in descriptions: without an authorizer all of them, as in Kafka.

The numbers are those that a broker of Apache Kafka 4.1 without an authorizer answers.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from kvorum.broker.metadata_answers.authorized_operations import NOT_ASKED, operation_bits
from kvorum.metadata.image.acl import OPERATIONS_OF, ResourceType
from tests.polling import eventually
from tests.test_broker.group_requests import commit_values, find, versions
from tests.test_broker.harness import QUICK, Harness
from tests.test_broker.raw_client import RawClient

CONFIG = dataclasses.replace(
    QUICK,
    offsets_topic_replication_factor=1,
    offsets_topic_num_partitions=1,
    group_initial_rebalance_delay_ms=0,
)
KNOWN, MISSING, IMPOSSIBLE = "orders", "nobody's", "a b"
TOPIC_OPERATIONS = operation_bits(*OPERATIONS_OF[ResourceType.TOPIC])
CLUSTER_OPERATIONS = operation_bits(*OPERATIONS_OF[ResourceType.CLUSTER])
GROUP_OPERATIONS = operation_bits(*OPERATIONS_OF[ResourceType.GROUP])
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    harness = Harness(tmp_path_factory.mktemp("operations"), count=1, config=CONFIG)
    harness.call(lambda: harness.cluster.controller.create(KNOWN, [(1,)]))
    yield harness
    harness.close()


def codes(bits: int) -> list[int]:
    return [code for code in range(31) if bits & (1 << code)]


def test_the_sets_are_kafkas() -> None:
    assert codes(TOPIC_OPERATIONS) == [
        READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS,
    ]  # fmt: skip
    assert codes(CLUSTER_OPERATIONS) == [
        CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE,
    ]  # fmt: skip
    assert codes(GROUP_OPERATIONS) == [READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS]
    assert NOT_ASKED == -2147483648


def metadata(client: RawClient, version: int, topics: Any, **asked: bool) -> Any:
    values = {"topics": topics, "allow_auto_topic_creation": False, **asked}
    return client.call("metadata", version, values)


@pytest.mark.parametrize("version", range(8, 14))
def test_metadata_tells_them_of_topics_that_were_asked_by_name(
    client: RawClient, version: int
) -> None:
    topics = [{"name": name} for name in (KNOWN, MISSING, IMPOSSIBLE)]
    for is_asked, expected in ((True, TOPIC_OPERATIONS), (False, NOT_ASKED)):
        answer = metadata(client, version, topics, include_topic_authorized_operations=is_asked)
        assert [t.topic_authorized_operations for t in answer.topics] == [expected] * 3
    if version >= 12:
        unknown = [{"topic_id": uuid.uuid4().bytes, "name": None}]
        answer = metadata(client, version, unknown, include_topic_authorized_operations=True)
        assert answer.topics[0].topic_authorized_operations == NOT_ASKED


@pytest.mark.parametrize("version", range(8, 14))
def test_metadata_of_all_topics_tells_them_only_to_who_asks(
    client: RawClient, version: int
) -> None:
    for is_asked in (False, True, False):
        answer = metadata(client, version, None, include_topic_authorized_operations=is_asked)
        expected = TOPIC_OPERATIONS if is_asked else NOT_ASKED
        assert {t.topic_authorized_operations for t in answer.topics} == {expected}


@pytest.mark.parametrize("version", range(8, 11))
@pytest.mark.parametrize("topics", [None, []])
def test_metadata_tells_those_of_the_cluster_up_to_v10(
    client: RawClient, version: int, topics: Any
) -> None:
    for is_asked in (False, True, False):
        answer = metadata(client, version, topics, include_cluster_authorized_operations=is_asked)
        expected = CLUSTER_OPERATIONS if is_asked else NOT_ASKED
        assert answer.cluster_authorized_operations == expected


@pytest.mark.parametrize("version", versions("describe_cluster"))
def test_describe_cluster_tells_them(client: RawClient, version: int) -> None:
    for is_asked in (False, True):
        answer = client.call("describe_cluster", version, {
            "include_cluster_authorized_operations": is_asked, "endpoint_type": 1,
            "include_fenced_brokers": False,
        })  # fmt: skip
        expected = CLUSTER_OPERATIONS if is_asked else NOT_ASKED
        assert answer.cluster_authorized_operations == expected


def test_describe_topic_partitions_tells_them_always(client: RawClient) -> None:
    answer = client.call("describe_topic_partitions", 0, {
        "topics": [{"name": name} for name in (KNOWN, MISSING, IMPOSSIBLE)],
        "response_partition_limit": 10, "cursor": None,
    })  # fmt: skip
    assert [t.topic_authorized_operations for t in answer.topics] == [TOPIC_OPERATIONS] * 3


@pytest.mark.parametrize("version", [v for v in versions("describe_groups") if v >= 3])
def test_describe_groups_tells_them_of_groups_without_an_error(
    client: RawClient, version: int
) -> None:
    eventually(lambda: find(client, KNOWN).error_code == 0, "the topic of offsets is there")
    committed = client.call("offset_commit", 9, commit_values(KNOWN, {KNOWN: {0: 1}}))
    assert committed.topics[0].partitions[0].error_code == 0
    for is_asked in (False, True):
        values = {"groups": [KNOWN, MISSING], "include_authorized_operations": is_asked}
        answer = client.call("describe_groups", version, values)
        told = [group.authorized_operations for group in answer.groups]
        expected = GROUP_OPERATIONS if is_asked else NOT_ASKED
        # From v6 on a missing group is an error; before, it is a dead group.
        assert told == [expected, NOT_ASKED if version >= 6 else expected]


@pytest.mark.parametrize("version", versions("consumer_group_describe"))
def test_consumer_group_describe_tells_them_of_groups_without_an_error(
    client: RawClient, version: int
) -> None:
    group_id = f"consumers-{version}"
    eventually(lambda: find(client, group_id).error_code == 0, "the topic of offsets is there")
    joined = client.call("consumer_group_heartbeat", 1, {
        "group_id": group_id, "member_id": "a", "member_epoch": 0, "instance_id": None,
        "rack_id": None, "rebalance_timeout": 5000, "subscribed_topic_names": [KNOWN],
        "subscribed_topic_regex": None, "server_assignor": None, "topic_partitions": [],
    })  # fmt: skip
    assert joined.error_code == 0, joined
    for is_asked in (False, True):
        values = {"group_ids": [group_id, MISSING], "include_authorized_operations": is_asked}
        found, missing = client.call("consumer_group_describe", version, values).groups
        assert found.authorized_operations == (GROUP_OPERATIONS if is_asked else NOT_ASKED)
        assert missing.authorized_operations == NOT_ASKED
