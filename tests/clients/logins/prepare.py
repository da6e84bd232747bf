"""The preparation of a cluster for the cases: topics, SCRAM credentials and ACLs of alice."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.clients.logins.cases import CLOSED, GROUPS, OPEN, SCRAM_PASSWORD
from tests.polling import DEADLINE_S, eventually

_RIGHTS = ((ResourceType.TOPIC, OPEN), (ResourceType.GROUP, GROUPS))


def prepare(bootstrap: str) -> None:
    """bootstrap: the listener of the administrator, who needs no login."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, num_partitions=1, replication_factor=1) for name in (OPEN, CLOSED)]
    for made in admin.create_topics(topics).values():
        made.result(DEADLINE_S)
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, 4_096)
        change = UserScramCredentialUpsertion("alice", info, SCRAM_PASSWORD.encode())
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(DEADLINE_S)
    acls = [
        AclBinding(
            kind, name, ResourcePatternType.PREFIXED, "User:alice", "*", AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for kind, name in _RIGHTS
    ]  # fmt: skip
    for created in admin.create_acls(acls).values():
        created.result(DEADLINE_S)
    eventually(lambda: _has_leaders(admin), "the topics have leaders")
    # The first client finds a coordinator, and ids for producers.
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce(CLOSED, b"first")
    producer.flush(DEADLINE_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "of the administrator"})
    consumer.commit(offsets=[TopicPartition(OPEN, 0, 0)], asynchronous=False)
    consumer.close()


def _has_leaders(admin: AdminClient) -> bool:
    topics = admin.list_topics(timeout=DEADLINE_S).topics
    return all(
        name in topics and topics[name].partitions and topics[name].partitions[0].leader >= 0
        for name in (OPEN, CLOSED)
    )
