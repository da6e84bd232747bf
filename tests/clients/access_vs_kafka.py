"""`python -m tests.clients.access_vs_kafka`: what Apache Kafka refuses, by API and ACLs.

The requests of `tests.test_access`, each sent with several sets of ACLs to one broker of Apache
Kafka with its StandardAuthorizer. Writes tests/test_access/kafka_refusals.json, with which Kvorum's
refusals are compared. The client of the requests is ANONYMOUS on a PLAINTEXT listener; brokers and
the administrator log in on another one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from bench.cluster import wait_for_port
from bench.kafka_cluster import VERSION, fetch_jars
from kvorum.chaos.live.processes import start_process, stop_process
from kvorum.chaos.live.systems.kafka_jars import (
    SERVER,
    format_storage,
    java_command,
    properties_text,
)
from kvorum.metadata.access.model import Acl
from tests.clients.families import KAFKA_LIBRARY
from tests.polling import DEADLINE_S, eventually
from tests.test_access.asking import (
    CASES,
    OF_TRANSACTIONS,
    Question,
    acls_for,
    allowance_id,
    allowances,
    begin_transaction,
    case_id,
    fresh,
    make_group_and_transaction,
    refusals_in,
)
from tests.test_access.requests_of_apis import TOPIC
from tests.test_broker.raw_client import RawClient
from tests.tree import ROOT

DEFAULT_PORT = 28_900
START_TIMEOUT_S = 120.0
RECORDED = ROOT / "tests" / "test_access" / "kafka_refusals.json"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
EVERYTHING = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
    AclPermissionType.ANY,
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.access_vs_kafka")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="first port to use")
    port = parser.parse_args().port
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="access-vs-kafka-")))
        fetch_jars(KAFKA_LIBRARY)
        file = folder / "server.properties"
        file.write_text(properties_text(properties(folder, port)), encoding="utf-8")
        format_storage(KAFKA_LIBRARY, "Yk3vR2p1S9ORbV1xWqLz0g", str(file))
        command = java_command(KAFKA_LIBRARY, SERVER, str(file), flags=("-Xmx512m",))
        process = start_process(command, log_file=str(folder / "server.log"))
        stack.callback(lambda: stop_process(process, timeout_ms=5_000))
        stack.callback(process.kill)
        wait_for_port((f"127.0.0.1:{port}",), START_TIMEOUT_S)
        refusals = record(port)
    text = json.dumps({"version": VERSION, "refusals": refusals}, indent=1, sort_keys=True)
    RECORDED.write_text(text + "\n", encoding="utf-8")
    print(
        f"{sum(map(len, refusals.values()))} answers of Apache Kafka {VERSION} in {RECORDED.name}"
    )
    return 0


def properties(folder: Path, port: int) -> dict[str, str]:
    """One node that is broker and controller."""
    users = f'{PLAIN} username="admin" password="secret" user_admin="secret";'
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
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


def record(port: int) -> dict[str, dict[str, list[int]]]:
    """Refusals by case and by ACLs."""
    admin = AdminClient({
        "bootstrap.servers": f"127.0.0.1:{port + 1}", "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN", "sasl.username": "admin", "sasl.password": "secret",
    })  # fmt: skip
    for made in admin.create_topics([NewTopic(TOPIC, 1, 1)]).values():
        made.result(DEADLINE_S)
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
            client = RawClient(port)
            try:
                answer = client.call(case[0], case[1], fresh(case[2]))
            except OSError as failure:
                raise SystemExit(
                    f"{case_id(case)} with {allowance_id(allowed)!r}: {failure!r}"
                ) from failure
            client.close()
            found[case_id(case)][allowance_id(allowed)] = sorted(refusals_in(answer))
            if case[0] in ("create_acls", "delete_acls"):
                allow(admin, allowed)
        print(f"{allowance_id(allowed) or 'nothing'}: {len(asking)} requests", flush=True)
    return found


def allow(admin: AdminClient, allowed: frozenset[Question]) -> None:
    """Make these the only ACLs, and wait until the broker has them."""
    wanted = [binding(acl) for acl in acls_for(allowed)]
    present = admin.describe_acls(EVERYTHING).result(DEADLINE_S)
    gone = [filter_of(acl) for acl in present if acl not in wanted]
    for done in (admin.delete_acls(gone) if gone else {}).values():
        done.result(DEADLINE_S)
    for done in (admin.create_acls(wanted) if wanted else {}).values():
        done.result(DEADLINE_S)
    eventually(
        lambda: set(admin.describe_acls(EVERYTHING).result(DEADLINE_S)) == set(wanted),
        "the broker has the ACLs",
    )


def _fields(acl: Acl) -> tuple[Any, ...]:
    return (
        ResourceType[acl.resource_type.name.replace("CLUSTER", "BROKER")],
        acl.resource_name,
        ResourcePatternType[acl.pattern_type.name],
        acl.principal,
        acl.host,
        AclOperation[acl.operation.name],
        AclPermissionType[acl.permission.name],
    )


def binding(acl: Acl) -> AclBinding:
    return AclBinding(*_fields(acl))


def filter_of(acl: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        acl.restype, acl.name, acl.resource_pattern_type, acl.principal, acl.host, acl.operation,
        acl.permission_type,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
