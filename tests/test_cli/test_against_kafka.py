"""The daily commands against Apache Kafka's own broker, in one process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kvorum.chaos.live.host.processes import start_process, stop_process
from kvorum.chaos.live.systems.kafka_jars import (
    OWN_LIBRARY,
    SERVER,
    format_storage,
    java_command,
    properties_text,
)
from tests.clients.java_tools import needs_java
from tests.live.clients import settings
from tests.live.cluster import Ports, run_kvorum
from tests.polling import DEADLINE_S, eventually

pytestmark = [needs_java, pytest.mark.java, pytest.mark.live, pytest.mark.timeout(240)]

STOP_TIMEOUT_MS = 10_000


def properties(folder: Path, ports: Ports) -> str:
    return properties_text(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{ports.controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": (
                f"PLAINTEXT://127.0.0.1:{ports.broker},CONTROLLER://127.0.0.1:{ports.controller}"
            ),
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(folder / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
    )


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker of Apache Kafka."""
    folder = tmp_path_factory.mktemp("kafka")
    ports = Ports()
    file = folder / "server.properties"
    file.write_text(properties(folder, ports))
    format_storage(OWN_LIBRARY, "Yk3vR2p1S9ORbV1xWqLz0g", str(file))
    flags = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    command = java_command(OWN_LIBRARY, SERVER, str(file), flags=flags)
    process = start_process(command, log_file=str(folder / "server.log"))
    bootstrap = f"127.0.0.1:{ports.broker}"
    try:
        eventually(
            lambda: run_kvorum("brokers", "list", "-b", bootstrap).returncode == 0,
            "Kafka answers",
            deadline_s=2 * DEADLINE_S,
        )
        yield bootstrap
    finally:
        stop_process(process, timeout_ms=STOP_TIMEOUT_MS)
        ports.close()


def said(kafka: str, *arguments: str) -> str:
    """The output of a command that must succeed."""
    done = run_kvorum(*arguments, "-b", kafka)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_records_groups_and_offsets(kafka):
    said(kafka, "topics", "create", "orders", "--partitions", "2", "--replication-factor", "1")
    said(kafka, "produce", "orders", "--key", "k", "--header", "h=1", "-z", "zstd", "a", "b", "c")
    said(kafka, "produce", "orders", "--key", "k", "--tombstone", "")
    rows = [
        json.loads(line) for line in said(kafka, "consume", "orders", "-f", "json").splitlines()
    ]
    assert [row["value"] for row in rows] == ["a", "b", "c", None]
    assert rows[0]["headers"] == [{"key": "h", "value": "1"}]
    (number,) = {row["partition"] for row in rows}
    assert said(kafka, "consume", "orders", "-g", "billing", "-n", "2").split() == ["a", "b"]
    assert said(kafka, "consume", "orders", "-g", "billing").split() == ["c", "null"]
    one = f"orders:{number}"
    plan = said(
        kafka, "groups", "reset-offsets", "billing", "--topic", one, "--shift-by", "-3",
        "--execute", "-o", "json",
    )  # fmt: skip
    assert [row["new_offset"] for row in json.loads(plan)] == [1]
    assert said(kafka, "consume", "orders", "-g", "billing", "-n", "1").split() == ["b"]
    said(kafka, "groups", "delete-offsets", "billing", "--topic", one)
    said(kafka, "topics", "trim", "orders", "--offset", "2", "-p", str(number))
    assert said(kafka, "consume", "orders").split() == ["c", "null"]
    view = json.loads(said(kafka, "top", "-o", "json"))
    assert view["brokers"][0]["size_bytes"] > 0
    assert {"orders"} <= {row["topic"] for row in view["topics"]}


def test_transactions(kafka):
    said(kafka, "topics", "create", "paid", "--partitions", "1", "--replication-factor", "1")
    made = Producer(settings(kafka, transactional_id="pay-1"))
    made.init_transactions(DEADLINE_S)
    made.begin_transaction()
    made.produce("paid", b"never", partition=0)
    assert made.flush(DEADLINE_S) == 0
    (row,) = json.loads(said(kafka, "transactions", "list", "-o", "json"))
    assert (row["transactional_id"], row["state"]) == ("pay-1", "Ongoing")
    (found,) = json.loads(said(kafka, "transactions", "describe", "pay-1", "-o", "json"))
    assert found["partitions"] == ["paid-0"]
    (producer,) = json.loads(said(kafka, "transactions", "producers", "paid", "-o", "json"))
    assert producer["start_offset"] == 0
    old = ("--max-transaction-timeout", "0s", "-o", "json")
    assert json.loads(said(kafka, "transactions", "find-hanging", *old)) == []
    said(kafka, "transactions", "abort", "pay-1")
    said(kafka, "produce", "paid", "seen")
    assert said(kafka, "consume", "paid").split() == ["seen"]
    assert said(kafka, "consume", "paid", "--isolation", "read_uncommitted").split() == [
        "never", "seen",
    ]  # fmt: skip
