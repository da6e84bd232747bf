"""`python -m tests.clients.access_vs_kafka`: what Apache Kafka refuses, by API and ACLs.

The requests of `tests.test_access`, each sent with several sets of ACLs to one broker of Apache
Kafka with its StandardAuthorizer. Writes tests/test_access/kafka_refusals.json, with which Kvorum's
refusals are compared. The client of the requests is ANONYMOUS: on a PLAINTEXT listener, or, for
requests about tokens, on the one where brokers and the administrator log in too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from pathlib import Path

from bench.cluster import wait_for_port
from bench.kafka_cluster import fetch_jars
from kvorum.chaos.live.host.processes import start_process, stop_process
from kvorum.chaos.live.systems.kafka_jars import (
    OWN_LIBRARY,
    SERVER,
    VERSION,
    format_storage,
    java_command,
    properties_text,
)
from kvorum.runtime.errors import ErrorCode
from tests.polling import eventually
from tests.test_access.asking import (
    CASES,
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
from tests.test_broker.raw_client import RawClient
from tests.tree import ROOT

DEFAULT_PORT = 28_900
START_TIMEOUT_S = 120.0
RECORDED = ROOT / "tests" / "test_access" / "kafka_refusals.json"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
EVERYTHING = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
    "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.access_vs_kafka")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="first port to use")
    port = parser.parse_args().port
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="access-vs-kafka-")))
        fetch_jars(OWN_LIBRARY)
        file = folder / "server.properties"
        file.write_text(properties_text(properties(folder, port)), encoding="utf-8")
        format_storage(OWN_LIBRARY, "Yk3vR2p1S9ORbV1xWqLz0g", str(file))
        command = java_command(OWN_LIBRARY, SERVER, str(file), flags=("-Xmx512m",))
        process = start_process(command, log_file=str(folder / "server.log"))
        stack.callback(lambda: stop_process(process, timeout_ms=5_000))
        stack.callback(process.kill)
        for number in (port, port + 1):
            wait_for_port((f"127.0.0.1:{number}",), START_TIMEOUT_S)
        recorded = record(port)
    text = json.dumps({"version": VERSION, "refusals": recorded}, indent=1, sort_keys=True)
    RECORDED.write_text(text + "\n", encoding="utf-8")
    print(
        f"{sum(map(len, recorded.values()))} answers of Apache Kafka {VERSION} in {RECORDED.name}"
    )
    return 0


def properties(folder: Path, port: int) -> dict[str, str]:
    """One node that is broker and controller."""
    users = f'{PLAIN} username="admin" password="{PASSWORD}"'
    users += f' user_admin="{PASSWORD}" user_ANONYMOUS="{PASSWORD}";'
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{port + 2}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "OWN",
        "listeners": (
            f"CLIENTS://127.0.0.1:{port},OWN://127.0.0.1:{port + 1},"
            f"CONTROLLER://127.0.0.1:{port + 2}"
        ),
        "listener.security.protocol.map": (
            "CLIENTS:PLAINTEXT,OWN:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.own.plain.sasl.jaas.config": users,
        "listener.name.controller.plain.sasl.jaas.config": users,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "delegation.token.secret.key": "the key of the node",
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


def record(port: int) -> dict[str, dict[str, list[int]]]:
    """Refusals by case and by ACLs."""
    admin = RawClient(port + 1)
    assert admin.log_in("admin", PASSWORD).error_code == ErrorCode.NONE
    topic_id = prepare(admin)
    every = frozenset(question for case in CASES for question in allowances(case)[1])
    allow(admin, every)
    client = RawClient(port)
    make_group_and_transaction(client)
    client.close()
    found: dict[str, dict[str, list[int]]] = {case_id(case): {} for case in CASES}
    for allowed in dict.fromkeys(item for case in CASES for item in allowances(case)):
        asking = [case for case in CASES if allowed in allowances(case)]
        if any(case[0] in OF_TRANSACTIONS for case in asking):
            allow(admin, every)
            client = RawClient(port)
            begin_transaction(client)
            client.close()
        allow(admin, allowed)
        for case in asking:
            client = client_for(case, port, port + 1)
            try:
                found[case_id(case)][allowance_id(allowed)] = refusals(client, case, topic_id)
            except OSError as failure:
                raise SystemExit(
                    f"{case_id(case)} with {allowance_id(allowed)!r}: {failure!r}"
                ) from failure
            client.close()
            if case[0] in ("create_acls", "delete_acls"):
                allow(admin, allowed)
        print(f"{allowance_id(allowed) or 'nothing'}: {len(asking)} requests", flush=True)
    return found


def prepare(admin: RawClient) -> bytes:
    """Make the topic, and a token of another user; the topic's id."""
    topic = {
        "name": TOPIC, "num_partitions": 1, "replication_factor": 1, "assignments": [],
        "configs": [],
    }  # fmt: skip
    values = {"topics": [topic], "timeout": 10_000, "validate_only": False}
    created = admin.call("create_topics", 7, values)
    assert errors_in(created) == {0}
    version, token = REQUESTS["create_delegation_token"]
    assert errors_in(admin.call("create_delegation_token", version, token)) == {0}
    topic_id: bytes = created.topics[0].topic_id.bytes
    return topic_id


def refusals(client: RawClient, case: Case, topic_id: bytes) -> list[int]:
    """The refusals in Kafka's answer."""
    name, version, values = case
    if name != "create_delegation_token":
        return sorted(refusals_in(client.call(name, version, fresh(values, topic_id))))
    # kio cannot read the timestamps of a refusal, -1; the error code is the first field.
    client.send(name, version, values)
    _, data = client.receive()
    return sorted({int.from_bytes(data[1:3], "big")} & set(map(int, REFUSALS.values())))


def allow(admin: RawClient, allowed: frozenset[Question]) -> None:
    """Make these the only ACLs, and wait until the broker has them."""
    wanted = acls_for(allowed)
    assert errors_in(admin.call("delete_acls", 3, {"filters": [EVERYTHING]})) <= {0}
    creations = [
        {
            "resource_type": acl.resource_type,
            "resource_name": acl.resource_name,
            "resource_pattern_type": acl.pattern_type,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation,
            "permission_type": acl.permission,
        }
        for acl in wanted
    ]
    assert errors_in(admin.call("create_acls", 3, {"creations": creations})) <= {0}

    def present() -> set[tuple[int, str, int]]:
        answer = admin.call("describe_acls", 3, EVERYTHING)
        return {
            (resource.resource_type, resource.resource_name, each.operation)
            for resource in answer.resources
            for each in resource.acls
        }

    expected = {(acl.resource_type, acl.resource_name, acl.operation) for acl in wanted}
    eventually(lambda: present() == expected, "the broker has the ACLs")


if __name__ == "__main__":
    sys.exit(main())
