"""Answers to clients that may see a part of the cluster only: fetch sessions, lists, auto-creation,
the audit log."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kvorum.metadata.access.authorizer import Authorizer
from kvorum.metadata.access.nodes import NodePrincipals
from kvorum.metadata.image.acl import (
    CLUSTER_NAME,
    AclOperation,
    ResourceType,
)
from kvorum.runtime.errors import ErrorCode
from tests.polling import eventually
from tests.test_access.asking import acl
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import (
    RawClient,
    batch,
    fetch_partition,
    fetch_values,
    produce_values,
)

OPEN, SECRET = "open", "secret"


@pytest.fixture
def harness(tmp_path: Any) -> Iterator[Harness]:
    harness = Harness(tmp_path, count=1)
    for name in (OPEN, SECRET):
        harness.call(lambda name=name: harness.cluster.controller.create(name, [(1,)]))
    yield harness
    harness.close()


@pytest.fixture
def authorizer(harness: Harness) -> Authorizer:
    """Of the broker; the tests give it ACLs by hand."""
    authorizer = Authorizer()
    harness.cluster.brokers[1].server.services.authorizer = authorizer
    return authorizer


@pytest.fixture
def client(harness: Harness) -> Iterator[RawClient]:
    client = RawClient(harness.cluster.brokers[1].port)
    yield client
    client.close()


def change(harness: Harness, authorizer: Authorizer, **acls: Any) -> None:
    harness.call(lambda: authorizer.change(**acls))


def partition_of(answer: Any) -> Any:
    return answer.responses[0].partitions[0]


def test_a_session_is_checked_again_at_each_fetch(harness, authorizer, client):
    reading, writing = acl(AclOperation.READ, OPEN), acl(AclOperation.WRITE, OPEN)
    change(harness, authorizer, added=[reading, writing])
    client.call("produce", 9, produce_values(OPEN, batch(1)))
    opened = client.call("fetch", 12, fetch_values(OPEN, 0, session=(0, 0)))
    assert partition_of(opened).records
    session = opened.session_id
    change(harness, authorizer, removed=[reading])
    client.call("produce", 9, produce_values(OPEN, batch(1)))
    refused = client.call("fetch", 12, fetch_values(OPEN, 0, session=(session, 1), partitions=[]))
    assert partition_of(refused).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not partition_of(refused).records
    change(harness, authorizer, added=[reading])
    again = client.call("fetch", 12, fetch_values(OPEN, 0, session=(session, 2), partitions=[]))
    assert partition_of(again).records


def test_a_fetch_that_waits_is_checked_when_there_is_something_to_send(harness, authorizer, client):
    reading = acl(AclOperation.READ, OPEN)
    change(harness, authorizer, added=[reading])
    client.send("fetch", 12, fetch_values(OPEN, 0, max_wait_ms=10_000))
    eventually(lambda: harness.cluster.replica(1, OPEN).watchers, "the fetch waits")
    change(harness, authorizer, removed=[reading])
    writer = RawClient(harness.cluster.brokers[1].port)
    change(harness, authorizer, added=[acl(AclOperation.WRITE, OPEN)])
    writer.call("produce", 9, produce_values(OPEN, batch(1)))
    writer.close()
    answer = client.answer("fetch", 12)
    assert partition_of(answer).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("brokers", "is_let_in"),
    [(None, True), ("ANONYMOUS{id}", False), ("broker-{id}", False)],
)
def test_a_follower_of_another_name_is_refused_and_audited(
    harness, authorizer, client, caplog, brokers, is_let_in
):
    caplog.set_level(logging.INFO, logger="kvorum.audit")
    action = acl(AclOperation.CLUSTER_ACTION, CLUSTER_NAME, ResourceType.CLUSTER)
    change(harness, authorizer, added=[action])
    if brokers is not None:
        known = NodePrincipals(controllers="controller-{id}", brokers=brokers)
        harness.cluster.brokers[1].server.services.node_principals = known
    # The client is ANONYMOUS, and has CLUSTER_ACTION.
    answer = client.call("fetch", 12, {**fetch_values(OPEN, 0), "replica_id": 2})
    error = partition_of(answer).error_code
    assert (error == ErrorCode.TOPIC_AUTHORIZATION_FAILED) is not is_let_in
    assert ("CLUSTER_ACTION" in caplog.text) is not is_let_in
    assert ("a fetch as broker 2, who is User:" in caplog.text) is not is_let_in


def test_a_consumer_cannot_take_over_the_session_of_a_follower(harness, authorizer, client):
    action = acl(AclOperation.CLUSTER_ACTION, CLUSTER_NAME, ResourceType.CLUSTER)
    change(harness, authorizer, added=[action])
    image = harness.cluster.controller.image
    follower = {"replica_id": 1, "replica_epoch": image.brokers[1].broker_epoch}
    topic = {"topic_id": image.topic_ids[SECRET], "partitions": [fetch_partition(0)]}
    values = {**fetch_values(SECRET, 0, session=(0, 0)), "topics": [topic]}
    opened = client.call("fetch", 15, {**values, "replica_state": follower})
    assert opened.session_id
    change(harness, authorizer, removed=[action])
    stolen = {**values, "session_id": opened.session_id, "session_epoch": 1, "topics": []}
    answer = client.call("fetch", 15, stolen)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    answer = client.call("fetch", 15, {**stolen, "replica_state": follower})
    assert (answer.session_id, answer.responses) == (0, ())


def test_metadata_shows_the_topics_that_the_client_may_describe(harness, authorizer, client):
    change(harness, authorizer, added=[acl(AclOperation.READ, OPEN)])
    values = {
        "topics": None, "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": True,
        "include_topic_authorized_operations": True,
    }  # fmt: skip
    answer = client.call("metadata", 9, values)
    assert [topic.name for topic in answer.topics] == [OPEN]
    bits = answer.topics[0].topic_authorized_operations
    assert bits == 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE
    assert answer.cluster_authorized_operations == 0
    # Without an authorizer all clients share one cached answer, which must not be this client's
    # filtered one.
    harness.cluster.brokers[1].server.services.authorizer = None
    assert {t.name for t in client.call("metadata", 9, values).topics} == {OPEN, SECRET}
    harness.cluster.brokers[1].server.services.authorizer = authorizer
    assert [t.name for t in client.call("metadata", 9, values).topics] == [OPEN]


def test_an_id_of_a_hidden_topic_is_as_unknown_as_any_other(harness, authorizer, client):
    topic_id = harness.cluster.controller.image.topic_ids[SECRET]
    answer = client.call("metadata", 12, {
        "topics": [{"topic_id": topic_id, "name": None}], "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    })  # fmt: skip
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert answer.topics[0].name is None


def test_auto_creation_needs_create(harness, authorizer, client):
    change(harness, authorizer, added=[acl(AclOperation.DESCRIBE, "fresh")])
    values = {
        "topics": [{"name": "fresh"}], "allow_auto_topic_creation": True,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }  # fmt: skip
    answer = client.call("metadata", 9, values)
    assert answer.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    change(harness, authorizer, added=[acl(AclOperation.CREATE, "fresh")])
    answer = client.call("metadata", 9, values)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    eventually(lambda: harness.cluster.controller.image.topic("fresh"), "the topic is created")


def test_acls_of_the_image_count_from_the_next_request_on(harness, authorizer, client):
    from kvorum.metadata.image.records import AccessControlEntry, RemoveAccessControlEntry

    reading = acl(AclOperation.READ, OPEN)

    def error() -> int:
        return int(partition_of(client.call("fetch", 12, fetch_values(OPEN, 0))).error_code)

    assert error() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    controller = harness.cluster.controller
    harness.call(lambda: controller.commit(AccessControlEntry.of(b"a" * 16, reading)))
    assert error() == ErrorCode.NONE
    harness.call(lambda: controller.commit(RemoveAccessControlEntry(b"a" * 16)))
    assert error() == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_the_audit_has_what_was_refused(harness, authorizer, client, caplog):
    with caplog.at_level(logging.INFO, logger="kvorum.audit"):
        client.call("fetch", 12, fetch_values(SECRET, 0))
        change(harness, authorizer, added=[acl(AclOperation.READ, OPEN)])
        client.call("fetch", 12, fetch_values(OPEN, 0))
    lines = [json.loads(r.getMessage()) for r in caplog.records if r.name == "kvorum.audit"]
    assert lines == [{
        "event": "access", "principal": "User:ANONYMOUS", "host": "127.0.0.1", "operation": "READ",
        "resource_type": "TOPIC", "resource": SECRET, "allowed": False,
    }]  # fmt: skip
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="kvorum.audit"):
        client.call("fetch", 12, fetch_values(OPEN, 0))
    allowed = [json.loads(r.getMessage()) for r in caplog.records if r.name == "kvorum.audit"]
    assert [(line["resource"], line["allowed"]) for line in allowed] == [(OPEN, True)]
