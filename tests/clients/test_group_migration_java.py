"""Java's consumers of both protocols in one group, and Apache Kafka's tools on it."""

from __future__ import annotations

import contextlib
import subprocess

import pytest

from tests.clients.groups import RECORDS_PER_PARTITION, committed_offsets, described, fill, produce
from tests.clients.java_tools import groups, java, needs_java, rows, tool
from tests.live.cluster import Cluster
from tests.polling import DEADLINE_S, eventually

pytestmark = [
    pytest.mark.live,
    pytest.mark.java,
    pytest.mark.timeout(300),
    needs_java,
]

ALL = 4 * RECORDS_PER_PARTITION
SETTINGS = (
    "group.initial.rebalance.delay.ms=100",
    "group.min.session.timeout.ms=1000",
    "group.consumer.session.timeout.ms=6000",
    "group.consumer.min.session.timeout.ms=6000",
    "group.consumer.heartbeat.interval.ms=500",
    "group.consumer.min.heartbeat.interval.ms=500",
    "offsets.topic.num.partitions=5",
)
NEW = ("group.protocol=consumer",)
OLD = ("group.protocol=classic", "session.timeout.ms=6000", "heartbeat.interval.ms=500")
COOPERATIVE = (
    *OLD,
    "partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("java-migration"), settings=SETTINGS) as cluster:
        yield cluster


@contextlib.contextmanager
def member(cluster, topic, group, properties):
    """A console consumer that runs until it is killed, and so never leaves its group."""
    more = [part for row in properties for part in ("--command-property", row)]
    arguments = (
        *("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--group", group),
        *("--from-beginning", "--command-property", "auto.commit.interval.ms=200", *more),
    )
    process = subprocess.Popen(
        java("org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments, heap="128m"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(DEADLINE_S)


def shared(cluster, group):
    """(kind of the group, sorted numbers of partitions) once it is stable."""
    found = described(cluster, group)
    if found is None or found["state"] != "Stable":
        return None
    return found["type"], sorted(len(m["partitions"]) for m in found["members"])


@pytest.mark.parametrize("old", [OLD, COOPERATIVE], ids=["eager", "cooperative"])
def test_java_members_go_to_the_new_protocol_and_back(cluster, old):
    group = topic = f"java-{len(old)}"
    fill(cluster.bootstrap, topic)

    def becomes(kind, sizes):
        eventually(lambda: shared(cluster, group) == (kind, sizes), f"{kind}: {sizes}")

    with contextlib.ExitStack() as second:
        with contextlib.ExitStack() as first:
            first.enter_context(member(cluster, topic, group, old))
            becomes("classic", [4])
            second.enter_context(member(cluster, topic, group, NEW))
            becomes("consumer", [2, 2])
            seen = rows(groups(cluster, "--describe", "--group", group, "--members"))
            assert sorted(row["#PARTITIONS"] for row in seen) == ["2", "2"]
            assert group in groups(cluster, "--list", "--type", "consumer")
            produce(cluster.bootstrap, topic)
        # The classic one was killed; its own session time-out holds.
        becomes("consumer", [4])
        with member(cluster, topic, group, old):
            becomes("consumer", [2, 2])
            second.close()
            becomes("classic", [4])
            produce(cluster.bootstrap, topic)
            eventually(
                lambda: sum(committed_offsets(cluster.bootstrap, group, topic)) == 3 * ALL,
                "all is read and committed",
            )


def test_kafka_dump_log_decodes_a_group_that_was_upgraded(cluster):
    fill(cluster.bootstrap, "dumped")
    with member(cluster, "dumped", "dumped", OLD):
        eventually(lambda: shared(cluster, "dumped") == ("classic", [4]), "it is classic")
        with member(cluster, "dumped", "dumped", NEW):
            eventually(lambda: shared(cluster, "dumped") == ("consumer", [2, 2]), "upgraded")
    eventually(lambda: shared(cluster, "dumped") != ("consumer", [2, 2]), "they are gone")

    def dumped():
        text = ""
        for folder in sorted((cluster.data_dir / "broker-101").glob("__consumer_offsets-*")):
            segment = folder / f"{0:020d}.log"
            if segment.exists():
                text += tool(
                    "org.apache.kafka.tools.DumpLogSegments",
                    *("--files", str(segment), "--offsets-decoder", "--print-data-log"),
                )
        return [line for line in text.splitlines() if '"dumped"' in line]

    def has_all():
        lines = dumped()
        parts = ('"classicMemberMetadata":{"sessionTimeoutMs":6000', '"name":"range"')
        return all(any(part in line for line in lines) for part in parts) and lines

    eventually(has_all, "the classic member's metadata is decoded")
