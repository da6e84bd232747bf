"""The APIs of groups over the wire: every version, exact codes, no bad row spoils another."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvorum.broker.coordinator.keys import partition_of
from kvorum.broker.metadata_answers.topic_names import OFFSETS_TOPIC
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.kio_codec import uuid_bytes
from tests.polling import eventually
from tests.test_broker.group_requests import (
    commit_values,
    fetch,
    find,
    group_led_by,
    join,
    join_values,
    offsets_of,
    sync_values,
    versions,
)
from tests.test_broker.harness import QUICK, Harness
from tests.test_broker.raw_client import RawClient

CONFIG = dataclasses.replace(
    QUICK,
    offsets_topic_replication_factor=2,
    offsets_topic_num_partitions=4,
    group_initial_rebalance_delay_ms=0,
    group_min_session_timeout_ms=1_000,
)
PARTITIONS = 2


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    harness = Harness(tmp_path_factory.mktemp("groups"), count=2, config=CONFIG)
    controller = harness.cluster.controller
    harness.call(lambda: controller.create("orders", [(1, 2)] * PARTITIONS))
    harness.call(lambda: controller.create("payments", [(1, 2)]))
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
    """A group of this test, coordinated by the broker that `client` talks to."""
    return group_led_by(client, 1, request.node.name)


# --- membership ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions("join_group"))
def test_a_life_of_a_member_in_every_version(client, group_id, version):
    member_id, generation_id = join(client, group_id, version)
    answer = client.call(
        "sync_group", min(version, 5), sync_values(group_id, member_id, generation_id)
    )
    assert (answer.error_code, answer.assignment) == (0, b"all")
    beat = {
        "group_id": group_id,
        "generation_id": generation_id,
        "member_id": member_id,
        "group_instance_id": None,
    }
    assert client.call("heartbeat", min(version, 4), beat).error_code == 0
    leaving = {"member_id": member_id, "group_instance_id": None, "reason": None}
    values = {"group_id": group_id, "member_id": member_id, "members": [leaving]}
    answer = client.call("leave_group", min(version, 5), values)
    assert answer.error_code == 0
    assert client.call("heartbeat", min(version, 4), beat).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions("leave_group"))
def test_leaving_as_nobody_is_an_error_of_the_member_or_before_v3_of_the_whole(
    client, group_id, version
):
    leaving = {"member_id": "nobody", "group_instance_id": None, "reason": None}
    values = {"group_id": group_id, "member_id": "nobody", "members": [leaving]}
    answer = client.call("leave_group", version, values)
    if version >= 3:
        assert answer.error_code == 0
        assert answer.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    else:
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_members_calls_need_a_group_id(client):
    beat = {"group_id": "", "generation_id": 1, "member_id": "m", "group_instance_id": None}
    assert client.call("heartbeat", 4, beat).error_code == ErrorCode.INVALID_GROUP_ID
    answer = client.call("join_group", 9, join_values(""))
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID
    assert answer.protocol_name is None
    answer = client.call("sync_group", 5, sync_values("", "m", 1))
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID


def test_a_group_id_that_the_log_cannot_hold_is_refused(client):
    long = "ä" * 20_000
    answer = client.call("join_group", 9, join_values(long))
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID
    answer = client.call("offset_commit", 9, commit_values(long, {"orders": {0: 1}}))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_GROUP_ID


def test_sync_v5_must_name_the_protocol(client, group_id):
    member_id, generation_id = join(client, group_id)
    values = sync_values(group_id, member_id, generation_id, protocol_type=None)
    answer = client.call("sync_group", 5, values)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_session_timeouts_are_bounded_by_the_brokers_properties(client, group_id):
    answer = client.call("join_group", 9, join_values(group_id, session_timeout=999))
    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_another_brokers_group_is_not_coordinated_here(client):
    other = group_led_by(client, 2, "other")
    answer = client.call("join_group", 9, join_values(other))
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    answer = client.call("offset_commit", 9, commit_values(other, {"orders": {0: 1, 9: 1}}))
    assert [row.error_code for row in answer.topics[0].partitions] == [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert fetch(client, other, topics=None).error_code == ErrorCode.NOT_COORDINATOR
    answer = fetch(client, other, 1, [("orders", [0])])
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert fetch(client, other, 2, [("orders", [0])]).error_code == ErrorCode.NOT_COORDINATOR


# --- offsets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions("offset_commit")[:-1])
def test_offsets_are_committed_in_every_version(client, group_id, version):
    answer = client.call(
        "offset_commit", version, commit_values(group_id, {"orders": {0: 7, 9: 8}, "no": {0: 1}})
    )
    errors = [[row.error_code for row in topic.partitions] for topic in answer.topics]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == [[0, unknown], [unknown]]
    found = fetch(client, group_id, topics=None)
    assert offsets_of(found) == {("orders", 0): 7}
    row = found.topics[0].partitions[0]
    assert row.metadata == "m"
    assert row.committed_leader_epoch == (3 if version >= 6 else -1)


def test_the_record_of_an_offset_has_the_topics_id(client, group_id, harness):
    client.call("offset_commit", 9, commit_values(group_id, {"orders": {0: 7}}))
    shards = harness.cluster.brokers[1].server.services.groups.active_shards()
    (book,) = (s.offsets.books[group_id] for s in shards if group_id in s.offsets.books)
    orders = harness.cluster.controller.image.topic_ids["orders"]
    assert book.get("orders", 0).topic_id == orders


@pytest.mark.parametrize("version", versions("offset_fetch")[:-1])
def test_offsets_are_fetched_in_every_version(client, group_id, version):
    client.call("offset_commit", 9, commit_values(group_id, {"orders": {0: 7}}))
    answer = fetch(client, group_id, version, [("orders", [0, 1]), ("no", [0])])
    assert offsets_of(answer) == {("orders", 0): 7, ("orders", 1): -1, ("no", 0): -1}
    if version >= 2:
        assert answer.error_code == 0
        assert offsets_of(fetch(client, group_id, version, None)) == {("orders", 0): 7}


def test_offsets_are_committed_and_fetched_by_topic_ids(client, group_id, harness):
    orders = harness.cluster.controller.image.topic_ids["orders"]
    strange = bytes(range(16))
    asked = {orders: (0, 9), strange: (0, 1), bytes(16): (0,)}
    values = commit_values(group_id, {}) | {
        "topics": [
            {
                "topic_id": topic_id,
                "partitions": [
                    {"partition_index": p, "committed_offset": 7, "committed_metadata": "m"}
                    for p in partitions
                ],
            }
            for topic_id, partitions in asked.items()
        ]
    }
    answer = client.call("offset_commit", 10, values)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID
    assert [uuid_bytes(topic.topic_id) for topic in answer.topics] == list(asked)
    errors = [[row.error_code for row in topic.partitions] for topic in answer.topics]
    assert errors == [[0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], [unknown, unknown], [unknown]]
    group = {"group_id": group_id, "member_id": None, "member_epoch": -1}

    def fetched(topics: Any) -> dict[tuple[bytes, int], tuple[int, int]]:
        groups = [{**group, "topics": topics}]
        (found,) = client.call(
            "offset_fetch", 10, {"groups": groups, "require_stable": False}
        ).groups
        assert found.error_code == 0
        return {
            (uuid_bytes(topic.topic_id), row.partition_index): (
                row.committed_offset,
                row.error_code,
            )
            for topic in found.topics
            for row in topic.partitions
        }

    assert fetched(None) == {(orders, 0): (7, 0)}
    rows = [{"topic_id": t, "partition_indexes": p} for t, p in asked.items()]
    assert fetched(rows) == {
        (orders, 0): (7, 0),
        (orders, 9): (-1, 0),
        (strange, 0): (-1, unknown),
        (strange, 1): (-1, unknown),
        (bytes(16), 0): (-1, unknown),
    }


def test_many_groups_are_fetched_at_once_each_with_its_own_outcome(client, group_id):
    client.call("offset_commit", 9, commit_values(group_id, {"orders": {0: 7}}))
    other = group_led_by(client, 2, "many")
    groups = [
        {"group_id": name, "member_id": None, "member_epoch": -1, "topics": None}
        for name in (group_id, other, "x" * 40_000)
    ]
    answer = client.call("offset_fetch", 9, {"groups": groups, "require_stable": False})
    assert [group.error_code for group in answer.groups] == [
        0,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.INVALID_GROUP_ID,
    ]
    assert offsets_of(answer.groups[0]) == {("orders", 0): 7}


@pytest.mark.parametrize(
    ("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_committing_as_a_member_of_no_group_is_refused(client, group_id, version, error):
    values = commit_values(
        group_id, {"orders": {0: 1}}, generation_id_or_member_epoch=3, member_id="m"
    )
    answer = client.call("offset_commit", version, values)
    assert answer.topics[0].partitions[0].error_code == error


def test_metadata_is_bounded_for_each_offset(client, group_id):
    values = commit_values(group_id, {"orders": {0: 1, 1: 2}})
    values["topics"][0]["partitions"][1]["committed_metadata"] = "x" * 4097
    rows = client.call("offset_commit", 9, values).topics[0].partitions
    assert [row.error_code for row in rows] == [0, ErrorCode.OFFSET_METADATA_TOO_LARGE]


def delete_values(group_id: str, *rows: tuple[str, list[int]]) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "topics": [
            {"name": topic, "partitions": [{"partition_index": p} for p in partitions]}
            for topic, partitions in rows
        ],
    }


def test_offsets_are_deleted_unless_a_member_subscribes_to_the_topic(client, group_id):
    client.call("offset_commit", 9, commit_values(group_id, {"orders": {0: 7}, "payments": {0: 8}}))
    member_id, generation_id = join(client, group_id)
    client.call("sync_group", 5, sync_values(group_id, member_id, generation_id))
    values = delete_values(group_id, ("orders", [0, 5]), ("payments", [0]), ("no", [0]))
    answer = client.call("offset_delete", 0, values)
    assert answer.error_code == 0
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [[row.error_code for row in topic.partitions] for topic in answer.topics] == [
        [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, unknown],
        [0],
        [unknown],
    ]
    assert offsets_of(fetch(client, group_id, topics=None)) == {("orders", 0): 7}


def test_offsets_of_a_group_that_is_not_there_cannot_be_deleted(client, group_id):
    answer = client.call("offset_delete", 0, delete_values(group_id, ("orders", [0])))
    assert (answer.error_code, answer.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, ())


# --- administration ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions("describe_groups"))
def test_groups_are_described_in_every_version(client, group_id, version):
    member_id, generation_id = join(client, group_id)
    client.call("sync_group", 5, sync_values(group_id, member_id, generation_id))
    values = {"groups": [group_id, "nobody's", group_id], "include_authorized_operations": True}
    found, missing = client.call("describe_groups", version, values).groups
    assert (found.error_code, found.group_state, found.protocol_data) == (0, "Stable", "range")
    (member,) = found.members
    assert (member.member_id, member.client_id) == (member_id, "raw")
    assert (member.client_host, member.member_assignment) == ("/127.0.0.1", b"all")
    is_here = find(client, "nobody's").node_id == 1
    if is_here:
        assert missing.group_state == "Dead"
        expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0
        assert missing.error_code == expected
    else:
        assert missing.error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", versions("list_groups"))
def test_groups_are_listed_in_every_version(client, group_id, version):
    client.call("offset_commit", 9, commit_values(group_id, {"orders": {0: 7}}))
    values = {"states_filter": ["empty"], "types_filter": ["Classic"]}
    answer = client.call("list_groups", version, values)
    assert answer.error_code == 0
    row = next(row for row in answer.groups if row.group_id == group_id)
    assert row.protocol_type == ""
    if version >= 4:
        assert row.group_state == "Empty"
        for state, is_listed in ((" Empty ", True), ("Stable", False), ("Emp ty", False)):
            values = {"states_filter": [state], "types_filter": []}
            listed = client.call("list_groups", version, values).groups
            assert (group_id in [row.group_id for row in listed]) == is_listed
    if version >= 5:
        assert row.group_type == "classic"


@pytest.mark.parametrize("version", versions("delete_groups"))
def test_groups_are_deleted_each_with_its_own_outcome(client, group_id, version):
    client.call("offset_commit", 9, commit_values(group_id, {"orders": {0: 7}}))
    busy = group_led_by(client, 1, f"busy-{version}")
    join(client, busy)
    missing = group_led_by(client, 1, f"missing-{version}")
    other = group_led_by(client, 2, f"other-{version}")
    values = {"groups_names": [group_id, busy, missing, other]}
    rows = client.call("delete_groups", version, values).results
    assert [row.error_code for row in rows] == [
        0,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.NOT_COORDINATOR,
    ]
    assert offsets_of(fetch(client, group_id, topics=None)) == {}


# --- fail-over -----------------------------------------------------------------------------------


def test_what_was_committed_is_there_under_the_next_coordinator(
    tmp_path: Path,
) -> None:
    harness = Harness(tmp_path, count=2, config=CONFIG)
    try:
        controller = harness.cluster.controller
        harness.call(lambda: controller.create("orders", [(1, 2)] * PARTITIONS))
        client = RawClient(harness.cluster.brokers[1].port)
        eventually(lambda: find(client, "g").error_code == 0, "there is a coordinator")
        name = group_led_by(client, 1, "moved")
        member_id, generation_id = join(client, name)
        client.call("sync_group", 5, sync_values(name, member_id, generation_id))
        values = commit_values(
            name, {"orders": {0: 7}},
            generation_id_or_member_epoch=generation_id, member_id=member_id,
        )  # fmt: skip
        eventually(
            lambda: client.call("offset_commit", 9, values).topics[0].partitions[0].error_code == 0,
            "the commit is replicated",
        )
        image = controller.image
        topic = image.topic(OFFSETS_TOPIC)
        assert topic is not None
        partition = partition_of(name, len(topic.partitions))
        harness.call(lambda: controller.lead(topic.topic_id, partition, 2, (1, 2)))
        client.close()
        client = RawClient(harness.cluster.brokers[2].port)
        beat = {
            "group_id": name,
            "generation_id": generation_id,
            "member_id": member_id,
            "group_instance_id": None,
        }
        eventually(
            lambda: client.call("heartbeat", 4, beat).error_code == 0, "the member is known there"
        )
        assert offsets_of(fetch(client, name, topics=None)) == {("orders", 0): 7}
        client.close()
    finally:
        harness.close()
