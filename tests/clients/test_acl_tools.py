"""Apache Kafka's kafka-acls on a cluster with an authorizer, and what users then may do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.clients.java_tools import needs_java, run_tool, tool
from tests.live.by_hand import HandMade
from tests.live.cluster import run_kvorum
from tests.polling import DEADLINE_S, eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(180), needs_java]

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ACL_COMMAND = "org.apache.kafka.tools.AclCommand"
HEAD = re.compile(r"resourceType=(\w+), name=([^,]*), patternType=(\w+)")
ENTRY = re.compile(r"principal=([^,]*), host=([^,]*), operation=(\w+), permissionType=(\w+)")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandMade]:
    """A controller and a broker, on which ANONYMOUS is a super user."""
    access = [f"authorizer.class.name={AUTHORIZER}", "super.users=User:ANONYMOUS"]
    made = HandMade(tmp_path_factory.mktemp("acls"), controllers=1, brokers=2, settings=access)
    try:
        made.start("controller-1", "broker-101", "broker-102")
        eventually(
            lambda: run_kvorum("topics", "list", "-b", made.bootstrap).returncode == 0,
            "the brokers answer",
        )
        yield made
    finally:
        made.close()


@pytest.fixture
def cluster(nodes: HandMade) -> Iterator[HandMade]:
    """The cluster, on which no test leaves an ACL."""
    yield nodes
    wanted = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
        AclPermissionType.ANY,
    )  # fmt: skip
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    admin.delete_acls([wanted])[wanted].result(DEADLINE_S)


def acls(cluster: HandMade, *arguments: str) -> str:
    return tool(ACL_COMMAND, "--bootstrap-server", cluster.bootstrap, *arguments)


def listed(text: str) -> set[tuple[str, ...]]:
    """The ACLs in the output: type, name, pattern, principal, host, operation, permission."""
    found: set[tuple[str, ...]] = set()
    pattern: tuple[str, ...] = ()
    for line in text.splitlines():
        if head := HEAD.search(line):
            pattern = head.groups()
        elif entry := ENTRY.search(line):
            found.add((*pattern, *entry.groups()))
    return found


def everything(cluster: HandMade) -> set[tuple[str, ...]]:
    return listed(acls(cluster, "--list"))


def allowed(kind: str, name: str, operation: str, **changed: Any) -> tuple[str, ...]:
    row = {"pattern": "LITERAL", "principal": "User:alice", "host": "*", "permission": "ALLOW"}
    row |= changed
    return (
        kind, name, row["pattern"], row["principal"], row["host"], operation, row["permission"],
    )  # fmt: skip


def test_acls_are_added_listed_and_removed(cluster: HandMade) -> None:
    orders = ("--topic", "orders")
    added = acls(
        cluster, "--add", "--allow-principal", "User:alice", *orders,
        "--operation", "Read", "--operation", "Describe",
    )  # fmt: skip
    both = {allowed("TOPIC", "orders", "READ"), allowed("TOPIC", "orders", "DESCRIBE")}
    assert "Adding ACLs for resource" in added
    assert listed(added) == both == everything(cluster)
    again = acls(
        cluster, "--add", "--allow-principal", "User:alice", *orders, "--operation", "Read"
    )
    assert "already exists" in again
    assert everything(cluster) == both
    denied = acls(
        cluster, "--add", "--deny-principal", "User:*", "--deny-host", "10.0.0.0/8", *orders,
        "--operation", "All",
    )  # fmt: skip
    range_ = allowed(
        "TOPIC", "orders", "ALL", principal="User:*", host="10.0.0.0/8", permission="DENY"
    )
    assert listed(denied) == {range_}
    assert everything(cluster) == {*both, range_}
    acls(
        cluster, "--remove", "--force", "--allow-principal", "User:alice", *orders,
        "--operation", "Read",
    )  # fmt: skip
    assert everything(cluster) == {allowed("TOPIC", "orders", "DESCRIBE"), range_}
    acls(cluster, "--remove", "--force", *orders)
    assert everything(cluster) == set()


def test_conveniences_for_producers_and_consumers_and_prefixes(cluster: HandMade) -> None:
    alice = ("--allow-principal", "User:alice")
    acls(
        cluster, "--add", *alice, "--producer", "--idempotent", "--topic", "ord",
        "--transactional-id", "tx", "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    acls(cluster, "--add", *alice, "--consumer", "--topic", "orders", "--group", "*")
    prefixed = {"pattern": "PREFIXED"}
    produce = {
        *(allowed("TOPIC", "ord", op, **prefixed) for op in ("WRITE", "DESCRIBE", "CREATE")),
        *(allowed("TRANSACTIONAL_ID", "tx", op, **prefixed) for op in ("WRITE", "DESCRIBE")),
    }
    consume = {
        *(allowed("TOPIC", "orders", op) for op in ("READ", "DESCRIBE")),
        allowed("GROUP", "*", "READ"),
    }
    found = everything(cluster)
    # The tool names the cluster with the pattern of the other resources.
    of_cluster = {row for row in found if row[0] == "CLUSTER"}
    assert found - of_cluster == produce | consume
    assert {(row[1], row[5]) for row in of_cluster} == {("kafka-cluster", "IDEMPOTENT_WRITE")}
    matching = acls(cluster, "--list", "--topic", "orders", "--resource-pattern-type", "match")
    topics = {row for row in produce | consume if row[0] == "TOPIC"}
    assert listed(matching) == topics
    mine = acls(cluster, "--list", "--principal", "User:bob")
    assert listed(mine) == set()


def test_a_refusal_is_printed_in_kafkas_words(cluster: HandMade) -> None:
    done = run_tool(
        ACL_COMMAND, "--bootstrap-server", cluster.bootstrap, "--add", "--allow-principal",
        "User:alice", "--allow-host", "10.0.0.0/99", "--topic", "orders",
    )  # fmt: skip
    assert "Invalid CIDR notation '10.0.0.0/99'" in done.stdout + done.stderr
    assert everything(cluster) == set()


def test_acls_are_there_after_a_restart_of_all_nodes(cluster: HandMade) -> None:
    acls(cluster, "--add", "--allow-principal", "User:alice", "--topic", "kept")
    nodes = ("controller-1", "broker-101", "broker-102")
    cluster.kill(*nodes)
    cluster.start(*nodes)
    eventually(
        lambda: run_kvorum("topics", "list", "-b", cluster.bootstrap).returncode == 0,
        "the brokers answer again",
    )
    eventually(lambda: everything(cluster) == {allowed("TOPIC", "kept", "ALL")}, "the ACL is there")
