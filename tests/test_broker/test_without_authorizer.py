"""APIs without their configuration say so: ACLs without an authorizer, delegation tokens without a
key, SCRAM without credentials."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kio.schema.errors import ErrorCode as KioError

from tests.test_broker.harness import DEADLINE_S, Harness
from tests.test_broker.raw_client import RawClient

ACL = (
    ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.READ,
    AclPermissionType.ALLOW,
)  # fmt: skip


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    harness = Harness(tmp_path_factory.mktemp("acls"), count=2)
    harness.call(lambda: harness.cluster.controller.create("t", [(1, 2)]))
    yield harness
    harness.close()


def test_librdkafka_hears_that_there_is_no_authorizer(harness: Harness) -> None:
    admin = AdminClient({"bootstrap.servers": harness.bootstrap})
    # For a describe request confluent-kafka returns the (empty) list and not the error.
    calls = [
        *admin.create_acls([AclBinding(*ACL)]).values(),
        *admin.delete_acls([AclBindingFilter(*ACL)]).values(),
    ]
    for call in calls:
        with pytest.raises(KafkaException) as refused:
            call.result(DEADLINE_S)
        error = refused.value.args[0]
        assert error.name() == "SECURITY_DISABLED"
        assert error.str() == "No Authorizer is configured."


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acl_calls_in_every_version(client: RawClient, version: int) -> None:
    wanted = {
        "resource_type_filter": 2, "resource_name_filter": None, "pattern_type_filter": 3,
        "principal_filter": None, "host_filter": None, "operation": 2, "permission_type": 3,
    }  # fmt: skip
    created = {
        "resource_type": 2, "resource_name": "t", "resource_pattern_type": 3,
        "principal": "User:a", "host": "*", "operation": 3, "permission_type": 3,
    }  # fmt: skip
    described = client.call("describe_acls", version, wanted)
    assert described.error_code is KioError.security_disabled
    results = client.call("create_acls", version, {"creations": [created, created]}).results
    assert [row.error_code for row in results] == [KioError.security_disabled] * 2
    rows = client.call("delete_acls", version, {"filters": [wanted]}).filter_results
    assert [row.error_code for row in rows] == [KioError.security_disabled]


@pytest.mark.parametrize("period", [-1, (1 << 63) - 1])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_client_without_a_login_may_not_ask_about_delegation_tokens(
    client: RawClient, version: int, period: int
) -> None:
    asked = {
        "create_delegation_token": {"renewers": [], "max_lifetime": period},
        "renew_delegation_token": {"hmac": b"hmac", "renew_period": period},
        "expire_delegation_token": {"hmac": b"hmac", "expiry_time_period": period},
        "describe_delegation_token": {"owners": None},
    }
    if version == 3:
        asked["create_delegation_token"] |= {"owner_principal_type": None}
        asked["create_delegation_token"] |= {"owner_principal_name": None}
        del asked["renew_delegation_token"], asked["expire_delegation_token"]
    for api, values in asked.items():
        answer = client.call(api, version, values)
        assert answer.error_code is KioError.delegation_token_request_not_allowed


@pytest.mark.parametrize("everybody", [None, []])
def test_nobody_has_scram_credentials(client: RawClient, everybody: list | None) -> None:
    answer = client.call("describe_user_scram_credentials", 0, {"users": everybody})
    assert (answer.error_code, answer.results) == (KioError.none, ())


def test_each_user_asked_for_by_name_has_no_scram_credentials(client: RawClient) -> None:
    """Same answer as Apache Kafka 4.1 without any credentials."""
    users = [{"name": name} for name in ("alice", "bob", "alice")]
    answer = client.call("describe_user_scram_credentials", 0, {"users": users})
    assert answer.error_code is KioError.none
    alice, bob = answer.results
    assert (bob.user, bob.error_code) == ("bob", KioError.resource_not_found)
    assert bob.error_message == ("Attempt to describe a user credential that does not exist: bob")
    assert (alice.user, alice.error_code) == ("alice", KioError.duplicate_resource)
    assert "twice in a single request: alice" in alice.error_message
    assert (alice.credential_infos, bob.credential_infos) == ((), ())


def test_what_can_have_configs_is_named(client: RawClient) -> None:
    def listed(*types: int, version: int = 1):
        values = {"resource_types": list(types)} if version else {}
        answer = client.call("list_config_resources", version, values)
        return answer.error_code, [
            (r.resource_type, r.resource_name) for r in answer.config_resources
        ]

    assert listed(2) == (KioError.none, [(2, "t")])
    brokers = [(4, "1"), (4, "2")]
    assert listed() == (KioError.none, [(2, "t"), *brokers, (8, "1"), (8, "2")])
    assert listed(16, 4) == (KioError.none, brokers)
    assert listed(3) == (KioError.unsupported_version, [])
