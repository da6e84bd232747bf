"""The APIs of delegation tokens: raw requests of clients that have logged in, and of others."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.sasl.core.mechanisms import SaslSettings, authenticator
from kvorum.broker.sasl.core.token_logins import TokenLogins
from kvorum.metadata.access.authorizer import Authorizer
from kvorum.metadata.image.acl import Acl, AclOperation, ResourceType
from kvorum.metadata.image.records import RemoveDelegationToken
from kvorum.runtime.errors import required
from kvorum.wire.kio_codec import milliseconds
from tests.test_broker.harness import QUICK, Harness
from tests.test_broker.raw_client import RawClient
from tests.test_metadata.acls import acl
from tests.test_metadata.tokens import DAY_MS, KEY, SECRET, token

PASSWORDS = {name: f"of {name}" for name in ("alice", "bob", "carol", "admin")}
CONFIG = dataclasses.replace(QUICK, delegation_token_secret_key=SECRET)
LONG_MS = (1 << 63) - 1


class Secured:
    """A broker with a SASL listener, and a PLAINTEXT one."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.controller = harness.cluster.controller
        self.controller.token_secret = SECRET
        self.server = harness.cluster.brokers[1].server
        services = self.server.services
        settings = SaslSettings(mechanisms=("PLAIN", "SCRAM-SHA-256"), plain_users=PASSWORDS)
        tokens = TokenLogins(
            required(services.token_key, "a key"),
            lambda: self.controller.image,
            lambda: self.controller.wall_ms,
        )
        begin = authenticator(settings, services.image, random.Random(1), tokens=tokens)

        async def bind() -> int:
            port = await self.server.bind("127.0.0.1", 0, listener_name="LOGIN", authenticate=begin)
            self.server.serve()
            return port

        self.port = harness.run(bind())
        self.clients: list[RawClient] = []

    def client(self, user: str) -> RawClient:
        client = RawClient(self.port)
        self.clients.append(client)
        assert client.log_in(user, PASSWORDS[user]).error_code is KioError.none
        return client

    def stranger(self) -> RawClient:
        self.clients.append(RawClient(self.harness.cluster.brokers[1].port))
        return self.clients[-1]

    def by_token(self, token_id: str) -> tuple[RawClient, Any]:
        client = RawClient(self.port)
        self.clients.append(client)
        return client, client.log_in(
            token_id, KEY.password(token_id), "SCRAM-SHA-256", is_token=True
        )

    def authorize(self, *acls: Acl) -> None:
        authorizer = Authorizer(super_users=["User:admin"])
        authorizer.replace(acls)
        self.server.services.authorizer = authorizer


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    harness = Harness(tmp_path_factory.mktemp("tokens"), count=1, config=CONFIG)
    yield Secured(harness)
    harness.close()


@pytest.fixture
def secured(broker: Secured) -> Iterator[Secured]:
    """The broker, on which no test leaves a token."""
    yield broker
    broker.server.services.authorizer = None
    for client in broker.clients:
        client.close()
    broker.clients.clear()

    def remove() -> None:
        controller = broker.controller
        gone = map(RemoveDelegationToken, list(controller.image.delegation_tokens))
        controller.commit(*gone)

    broker.harness.call(remove)


def create(client: RawClient, version: int = 3, **changed: Any) -> Any:
    values = {
        "owner_principal_type": None, "owner_principal_name": None, "renewers": [],
        "max_lifetime": -1,
    } | changed  # fmt: skip
    return client.call("create_delegation_token", version, values)


def renew(client: RawClient, hmac: bytes, period_ms: int = -1, version: int = 2) -> Any:
    values = {"hmac": hmac, "renew_period": period_ms}
    return client.call("renew_delegation_token", version, values)


def expire(client: RawClient, hmac: bytes, period_ms: int = -1, version: int = 2) -> Any:
    values = {"hmac": hmac, "expiry_time_period": period_ms}
    return client.call("expire_delegation_token", version, values)


def described(client: RawClient, owners: list[str] | None = None, version: int = 3) -> Any:
    asked = None
    if owners is not None:
        asked = [{"principal_type": "User", "principal_name": name} for name in owners]
    return client.call("describe_delegation_token", version, {"owners": asked})


def shown(client: RawClient, owners: list[str] | None = None) -> list[str]:
    answer = described(client, owners)
    assert answer.error_code is KioError.none
    return [each.token_id for each in answer.tokens]


def user(name: str) -> dict[str, str]:
    return {"principal_type": "User", "principal_name": name}


def time_ms(value: Any) -> int:
    return round(value.timestamp() * 1000)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_token_is_created_and_described_in_every_version(secured, version: int) -> None:
    client = secured.client("alice")
    made = create(client, version, renewers=[user("bob"), user("carol")])
    assert made.error_code is KioError.none
    assert (made.principal_type, made.principal_name) == ("User", "alice")
    assert made.hmac == KEY.hmac(made.token_id)
    now_ms = secured.controller.wall_ms
    assert time_ms(made.issue_timestamp) == now_ms
    assert time_ms(made.expiry_timestamp) == now_ms + DAY_MS
    assert time_ms(made.max_timestamp) == now_ms + 7 * DAY_MS
    (found,) = described(client, version=version).tokens
    assert (found.token_id, found.hmac) == (made.token_id, made.hmac)
    assert [each.principal_name for each in found.renewers] == ["bob", "carol"]
    assert found.expiry_timestamp == time_ms(made.expiry_timestamp)
    if version == 3:
        assert made.token_requester_principal_name == "alice"
        assert found.token_requester_principal_name == "alice"


@pytest.mark.parametrize("version", [1, 2])
def test_owner_and_renewers_renew_and_expire_it_in_every_version(secured, version: int) -> None:
    alice, bob, carol = map(secured.client, ("alice", "bob", "carol"))
    made = create(alice, renewers=[user("bob")])
    now_ms = secured.controller.wall_ms
    for period_ms, until_ms in ((1_000, 1_000), (LONG_MS, DAY_MS), (-1, DAY_MS)):
        answer = renew(bob, made.hmac, period_ms, version)
        assert answer.error_code is KioError.none
        assert time_ms(answer.expiry_timestamp) == now_ms + until_ms
    mismatch = KioError.delegation_token_owner_mismatch
    assert renew(carol, made.hmac, version=version).error_code is mismatch
    assert expire(carol, made.hmac, version=version).error_code is mismatch
    answer = expire(alice, made.hmac, LONG_MS, version)
    assert time_ms(answer.expiry_timestamp) == now_ms + 7 * DAY_MS
    assert expire(alice, made.hmac, 0, version).error_code is KioError.none
    assert expire(bob, made.hmac, -1, version).error_code is KioError.none
    assert shown(alice) == []
    missing = KioError.delegation_token_not_found
    assert expire(alice, made.hmac, version=version).error_code is missing
    assert renew(alice, b"no hmac", version=version).error_code is missing


def test_a_client_without_a_login_may_ask_for_nothing(secured) -> None:
    client = secured.stranger()
    hmac = create(secured.client("alice")).hmac
    for answer in (create(client), renew(client, hmac), expire(client, hmac), described(client)):
        assert answer.error_code is KioError.delegation_token_request_not_allowed


def test_a_client_that_came_by_token_is_the_owner_but_asks_for_no_other_token(secured) -> None:
    made = create(secured.client("alice"))
    client, answer = secured.by_token(made.token_id)
    assert answer.error_code is KioError.none
    assert milliseconds(answer.session_lifetime) == DAY_MS
    hmac = made.hmac
    for refused in (create(client), renew(client, hmac), expire(client, hmac), described(client)):
        assert refused.error_code is KioError.delegation_token_request_not_allowed
    secured.authorize(
        acl("alices", operation=AclOperation.DESCRIBE), acl("bobs", principal="User:bob")
    )
    topics = client.call("metadata", 4, {
        "topics": [{"name": "alices"}, {"name": "bobs"}], "allow_auto_topic_creation": False,
    }).topics  # fmt: skip
    assert [each.error_code for each in topics] == [
        KioError.unknown_topic_or_partition, KioError.topic_authorization_failed,
    ]  # fmt: skip


def test_a_token_that_was_removed_lets_nobody_in(secured) -> None:
    alice = secured.client("alice")
    made = create(alice)
    assert expire(alice, made.hmac).error_code is KioError.none
    _, answer = secured.by_token(made.token_id)
    assert answer.error_code is KioError.sasl_authentication_failed


def for_bob(client: RawClient) -> Any:
    return create(client, owner_principal_type="User", owner_principal_name="bob")


def test_a_token_of_another_user_needs_create_tokens_on_that_user(secured) -> None:
    client = secured.client("alice")
    right = {
        "resource_type": ResourceType.USER, "operation": AclOperation.CREATE_TOKENS,
    }  # fmt: skip
    for allowed in ([], [acl("User:carol", **right)], [acl("bob", **right)]):
        secured.authorize(*allowed)
        refused = for_bob(client)
        assert refused.error_code is KioError.delegation_token_authorization_failed
        assert (refused.principal_name, refused.token_requester_principal_name) == ("bob", "alice")
        assert (refused.token_id, refused.hmac) == ("", b"")
    secured.authorize(acl("User:bob", **right))
    made = for_bob(client)
    assert made.error_code is KioError.none
    (record,) = secured.controller.image.delegation_tokens.values()
    assert (record.owner, record.requester) == ("User:bob", "User:alice")
    # A user needs no right for a token of its own.
    assert create(client).error_code is KioError.none
    itself = create(client, owner_principal_type="User", owner_principal_name="alice")
    assert itself.error_code is KioError.none


def test_other_types_of_principals_are_refused(secured) -> None:
    client = secured.client("admin")
    group = {"principal_type": "Group", "principal_name": "staff"}
    wrong = KioError.invalid_principal_type
    assert create(client, renewers=[group]).error_code is wrong
    owned = create(client, owner_principal_type="Group", owner_principal_name="staff")
    assert owned.error_code is wrong


def test_a_broker_without_a_key_says_so_to_a_client_that_has_logged_in(
    secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, stranger = secured.client("alice"), secured.stranger()
    monkeypatch.setattr(secured.server.services, "token_key", None)
    for ask in (
        create,
        described,
        lambda asker: renew(asker, b""),
        lambda asker: expire(asker, b""),
    ):
        assert ask(client).error_code is KioError.delegation_token_auth_disabled
        assert ask(stranger).error_code is KioError.delegation_token_request_not_allowed


def test_tokens_of_others_are_shown_with_access_to_the_token_or_its_owner(secured) -> None:
    records = [
        token("alices"), token("bobs", owner="User:bob", requester="User:bob"),
        token("for-bob", owner="User:bob", requester="User:alice"),
        token("renewed", owner="User:bob", requester="User:bob", renewers=("User:alice",)),
        token("carols", owner="User:carol", requester="User:carol"),
    ]  # fmt: skip
    secured.harness.call(lambda: secured.controller.commit(*records))
    client = secured.client("alice")
    secured.authorize()
    own = ["alices", "for-bob", "renewed"]
    assert shown(client) == own
    assert shown(client, ["bob"]) == ["for-bob", "renewed"]
    assert shown(client, ["carol"]) == shown(client, []) == []
    assert shown(client, ["carol", "alice"]) == own
    of_token = {"resource_type": ResourceType.DELEGATION_TOKEN, "operation": AclOperation.DESCRIBE}
    secured.authorize(acl("carols", **of_token))
    assert shown(client) == ["alices", "carols", "for-bob", "renewed"]
    of_user = {"resource_type": ResourceType.USER, "operation": AclOperation.DESCRIBE_TOKENS}
    secured.authorize(acl("User:bob", **of_user))
    assert shown(client) == ["alices", "bobs", "for-bob", "renewed"]
    assert shown(client, ["bob"]) == ["bobs", "for-bob", "renewed"]
    assert len(shown(secured.client("admin"))) == 5


def test_many_tokens_are_described(secured) -> None:
    records = [token(f"{number:04}") for number in range(1_000)]
    secured.harness.call(lambda: secured.controller.commit(*records))
    assert shown(secured.client("alice")) == [record.token_id for record in records]


def test_the_audit_log_tells_logins_by_token_apart(
    secured, caplog: pytest.LogCaptureFixture
) -> None:
    made = create(secured.client("alice"))
    with caplog.at_level("DEBUG", logger="kvorum.audit"):
        secured.client("alice")
        secured.by_token(made.token_id)
        secured.by_token("unknown")
    lines = [json.loads(r.getMessage()) for r in caplog.records if r.name == "kvorum.audit"]
    logins = [line for line in lines if line["event"] == "login"]
    assert [
        (line["principal"], line["allowed"], line.get("delegation_token")) for line in logins
    ] == [("User:alice", True, None), ("User:alice", True, True), (None, False, None)]
    assert KEY.password(made.token_id) not in caplog.text
