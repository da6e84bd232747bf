"""CreateAcls, DescribeAcls and DeleteAcls, as librdkafka's clients and raw requests call them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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

from kvorum.broker.api.describe_acls import FEW
from kvorum.metadata.access.authorizer import Authorizer
from kvorum.metadata.image.features import METADATA_VERSION
from kvorum.metadata.image.records import FeatureLevel
from tests.test_broker.harness import DEADLINE_S, Harness
from tests.test_broker.raw_client import RawClient

ANY = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
    "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip


def creation(name: str = "t", **changed: Any) -> dict[str, Any]:
    values = {
        "resource_type": 2, "resource_name": name, "resource_pattern_type": 3,
        "principal": "User:alice", "host": "*", "operation": 3, "permission_type": 3,
    }  # fmt: skip
    return values | changed


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    harness = Harness(tmp_path_factory.mktemp("acls"), count=2)

    def switch_on() -> None:
        for broker in harness.cluster.brokers.values():
            broker.server.services.authorizer = Authorizer(super_users=["User:ANONYMOUS"])

    harness.call(switch_on)
    yield harness
    harness.close()


@pytest.fixture
def harness(brokers: Harness) -> Iterator[Harness]:
    yield brokers
    with_client(brokers, lambda client: client.call("delete_acls", 3, {"filters": [ANY]}))
    assert not brokers.cluster.controller.image.acls


def with_client(brokers: Harness, do: Any, broker_id: int = 1) -> Any:
    client = RawClient(brokers.cluster.ports[broker_id])
    try:
        return do(client)
    finally:
        client.close()


@pytest.fixture
def client(harness: Harness) -> Iterator[RawClient]:
    client = RawClient(harness.cluster.ports[1])
    yield client
    client.close()


def described(client: RawClient, version: int = 3, **changed: Any) -> list[tuple[Any, ...]]:
    answer = client.call("describe_acls", version, ANY | changed)
    assert (answer.error_code, answer.error_message) == (KioError.none, "")
    return [
        (resource.resource_type, resource.resource_name, resource.pattern_type, *acl)
        for resource in answer.resources
        for acl in (
            (each.principal, each.host, each.operation, each.permission_type)
            for each in resource.acls
        )
    ]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_created_acls_are_described_by_every_broker_and_deleted(
    harness: Harness, client: RawClient, version: int
) -> None:
    asked = [creation(), creation("pay", resource_pattern_type=4, host="10.0.0.0/8")]
    results = client.call("create_acls", version, {"creations": asked}).results
    assert [(row.error_code, row.error_message) for row in results] == [(KioError.none, "")] * 2
    rows = [
        (2, "pay", 4, "User:alice", "10.0.0.0/8", 3, 3),
        (2, "t", 3, "User:alice", "*", 3, 3),
    ]
    assert described(client, version) == rows
    assert with_client(harness, lambda other: described(other, version), broker_id=2) == rows
    filters = [ANY | {"resource_name_filter": "t"}, ANY | {"principal_filter": "User:alice"}]
    first, second = client.call("delete_acls", version, {"filters": filters}).filter_results
    assert (first.error_code, second.error_code) == (KioError.none, KioError.none)
    assert [acl.resource_name for acl in first.matching_acls] == ["t"]
    assert [acl.resource_name for acl in second.matching_acls] == ["pay", "t"]
    (shown, _) = second.matching_acls
    assert (shown.error_code, shown.pattern_type, shown.principal) == (
        KioError.none,
        4,
        "User:alice",
    )
    assert (shown.host, shown.operation, shown.permission_type) == ("10.0.0.0/8", 3, 3)
    assert described(client, version) == []


def test_acls_of_one_resource_are_described_together(client: RawClient) -> None:
    asked = [
        creation(),
        creation("u"),
        creation(principal="User:bob"),
        creation(resource_pattern_type=4),
        creation(resource_type=3),
    ]
    client.call("create_acls", 3, {"creations": asked})
    answer = client.call("describe_acls", 3, ANY)
    groups = [
        (r.resource_type, r.resource_name, r.pattern_type, [acl.principal for acl in r.acls])
        for r in answer.resources
    ]
    assert groups == [
        (2, "t", 3, ["User:alice", "User:bob"]),
        (2, "t", 4, ["User:alice"]),
        (2, "u", 3, ["User:alice"]),
        (3, "t", 3, ["User:alice"]),
    ]


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({"resource_name_filter": "orders"}, ["orders"]),
        ({"resource_name_filter": "orders", "pattern_type_filter": 2}, ["*", "ord", "orders"]),
        ({"pattern_type_filter": 4}, ["ord"]),
        ({"principal_filter": "User:bob"}, ["pay"]),
        ({"operation": 4}, ["pay"]),
        ({"host_filter": "::1"}, []),
        ({"resource_type_filter": 3}, []),
        ({"permission_type": 2}, []),
    ],
    ids=str,
)
def test_a_filter_selects(client: RawClient, changed: dict[str, Any], names: list[str]) -> None:
    asked = [
        creation("orders"),
        creation("*"),
        creation("ord", resource_pattern_type=4),
        creation("pay", principal="User:bob", operation=4),
    ]
    client.call("create_acls", 3, {"creations": asked})
    assert [row[1] for row in described(client, **changed)] == names


def test_many_acls_are_described_as_few_are(client: RawClient) -> None:
    names = [f"t{number:04}" for number in range(FEW + 1)]
    client.call("create_acls", 3, {"creations": [creation(name) for name in names]})
    assert [row[1] for row in described(client)] == names
    assert [row[1] for row in described(client, resource_name_filter="t0007")] == ["t0007"]


def test_each_creation_and_each_filter_has_its_own_error(client: RawClient) -> None:
    asked = [creation(operation=0), creation(), creation(resource_name="")]
    results = client.call("create_acls", 3, {"creations": asked}).results
    assert [(row.error_code, row.error_message) for row in results] == [
        (KioError.invalid_request, "Invalid operation UNKNOWN"),
        (KioError.none, ""),
        (KioError.invalid_request, "Invalid empty resource name"),
    ]
    filters = [ANY | {"operation": 99}, ANY]
    results = client.call("delete_acls", 3, {"filters": filters}).filter_results
    assert [(row.error_code, row.error_message) for row in results] == [
        (KioError.invalid_request, "Unknown entryFilter."),
        (KioError.none, None),
    ]
    answer = client.call("describe_acls", 3, ANY | {"pattern_type_filter": 0})
    assert (answer.error_code, answer.error_message) == (
        KioError.invalid_request, "Unknown patternFilter.",
    )  # fmt: skip


def test_a_refusal_of_the_controller_is_that_of_each_item(
    harness: Harness, client: RawClient
) -> None:
    words = "ACLs need metadata.version 29, it is 28"
    commit = harness.cluster.controller.commit
    harness.call(lambda: commit(FeatureLevel(METADATA_VERSION, 28)))
    try:
        created = client.call("create_acls", 3, {"creations": [creation()] * 2}).results
        deleted = client.call("delete_acls", 3, {"filters": [ANY] * 2}).filter_results
    finally:
        harness.call(lambda: commit(FeatureLevel(METADATA_VERSION, 29)))
    for row in (*created, *deleted):
        assert row.error_code is KioError.unsupported_version
        assert row.error_message.startswith(words)
    assert len(created) == len(deleted) == 2


def test_librdkafka_creates_describes_and_deletes(harness: Harness) -> None:
    admin = AdminClient({"bootstrap.servers": harness.bootstrap})
    fields = (
        ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:alice", "*",
        AclOperation.READ, AclPermissionType.ALLOW,
    )  # fmt: skip
    binding = AclBinding(*fields)
    admin.create_acls([binding])[binding].result(DEADLINE_S)
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
        AclPermissionType.ANY,
    )  # fmt: skip
    assert admin.describe_acls(everything).result(DEADLINE_S) == [binding]
    unsound = AclBinding(
        ResourceType.BROKER, "no-cluster", *fields[2:5], AclOperation.ALTER, fields[6]
    )
    with pytest.raises(KafkaException) as refused:
        admin.create_acls([unsound])[unsound].result(DEADLINE_S)
    assert refused.value.args[0].name() == "INVALID_REQUEST"
    assert "kafka-cluster" in refused.value.args[0].str()
    wanted = AclBindingFilter(*fields)
    assert admin.delete_acls([wanted])[wanted].result(DEADLINE_S) == [binding]
    assert admin.describe_acls(everything).result(DEADLINE_S) == []
