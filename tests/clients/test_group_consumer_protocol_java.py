"""Java's consumer with group.protocol=consumer, and Apache Kafka's tools on such groups."""

from __future__ import annotations

import contextlib
import subprocess

import pytest

from tests.clients.groups import RECORDS_PER_PARTITION, committed_offsets, described, fill, produce
from tests.clients.java_tools import console_consumer, groups, java, needs_java, rows, tool
from tests.live.cluster import Cluster, broker_name
from tests.polling import DEADLINE_S, eventually

pytestmark = [
    pytest.mark.live,
    pytest.mark.java,
    pytest.mark.timeout(300),
    needs_java,
]

ALL = 4 * RECORDS_PER_PARTITION
SETTINGS = (
    "group.consumer.session.timeout.ms=6000",
    "group.consumer.min.session.timeout.ms=6000",
    "group.consumer.heartbeat.interval.ms=500",
    "group.consumer.min.heartbeat.interval.ms=500",
    "offsets.topic.num.partitions=5",
)
NEW = ("--command-property", "group.protocol=consumer")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("java-consumer"), settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def topic(cluster):
    fill(cluster.bootstrap, "java")
    return "java"


@contextlib.contextmanager
def member(cluster, topic, group, *more):
    """A console consumer that runs on; yields its process."""
    arguments = (
        *("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--group", group),
        *("--from-beginning", *NEW, *more),
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


def sizes(cluster, group):
    found = described(cluster, group)
    if found is None or found["state"] != "Stable":
        return None
    return sorted(len(m["partitions"]) for m in found["members"])


def test_the_console_consumer_reads_in_such_a_group_and_goes_on_where_it_was(cluster, topic):
    arguments = ("--topic", topic, "--group", "console", "--from-beginning", *NEW)
    first = console_consumer(cluster, *arguments, "--max-messages", "50").split()
    rest = console_consumer(cluster, *arguments, "--max-messages", str(ALL - 50)).split()
    assert sorted(first + rest) == sorted(
        f"{p}/{n}" for p in range(4) for n in range(RECORDS_PER_PARTITION)
    )
    assert committed_offsets(cluster.bootstrap, "console", topic) == [RECORDS_PER_PARTITION] * 4


def test_two_members_rebalance_and_kafkas_tools_show_it(cluster, topic):
    with member(cluster, topic, "pair"):
        eventually(lambda: sizes(cluster, "pair") == [4], "one has all")
        with member(cluster, topic, "pair", "--command-property", "group.remote.assignor=range"):
            eventually(lambda: sizes(cluster, "pair") == [2, 2], "both have two")
            of_group = ("--describe", "--group", "pair")
            found = rows(groups(cluster, *of_group, "--members", "--verbose"))
            assert sorted(row["#PARTITIONS"] for row in found) == ["2", "2"]
            state = groups(cluster, *of_group, "--state")
            assert "Stable" in state
            assert "range" in state
            listed = groups(cluster, "--list", "--type", "consumer", "--state", "stable")
            assert "pair" in listed
            assert "pair" not in groups(cluster, "--list", "--type", "classic").split()
            refused = groups(cluster, "--delete", "--group", "pair")
            assert "GroupNotEmptyException" in refused
        # The second was killed: the first takes over after its session.
        eventually(lambda: sizes(cluster, "pair") == [4], "the first has all again")


def test_members_outlive_their_coordinators_broker(cluster, topic):
    with member(cluster, topic, "outlive"), member(cluster, topic, "outlive"):
        eventually(lambda: sizes(cluster, "outlive") == [2, 2], "both have two")
        before = described(cluster, "outlive")
        broker = broker_name(before["coordinator"])
        cluster.kill(broker)
        produce(cluster.bootstrap, topic)
        eventually(
            lambda: sum(committed_offsets(cluster.bootstrap, "outlive", topic)) == 2 * ALL,
            "all is read and committed",
        )
        after = described(cluster, "outlive")
        ids = [{m["member_id"] for m in found["members"]} for found in (before, after)]
        assert ids[0] == ids[1]
        cluster.restart(broker)


def test_kafka_dump_log_decodes_what_we_write(cluster, topic):
    arguments = ("--topic", topic, "--group", "dumped", "--from-beginning", *NEW)
    console_consumer(cluster, *arguments, "--max-messages", "10")

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

    lines = eventually(lambda: (found := dumped()) and len(found) >= 8 and found, "all is there")
    for part in (
        '"type":"3"', '"type":"5"', '"type":"6"', '"type":"7"', '"type":"8"',
        '"epoch":1', '"subscribedTopicNames":["java"]', '"assignmentEpoch":1', '"memberEpoch":1',
    ):  # fmt: skip
        assert any(part in line for line in lines), (part, lines)
