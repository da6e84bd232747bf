"""Apache Kafka's own tools for partitions, unchanged: they move, grow and elect on Kvorum."""

from __future__ import annotations

import json

import pytest

from tests.clients.java_tools import needs_java, tool
from tests.live.clients import Topics
from tests.live.cluster import Cluster, broker_name
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.java, needs_java, pytest.mark.timeout(300)]

TOPICS = "org.apache.kafka.tools.TopicCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("java-partitions")
    with Cluster(folder, controllers=1, brokers=4) as cluster:
        yield cluster


def rows_of(cluster, topic):
    (found,) = cluster.cli_json("topics", "describe", topic)
    return found["partitions"]


def test_kafka_topics_adds_partitions(cluster):
    at = ("--bootstrap-server", cluster.bootstrap)
    Topics(cluster.bootstrap).create("java-grown", partitions=1, replicas=2)
    tool(TOPICS, *at, "--alter", "--topic", "java-grown", "--partitions", "3")
    assert len(rows_of(cluster, "java-grown")) == 3
    described = tool(TOPICS, *at, "--describe", "--topic", "java-grown")
    assert "PartitionCount: 3" in described
    assert "Elr:" in described


def test_kafka_reassign_partitions_moves_verifies_and_cancels(cluster, tmp_path):
    at = ("--bootstrap-server", cluster.bootstrap)
    Topics(cluster.bootstrap).create("java-moved", partitions=2, replicas=2)
    topics_file = tmp_path / "topics.json"
    topics_file.write_text(json.dumps({"version": 1, "topics": [{"topic": "java-moved"}]}))
    generated = tool(
        *(REASSIGN, *at, "--generate", "--broker-list", "103,104"),
        *("--topics-to-move-json-file", str(topics_file)),
    )
    plan = tmp_path / "plan.json"
    plan.write_text(generated.rpartition("configuration\n")[2])
    file = ("--reassignment-json-file", str(plan))
    assert "Successfully started" in tool(REASSIGN, *at, "--execute", *file)

    def is_complete():
        said = tool(REASSIGN, *at, "--verify", *file)
        return said.count("is completed") == 2

    eventually(is_complete, "kafka-reassign-partitions calls it completed")
    assert all(sorted(row["replicas"]) == [103, 104] for row in rows_of(cluster, "java-moved"))
    # Our own command reads the same file and agrees.
    rows = cluster.cli_json("partitions", "reassign", "--verify", str(plan))
    assert {row["state"] for row in rows} == {"complete"}

    cluster.kill(broker_name(101))
    stuck = tmp_path / "stuck.json"
    partitions = [{"topic": "java-moved", "partition": 0, "replicas": [101, 103]}]
    stuck.write_text(json.dumps({"version": 1, "partitions": partitions}))
    file = ("--reassignment-json-file", str(stuck))
    at = ("--bootstrap-server", f"127.0.0.1:{cluster.ports.broker + 1}")
    # Our command begins the move: the tool refuses a move to a broker that is down.
    begun = cluster.cli("partitions", "reassign", "--execute", str(stuck))
    assert begun.returncode == 0, begun.stderr
    assert "java-moved-0" in tool(REASSIGN, *at, "--list")
    # Without this option, the tool would need an answer of broker 101 to clear the throttles.
    cancelled = tool(REASSIGN, *at, "--cancel", "--preserve-throttles", *file)
    assert "Successfully cancelled" in cancelled
    assert "No partition reassignments found" in tool(REASSIGN, *at, "--list")
    cluster.restart(broker_name(101))


def test_kafka_leader_election_elects_preferred_and_unclean_leaders(cluster):
    at = ("--bootstrap-server", cluster.bootstrap)
    topics = Topics(cluster.bootstrap)
    topics.create("java-elected", replicas=2)
    first, second = rows_of(cluster, "java-elected")[0]["replicas"]
    partition = ("--topic", "java-elected", "--partition", "0")

    cluster.kill(broker_name(first))
    topics.wait_isr("java-elected", {second})
    cluster.restart(broker_name(first))
    topics.wait_isr("java-elected", {first, second})
    assert rows_of(cluster, "java-elected")[0]["leader"] == second
    said = tool(ELECT, *at, "--election-type", "preferred", *partition)
    assert "Successfully completed" in said
    assert rows_of(cluster, "java-elected")[0]["leader"] == first
    assert "already" in tool(ELECT, *at, "--election-type", "preferred", *partition)

    cluster.kill(broker_name(second))
    topics.wait_isr("java-elected", {first})
    cluster.kill(broker_name(first))
    cluster.restart(broker_name(second))
    eventually(lambda: rows_of(cluster, "java-elected")[0]["leader"] == -1, "nobody leads")
    said = tool(ELECT, *at, "--election-type", "unclean", *partition)
    assert "Successfully completed" in said
    assert rows_of(cluster, "java-elected")[0]["leader"] == second
    cluster.restart(broker_name(first))
