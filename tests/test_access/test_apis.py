"""Every Kafka API asks for the access that its file declares, and refuses with Kafka's error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from kvorum.broker.sasl.core.authentication import Authentication
from kvorum.broker.sasl.core.plain import PlainExchange
from kvorum.metadata.access.authorizer import Authorizer
from kvorum.metadata.image.acl import AclOperation, ResourceType
from tests.test_access.asking import (
    CASES,
    CONFIG,
    MODULES,
    OF_TRANSACTIONS,
    PASSWORD,
    REFUSALS,
    Case,
    Question,
    acls_for,
    allowance_id,
    allowances,
    begin_transaction,
    case_id,
    client_for,
    errors_in,
    fresh,
    make_group_and_transaction,
    refusals_in,
)
from tests.test_access.requests_of_apis import REQUESTS, TOPIC
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient
from tests.test_metadata.tokens import SECRET, token
from tests.tree import ROOT

FILTERED = {"list_groups", "list_transactions", "describe_delegation_token"}
"""APIs whose answer leaves out what the client may not know."""
WITHOUT_ERROR = FILTERED | {"describe_cluster"}


class Doorkeeper(Authorizer):
    """An authorizer that allows these operations on any resource, and notes what it was asked."""

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
        return []  # only for authorized-operations fields; refuses nothing


class WithLogin(Harness):
    """A broker with a second listener, on which ANONYMOUS logs in."""

    login_port = 0

    async def bind_login(self) -> None:
        server = self.cluster.brokers[1].server
        exchanges = {"PLAIN": partial(PlainExchange, {"ANONYMOUS": PASSWORD})}
        self.login_port = await server.bind(
            "127.0.0.1",
            0,
            listener_name="LOGIN",
            authenticate=lambda: Authentication(exchanges, session_ms={}),
        )
        server.serve()


EVERYTHING: set[Question] = {
    (operation, kind) for operation in AclOperation for kind in ResourceType
}


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithLogin]:
    harness = WithLogin(tmp_path_factory.mktemp("access"), count=1, config=CONFIG)
    harness.call(lambda: harness.cluster.controller.create(TOPIC, [(1,)]))
    of_other = token(owner="User:other", requester="User:other")
    harness.cluster.controller.token_secret = SECRET
    harness.call(lambda: harness.cluster.controller.commit(of_other))
    harness.run(harness.bind_login())
    client = RawClient(harness.cluster.brokers[1].port)
    make_group_and_transaction(client)
    client.close()
    yield harness
    harness.close()


def answered(
    harness: WithLogin, case: Case, authorizer: Authorizer | None, *, in_session: bool = False
) -> Any:
    """The broker's answer. in_session: to ShareAcknowledge in a share session that is open."""
    name, version, values = case
    services = harness.cluster.brokers[1].server.services
    client = client_for(case, harness.cluster.brokers[1].port, harness.login_port)
    if name in OF_TRANSACTIONS:
        begin_transaction(client)
    topic = harness.cluster.controller.image.topic(TOPIC)
    assert topic is not None
    if in_session and name == "share_acknowledge":
        version, opening = REQUESTS["share_fetch"]
        opening = {**opening, "member_id": values["member_id"]}
        client.call("share_fetch", version, fresh(opening, topic.topic_id))
    services.authorizer = authorizer
    try:
        return client.call(name, version, fresh(values, topic.topic_id))
    finally:
        client.close()
        services.authorizer = None


def asked_with(
    harness: WithLogin, case: Case, allowed: set[Question], *, in_session: bool = False
) -> tuple[Any, set[Question]]:
    """(the answer, the questions that the broker asked). in_session: see `answered`."""
    doorkeeper = Doorkeeper(allowed)
    return answered(harness, case, doorkeeper, in_session=in_session), doorkeeper.asked


ids = [case_id(case) for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_who_may_do_nothing_gets_the_error_of_the_resource_and_no_other(harness, case):
    answer, asked = asked_with(harness, case, set())
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
    answer, asked = asked_with(harness, case, set(MODULES[case[0]].ACCESS))
    assert asked <= set(MODULES[case[0]].ACCESS)
    assert not refusals_in(answer)


def test_the_declarations_name_nothing_that_is_never_asked(harness):
    asked: dict[str, set[Question]] = {name: set() for name in MODULES}
    for case in CASES:
        # Some questions are asked only if an earlier one was answered with yes, or with no.
        for allowed in (*allowances(case), EVERYTHING):
            asked[case[0]] |= asked_with(harness, case, set(allowed), in_session=True)[1]
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
            assert not refusals_in(answered(harness, case, None)), case[0]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_refusals_are_those_of_apache_kafka(harness, case):
    """As `python -m tests.clients.access_vs_kafka` has recorded them, with the same ACLs."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))["refusals"][case_id(case)]
    found = {}
    for allowed in allowances(case):
        authorizer = Authorizer()
        authorizer.replace(acls_for(allowed))
        found[allowance_id(allowed)] = sorted(refusals_in(answered(harness, case, authorizer)))
    assert found == recorded


RECORDED = ROOT / "tests" / "test_access" / "kafka_refusals.json"
