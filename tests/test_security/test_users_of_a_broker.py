"""The reach of a broker's user beyond their ACLs: sessions, producers, groups and topics
of others."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvorum.broker.metadata_answers.topic_names import INTERNAL_TOPICS
from kvorum.launch.cluster.add_scram import parse_add_scram
from kvorum.metadata.access import audit
from kvorum.metadata.access.audit import AuditLog
from kvorum.metadata.access.authorizer import CACHED_NAME_CHARACTERS_MAX, Authorizer
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.runtime.errors import ErrorCode
from tests.polling import eventually
from tests.test_access.asking import CONFIG, acl, make_group_and_transaction
from tests.test_access.requests_of_apis import INIT, REQUESTS, TOPIC, TRANSACTIONAL_ID
from tests.test_broker.raw_client import (
    RawClient,
    batch,
    fetch_partition,
    fetch_values,
    produce_values,
)
from tests.test_security.attackers import TlsClient
from tests.test_security.logins import PASSWORDS, Door

SECRET = "secret"
FINAL_EPOCH = -1


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    door = Door(tmp_path, image=image_with_carol, config=CONFIG)
    for name in (TOPIC, SECRET):
        door.harness.call(lambda name=name: door.harness.cluster.controller.create(name, [(1,)]))
    yield door
    door.server.services.authorizer = None
    door.close()


credentials: dict[str, ClusterImage] = {}


def image_with_carol() -> ClusterImage:
    """An image with carol's credential, or the image that the test has put into `credentials`."""
    if "now" not in credentials:
        delta = Delta(EMPTY_IMAGE)
        text = "SCRAM-SHA-512=[name=carol,password=secret]"
        delta.replay_all(parse_add_scram([text], ask=str, rng=random.Random(1)))
        credentials["now"] = delta.apply(end_offset=1, epoch=1)
    return credentials["now"]


def logged_in(door: Door, user: str) -> TlsClient:
    client = TlsClient(door.tls)
    assert client.log_in(user, PASSWORDS[user], "PLAIN") == 0
    return client


def give(door: Door, *acls: Any) -> None:
    """Give the broker an authorizer with these ACLs alone."""
    authorizer = Authorizer(super_users=["User:root"])
    authorizer.replace(list(acls))
    door.server.services.authorizer = authorizer


def everything(user: str) -> list[Any]:
    """ALL on every topic, group and transactional id, and nothing on the cluster."""
    return [
        acl(AclOperation.ALL, "*", kind, principal=f"User:{user}")
        for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    ]


def produced(client: RawClient, topic: str, records: bytes, **more: Any) -> int:
    answer = client.call("produce", 9, {**produce_values(topic, records), **more})
    return int(answer.responses[0].partition_responses[0].error_code)


def test_a_session_of_another_user_can_be_neither_read_nor_ended(door: Door) -> None:
    """A session id is a number of 31 bits, which can be guessed."""
    give(door, *everything("alice"), *everything("bob"))
    alice, bob = logged_in(door, "alice"), logged_in(door, "bob")
    assert produced(alice, SECRET, batch(1)) == 0
    opened = alice.call("fetch", 12, fetch_values(SECRET, 0, session=(0, 0)))
    session = opened.session_id
    assert session
    for epoch in (1, 0, FINAL_EPOCH):
        answer = bob.call("fetch", 12, fetch_values(TOPIC, 0, session=(session, epoch)))
        if epoch == 1:
            assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert all(response.topic == TOPIC for response in answer.responses)
    assert produced(alice, SECRET, batch(1)) == 0
    again = alice.call("fetch", 12, fetch_values(SECRET, 0, session=(session, 1), partitions=[]))
    assert again.error_code == 0 and again.responses[0].partitions[0].records
    for client in (alice, bob):
        client.close()


def test_an_id_in_place_of_a_name_opens_no_topic(door: Door) -> None:
    give(door, *(a for a in everything("bob") if a.resource_type != ResourceType.TOPIC))
    topic_id = door.harness.cluster.controller.image.topic_ids[SECRET]
    bob = logged_in(door, "bob")
    values = {**fetch_values(SECRET, 0), "topics": [
        {"topic_id": topic_id, "partitions": [fetch_partition(0)]},
    ]}  # fmt: skip
    del values["replica_id"]
    values["replica_state"] = {"replica_id": -1, "replica_epoch": -1}
    (partition,) = bob.call("fetch", 15, values).responses[0].partitions
    assert partition.error_code != 0 and not partition.records
    data = [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": batch(1)}]}]
    answer = bob.call("produce", 13, {**produce_values(SECRET, batch(1)), "topic_data": data})
    assert answer.responses[0].partition_responses[0].error_code != 0
    assert door.harness.cluster.replica(1, SECRET).core.end_offset == 0
    bob.close()


def with_coordinators(door: Door) -> None:
    client = RawClient(door.open)
    make_group_and_transaction(client)
    client.close()


def test_who_may_do_everything_with_topics_writes_to_no_internal_one(door: Door) -> None:
    """As in Kafka, reading internal topics takes READ, and writing to them is refused to all
    clients."""
    with_coordinators(door)
    give(door, *everything("alice"))
    alice = logged_in(door, "alice")
    image = door.harness.cluster.controller.image
    names = [name for name in INTERNAL_TOPICS if image.topic(name) is not None]
    assert {"__consumer_offsets", "__transaction_state"} <= set(names)
    for name in names:
        before = door.harness.cluster.replica(1, name).core.end_offset
        assert produced(alice, name, batch(1)) == ErrorCode.INVALID_TOPIC_EXCEPTION
        one = {"partition_index": 0, "offset": before}
        topics = [{"name": name, "partitions": [one]}]
        answer = alice.call("delete_records", 2, {"timeout": 1_000, "topics": topics})
        assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        read = alice.call("fetch", 12, fetch_values(name, 0)).responses[0].partitions[0]
        assert read.error_code == 0 and read.records
        assert door.harness.cluster.replica(1, name).core.end_offset == before
    alice.close()


def test_another_producers_id_under_ones_own_transactional_id_is_refused(door: Door) -> None:
    """The transaction of `payments` is open. Mallory has WRITE on a transactional id of her own,
    but may not use it with the producer id of `payments`."""
    with_coordinators(door)
    client = RawClient(door.open)
    listed = client.call("list_transactions", 0, {"state_filters": [], "producer_id_filters": []})
    (victim,) = listed.transaction_states
    assert victim.transactional_id == TRANSACTIONAL_ID
    client.close()
    mine = "mallory"
    give(
        door,
        acl(AclOperation.WRITE, mine, ResourceType.TRANSACTIONAL_ID, principal="User:bob"),
        acl(AclOperation.WRITE, TOPIC, principal="User:bob"),
        acl(AclOperation.READ, "*", ResourceType.GROUP, principal="User:bob"),
    )
    bob = logged_in(door, "bob")
    own = eventually(
        lambda: _initialised(bob, {**INIT, "transactional_id": mine}), "bob has his producer"
    )
    producer = {"producer_id": victim.producer_id, "producer_epoch": own.producer_epoch}
    for committed in (True, False):
        values = {"transactional_id": mine, **producer, "committed": committed}
        answer = bob.call("end_txn", 3, values)
        assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        named = {**values, "transactional_id": TRANSACTIONAL_ID}
        assert bob.call("end_txn", 3, named).error_code == (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
    values = {"transactional_id": mine, **producer, "group_id": "readers"}
    answer = bob.call("add_offsets_to_txn", 3, values)
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    records = batch(1, **producer, base_sequence=0, is_transactional=True)
    end = door.harness.cluster.replica(1, TOPIC).core.end_offset
    assert produced(bob, TOPIC, records, transactional_id=mine) != 0
    # A marker is what commits; only brokers write them.
    assert produced(bob, TOPIC, batch(1, **producer, is_transactional=True, is_control=True)) != 0
    assert door.harness.cluster.replica(1, TOPIC).core.end_offset == end
    bob.close()
    door.server.services.authorizer = None
    client = RawClient(door.open)
    (still,) = [
        one
        for one in client.call(
            "list_transactions", 0, {"state_filters": ["Ongoing"], "producer_id_filters": []}
        ).transaction_states
        if one.transactional_id == TRANSACTIONAL_ID
    ]
    assert still.producer_id == victim.producer_id
    client.close()


def _initialised(client: RawClient, values: dict[str, Any]) -> Any:
    answer = client.call("init_producer_id", 4, values)
    return answer if answer.error_code == 0 else None


def test_a_member_of_another_group_can_be_neither_joined_nor_sent_away(door: Door) -> None:
    with_coordinators(door)
    give(door, acl(AclOperation.READ, "mine", ResourceType.GROUP, principal="User:bob"))
    bob = logged_in(door, "bob")
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    for name in ("join_group", "heartbeat", "leave_group", "sync_group", "offset_commit"):
        version, values = REQUESTS[name]
        answer = bob.call(name, version, values)
        if name == "offset_commit":
            assert answer.topics[0].partitions[0].error_code == refused
        else:
            assert answer.error_code == refused, name
    bob.close()


def test_a_deleted_user_keeps_its_connection_and_gets_no_other(door: Door) -> None:
    """As in Kafka, until the client must authenticate again; its ACLs count at once."""
    credentials.clear()
    give(door, *everything("carol"))
    carol = TlsClient(door.tls)
    assert carol.log_in("carol", "secret") == 0
    credentials["now"] = EMPTY_IMAGE
    assert produced(carol, TOPIC, batch(1)) == 0
    again = TlsClient(door.tls)
    assert again.log_in("carol", "secret") == ErrorCode.SASL_AUTHENTICATION_FAILED
    give(door)
    assert produced(carol, TOPIC, batch(1)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for client in (carol, again):
        client.close()
    credentials.clear()


def test_a_user_who_is_refused_ten_thousand_times_fills_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_ms = 5_000
    log = AuditLog(now_ms=lambda: now_ms)

    def refuse(user: str, count: int) -> None:
        for number in range(count):
            log.note_access(
                user, "10.0.0.1", AclOperation.READ, ResourceType.TOPIC, f"t{number}",
                is_allowed=False,
            )  # fmt: skip

    with caplog.at_level(logging.INFO, logger=audit.LOGGER_NAME):
        refuse("mallory", 10_000)
        refuse("alice", 1)
        now_ms += 1_000
        refuse("bob", 1)
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert len(lines) == audit.REFUSALS_PER_SECOND_MAX + 3
    assert [line["principal"] for line in lines[-3:]] == ["User:alice", "User:mallory", "User:bob"]
    assert lines[-2] == {
        "event": "more refusals", "principal": "User:mallory", "host": "10.0.0.1",
        "count": 10_000 - audit.REFUSALS_PER_SECOND_MAX,
    }  # fmt: skip


def test_answers_about_long_names_are_not_remembered() -> None:
    """100,000 answers are; with names of 32 KiB they would be three gigabytes."""
    authorizer = Authorizer()
    for length, kept in ((CACHED_NAME_CHARACTERS_MAX, 1), (CACHED_NAME_CHARACTERS_MAX + 1, 1)):
        name = "n" * length
        question = ("bob", "10.0.0.1", AclOperation.READ, ResourceType.TOPIC, name)
        assert not authorizer.is_allowed(*question)
        assert len(authorizer._answers) == kept
