"""Requests of all APIs, what they need to find, and the rights that they are sent with."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

from kvorum.broker.api import registry
from kvorum.metadata.image.acl import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from kvorum.runtime.errors import ErrorCode
from tests.polling import eventually
from tests.test_access.requests_of_apis import (
    GROUP,
    INIT,
    OTHERS,
    REQUESTS,
    TOPIC,
    TOPIC_ID,
    TRANSACTIONAL_ID,
)
from tests.test_broker.harness import QUICK
from tests.test_broker.raw_client import RawClient
from tests.test_metadata.tokens import SECRET

CONFIG = dataclasses.replace(
    QUICK,
    offsets_topic_replication_factor=1,
    offsets_topic_num_partitions=1,
    transaction_state_log_replication_factor=1,
    transaction_state_log_num_partitions=1,
    transaction_state_log_min_isr=1,
    share_coordinator_state_topic_replication_factor=1,
    share_coordinator_state_topic_num_partitions=1,
    share_coordinator_state_topic_min_isr=1,
    delegation_token_secret_key=SECRET,
)
"""One broker is enough for the internal topics."""

Question = tuple[AclOperation, ResourceType]
Case = tuple[str, int, dict[str, Any]]

MODULES: dict[str, Any] = {module.API.name: module for module in registry.MODULES.values()}
CASES: list[Case] = [(name, *request) for name, request in REQUESTS.items()] + OTHERS
REFUSALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
OF_TRANSACTIONS = {"describe_transactions", "list_transactions"}
"""APIs that have something to say only of an open transaction."""

OF_TOKENS = {"create_delegation_token", "describe_delegation_token"}
"""APIs that only a client with a login may call; here ANONYMOUS, by PLAIN."""
PASSWORD = "secret"

_numbers = itertools.count()


def case_id(case: Case) -> str:
    """The name of a case among all."""
    name, version, _ = case
    number = [other[:2] for other in CASES].index(case[:2])
    suffix = "" if CASES[number] is case else "-other"
    return f"{name}-v{version}{suffix}"


def allowances(case: Case) -> list[frozenset[Question]]:
    """The sets of rights to send the request with: none, all that its API declares, each of them
    alone, and each time all but one."""
    declared: tuple[Question, ...] = MODULES[case[0]].ACCESS
    sets = [frozenset(), frozenset(declared), *(frozenset({one}) for one in declared)]
    sets += [frozenset(declared) - {one} for one in declared]
    return list(dict.fromkeys(sets))


def allowance_id(allowed: frozenset[Question]) -> str:
    return ", ".join(sorted(f"{operation.name} {kind.name}" for operation, kind in allowed))


def acls_for(allowed: frozenset[Question]) -> list[Acl]:
    """ALLOWs of these operations on every resource of the types."""
    return [
        Acl(
            resource_type=kind,
            resource_name=CLUSTER_NAME if kind == ResourceType.CLUSTER else "*",
            pattern_type=PatternType.LITERAL,
            principal="User:ANONYMOUS",
            host="*",
            operation=operation,
            permission=Permission.ALLOW,
        )
        for operation, kind in sorted(allowed)
    ]


def refusals_in(answer: Any) -> set[int]:
    """The error codes of an answer that say that something is not allowed."""
    return errors_in(answer) & set(map(int, REFUSALS.values()))


def client_for(case: Case, port: int, login_port: int) -> RawClient:
    """A new client that may send the request, always as User:ANONYMOUS."""
    if case[0] not in OF_TOKENS:
        return RawClient(port)
    client = RawClient(login_port)
    assert client.log_in("ANONYMOUS", PASSWORD).error_code == ErrorCode.NONE
    return client


def make_group_and_transaction(client: RawClient) -> None:
    """Make a group with a member subscribed to the topic, and an open transaction that has the
    topic."""
    for key_type, key in ((0, GROUP), (1, TRANSACTIONAL_ID)):
        values = {"key_type": key_type, "coordinator_keys": [key]}
        eventually(
            lambda values=values: (
                client.call("find_coordinator", 4, values).coordinators[0].error_code == 0
            ),
            f"{key} has a coordinator",
        )
    version, joining = REQUESTS["consumer_group_heartbeat"]
    eventually(
        lambda: client.call("consumer_group_heartbeat", version, joining).error_code == 0,
        "the group has its member",
    )
    make_share_group(client)
    version, joining = REQUESTS["streams_group_heartbeat"]
    eventually(
        lambda: client.call("streams_group_heartbeat", version, joining).error_code == 0,
        "the Streams group has its member",
    )
    begin_transaction(client)


def make_share_group(client: RawClient) -> None:
    """Make a share group with a member that has the topic's partition."""
    version, joining = REQUESTS["share_group_heartbeat"]
    epoch = 0

    def has_partition() -> bool:
        nonlocal epoch
        answer = client.call("share_group_heartbeat", version, {**joining, "member_epoch": epoch})
        if answer.error_code == 0:
            epoch = answer.member_epoch
        return answer.assignment is not None and bool(answer.assignment.topic_partitions)

    eventually(has_partition, "the share group's member has its partition")


def begin_transaction(client: RawClient) -> None:
    """Open a transaction with the topic; one that is open is aborted."""
    producer = eventually(lambda: initialised(client), "the id has its producer")
    added = client.call("add_partitions_to_txn", 3, {
        "v3_and_below_transactional_id": TRANSACTIONAL_ID,
        "v3_and_below_producer_id": producer.producer_id,
        "v3_and_below_producer_epoch": producer.producer_epoch,
        "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
    })  # fmt: skip
    assert errors_in(added) == {0}


def initialised(client: RawClient) -> Any:
    """The answer to InitProducerId; None while an open transaction is being aborted."""
    answer = client.call("init_producer_id", 4, INIT)
    return answer if answer.error_code == 0 else None


def fresh(values: dict[str, Any], topic_id: bytes = TOPIC_ID) -> dict[str, Any]:
    """The values, with the name of a topic that does not exist yet in place of each `new`, and the
    topic's id in place of TOPIC_ID."""
    text = json.dumps(values, default=lambda raw: {"bytes": raw.hex()})
    text = text.replace(TOPIC_ID.hex(), topic_id.hex())
    found: dict[str, Any] = json.loads(
        text.replace('"new"', f'"new-{next(_numbers)}"'),
        object_hook=lambda row: bytes.fromhex(row["bytes"]) if list(row) == ["bytes"] else row,
    )
    return found


def errors_in(answer: Any) -> set[int]:
    """All error codes of an answer, at any depth."""
    found: set[int] = set()
    if isinstance(answer, tuple | list):
        for item in answer:
            found |= errors_in(item)
    elif dataclasses.is_dataclass(answer):
        for field in dataclasses.fields(answer):
            value = getattr(answer, field.name)
            if field.name.endswith("error_code"):
                found.add(int(value))
            else:
                found |= errors_in(value)
    return found


def acl(
    operation: AclOperation, name: str, kind: ResourceType = ResourceType.TOPIC, **more: Any
) -> Acl:
    """An ACL that allows ANONYMOUS the operation on one resource, or with other fields."""
    fields: dict[str, Any] = {
        "resource_type": kind,
        "resource_name": name,
        "pattern_type": PatternType.LITERAL,
        "principal": "User:ANONYMOUS",
        "host": "*",
        "operation": operation,
        "permission": Permission.ALLOW,
        **more,
    }
    return Acl(**fields)
