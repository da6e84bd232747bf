"""The programs of Apache Kafka 4.4's own system tests on Kvorum, while brokers are killed.

VerifiableProducer prints a line of JSON for each acknowledged record, VerifiableConsumer and
VerifiableShareConsumer one for the records that each poll gave them. No acknowledged record may be
missing.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.applications import Application, needs_jar
from tests.clients.java_tools import needs_java
from tests.live.clients import Topics
from tests.live.cluster import Cluster, broker_name
from tests.polling import DEADLINE_S, eventually

pytestmark = [
    needs_java,
    needs_jar("kafka-tools"),
    pytest.mark.java,
    pytest.mark.live,
    pytest.mark.timeout(900),
]

PARTITIONS = 3
RECORDS_PER_SECOND = 300
MORE = 300
"""Records between two faults."""
KILLS = 2
PROGRAMS = "org.apache.kafka.tools.Verifiable"
SETTINGS = [
    "offsets.topic.num.partitions=5",
    "share.coordinator.state.topic.num.partitions=5",
    "group.initial.rebalance.delay.ms=200",
    "group.consumer.session.timeout.ms=6000",
    "group.consumer.min.session.timeout.ms=6000",
    "group.consumer.heartbeat.interval.ms=500",
    "group.consumer.min.heartbeat.interval.ms=500",
    "group.share.min.record.lock.duration.ms=1000",
    "group.share.record.lock.duration.ms=5000",
]
CONSUMERS = {
    "classic": ("Consumer", "--group-protocol", "classic", "--session-timeout", "6000"),
    "consumer": ("Consumer", "--group-protocol", "consumer"),
    "share": (
        "ShareConsumer", "--acknowledgement-mode", "sync", "--offset-reset-strategy", "earliest",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("verifiable"), settings=SETTINGS) as cluster:
        yield cluster


def events(program: Application, name: str) -> list[dict[str, Any]]:
    """What the program printed about `name`, in its order; the last line may not be whole yet."""
    found = []
    for line in program.said().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            event = json.loads(line)
            if isinstance(event, dict) and event.get("name") == name:
                found.append(event)
    return found


def acknowledged(producer: Application) -> dict[tuple[int, int], str]:
    """(partition, offset) to value, of every acknowledged record."""
    return {
        (event["partition"], event["offset"]): event["value"]
        for event in events(producer, "producer_send_success")
    }


def consumed(*consumers: Application) -> dict[tuple[int, int], str]:
    """(partition, offset) to value, of every record that one of the consumers saw."""
    return {
        (event["partition"], event["offset"]): event["value"]
        for consumer in consumers
        for event in events(consumer, "record_data")
    }


def counted(program: Application, name: str) -> int:
    return program.said().count(f'"name":"{name}"')


@pytest.mark.parametrize("protocol", CONSUMERS)
def test_no_acknowledged_record_is_missing_under_kills(
    cluster: Cluster, tmp_path: Path, protocol: str
) -> None:
    topic = f"numbers-{protocol}"
    Topics(cluster.bootstrap).create(topic, partitions=PARTITIONS, min_insync_replicas=2)
    where = ("--bootstrap-server", cluster.bootstrap, "--topic", topic)
    program, *options = CONSUMERS[protocol]

    def consumer(name: str) -> Application:
        arguments = (*where, "--group-id", f"readers-{protocol}", "--verbose", *options)
        return Application(tmp_path / name, f"{PROGRAMS}{program}", *arguments)

    def await_more(running: Application, name: str, what: str) -> None:
        goal = counted(running, name) + MORE
        eventually(
            lambda: counted(running, name) >= goal,
            f"{what}; it said {running.errors()[-2_000:]}",
            deadline_s=2 * DEADLINE_S,
        )

    producer = Application(
        tmp_path / "producer", f"{PROGRAMS}Producer", *where,
        "--throughput", str(RECORDS_PER_SECOND),
    )  # fmt: skip
    first, second = running = [consumer("first"), consumer("second")]
    try:
        await_more(first, "record_data", "the first consumer has records")
        await_more(second, "record_data", "the second consumer has records")
        for partition in range(KILLS):
            victim = broker_name(Topics(cluster.bootstrap).leader(topic, partition))
            cluster.kill(victim)
            await_more(producer, "producer_send_success", "records are acknowledged")
            cluster.restart(victim)
            await_more(producer, "producer_send_success", "records are acknowledged")
            if partition == 0:
                first.kill()
                running.append(consumer("third"))
        producer.interrupt()
        written = acknowledged(producer)
        eventually(
            lambda: written.keys() <= consumed(*running).keys(),
            "all that was acknowledged is consumed",
            deadline_s=2 * DEADLINE_S,
        )
        for one in running[1:]:
            one.interrupt()
            assert events(one, "shutdown_complete"), one.errors()[-2_000:]
    finally:
        for one in (producer, *running):
            one.kill()
    read = consumed(*running)
    assert {place: read[place] for place in written} == written
