"""Every Kafka API asks for the access that its file declares, and refuses with Kafka's error."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from kvorum.broker.api import registry
from kvorum.metadata.access.authorizer import Authorizer
from kvorum.metadata.access.model import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from tests.polling import eventually
from tests.test_access.requests_of_apis import (
    GROUP,
    INIT,
    OTHERS,
    REQUESTS,
    TOPIC,
    TRANSACTIONAL_ID,
)
from tests.test_broker.harness import QUICK, Harness
from tests.test_broker.raw_client import RawClient

CONFIG = dataclasses.replace(
    QUICK,
    offsets_topic_replication_factor=1,
    offsets_topic_num_partitions=1,
    transaction_state_log_replication_factor=1,
    transaction_state_log_num_partitions=1,
    transaction_state_log_min_isr=1,
)
MODULES: dict[str, Any] = {module.API.name: module for module in (*registry._HOT, *registry._COLD)}
CASES = [(name, *request) for name, request in REQUESTS.items()] + OTHERS
REFUSALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
FILTERED = {"list_groups", "list_transactions"}
"""APIs whose answer leaves out what the client may not know."""
OF_TRANSACTIONS = {"describe_transactions", "list_transactions"}
WITHOUT_ERROR = FILTERED | {"describe_cluster"}
_numbers = itertools.count()
Question = tuple[AclOperation, ResourceType]


class Doorkeeper(Authorizer):
    """Allows these operations, on any resource, and notes what it was asked."""

    def __init__(self, allowed: set[Question]) -> None:
        super().__init__()
        self.allowed = allowed
        self.asked: set[Question] = set()

    def is_allowed(
        self, user: str, host: str, operation: Any, resource_type: Any, name: str
    ) -> bool:
        self.asked.add((operation, resource_type))
        return (operation, resource_type) in self.allowed

    def is_allowed_on_any(self, user: str, host: str, operation: Any, resource_type: Any) -> bool:
        return self.is_allowed(user, host, operation, resource_type, "")

    def operations(self, *question: Any) -> list[AclOperation]:
        return []  # those that a client has, for a description: nothing is refused by them


EVERYTHING: set[Question] = {
    (operation, kind) for operation in AclOperation for kind in ResourceType
}


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    harness = Harness(tmp_path_factory.mktemp("access"), count=1, config=CONFIG)
    harness.call(lambda: harness.cluster.controller.create(TOPIC, [(1,)]))
    client = RawClient(harness.cluster.brokers[1].port)
    make_group_and_transaction(client)
    client.close()
    yield harness
    harness.close()


def make_group_and_transaction(client: RawClient) -> None:
    """A group with a member, and an open transaction, both with the topic."""
    for key_type, key in ((0, GROUP), (1, TRANSACTIONAL_ID)):
        values = {"key_type": key_type, "coordinator_keys": [key]}
        eventually(
            lambda values=values: (
                client.call("find_coordinator", 4, values).coordinators[0].error_code == 0
            ),
            f"{key} has a coordinator",
        )
    version, joining = REQUESTS["consumer_group_heartbeat"]
    assert client.call("consumer_group_heartbeat", version, joining).error_code == 0
    begin_transaction(client)


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


def fresh(values: dict[str, Any]) -> dict[str, Any]:
    """The values, with a topic that does not exist yet in place of each `new`."""
    text = json.dumps(values, default=lambda raw: {"bytes": raw.hex()})
    found: dict[str, Any] = json.loads(
        text.replace('"new"', f'"new-{next(_numbers)}"'),
        object_hook=lambda row: bytes.fromhex(row["bytes"]) if list(row) == ["bytes"] else row,
    )
    return found


def answered(harness: Harness, case: tuple[str, int, Any], allowed: set[Question] | None) -> Any:
    """(the answer, the questions that the broker asked). allowed: None for no authorizer."""
    name, version, values = case
    doorkeeper = None if allowed is None else Doorkeeper(allowed)
    services = harness.cluster.brokers[1].server.services
    client = RawClient(harness.cluster.brokers[1].port)
    if name in OF_TRANSACTIONS:
        begin_transaction(client)
    services.authorizer = doorkeeper
    try:
        answer = client.call(name, version, fresh(values))
        return answer, set() if doorkeeper is None else doorkeeper.asked
    finally:
        client.close()
        services.authorizer = None


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


ids = [f"{name}-v{version}" for name, version, _ in CASES]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_who_may_do_nothing_gets_the_error_of_the_resource_and_no_other(harness, case):
    answer, asked = answered(harness, case, set())
    assert asked <= set(MODULES[case[0]].ACCESS), asked - set(MODULES[case[0]].ACCESS)
    assert asked
    errors = errors_in(answer)
    if case[0] in WITHOUT_ERROR or (case[:2] == ("metadata", 9) and case[2]["topics"] is None):
        assert errors <= {0}
        return
    assert errors - {0}
    assert errors - {0} <= set(REFUSALS.values())


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_who_may_do_all_that_the_api_declares_is_not_refused(harness, case):
    answer, asked = answered(harness, case, set(MODULES[case[0]].ACCESS))
    assert asked <= set(MODULES[case[0]].ACCESS)
    assert not errors_in(answer) & set(map(int, REFUSALS.values()))


def test_the_declarations_name_nothing_that_is_never_asked(harness):
    asked: dict[str, set[Question]] = {name: set() for name in MODULES}
    for case in CASES:
        module = MODULES[case[0]]
        allowances = [set(), EVERYTHING, *({question} for question in module.ACCESS)]
        # Questions that come after a first one was answered with yes, or with no.
        allowances += [set(module.ACCESS) - {question} for question in module.ACCESS]
        for allowed in allowances:
            asked[case[0]] |= answered(harness, case, allowed)[1]
    unasked = {
        name: set(module.ACCESS) - asked[name]
        for name, module in MODULES.items()
        if set(module.ACCESS) - asked[name]
    }
    assert unasked == {}


def test_every_api_has_a_request_here_or_needs_no_access():
    covered = {name for name, _, _ in CASES}
    assert {name for name, module in MODULES.items() if module.ACCESS} == covered


def test_without_an_authorizer_nothing_is_asked_or_refused(harness):
    for case in CASES:
        if case[0] not in ("create_acls", "describe_acls", "delete_acls"):
            answer, _ = answered(harness, case, None)
            assert not errors_in(answer) & set(map(int, REFUSALS.values())), case[0]
