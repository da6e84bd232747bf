"""A hundred stories of share groups by Kafka's Java client: Kvorum prints what Kafka prints."""

from __future__ import annotations

import shutil

import pytest
from confluent_kafka import Producer

from tests.clients.java_tools import needs_java, tool
from tests.clients.queues import SETTINGS, outcomes, told
from tests.live.cluster import Cluster

pytestmark = [needs_java, pytest.mark.java, pytest.mark.live, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    settings = tuple(f"{name}={value}" for name, value in SETTINGS.items())
    with Cluster(tmp_path_factory.mktemp("queues"), settings=settings) as cluster:
        yield cluster


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK (javac)")
def test_share_groups_do_what_they_do_on_kafka(cluster, tmp_path):
    assert told(cluster.bootstrap, "told", tmp_path) == outcomes()


def test_kafkas_own_tools_read_and_manage_a_share_group(cluster):
    tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", cluster.bootstrap, "--create", "--topic", "orders"),
    )
    share_groups = (
        "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
        *("--bootstrap-server", cluster.bootstrap, "--group", "workers"),
    )
    reset = ("--reset-offsets", "--to-earliest", "--topic", "orders", "--execute")
    assert "orders" in tool(*share_groups, *reset)
    assert "orders" in tool(*share_groups, "--describe", "--offsets")
    assert "Empty" in tool(*share_groups, "--describe", "--state")
    assert "successful" in tool(*share_groups, "--delete")


def test_kafkas_console_consumer_reads_a_queue_and_its_dump_tool_the_state(cluster, tmp_path):
    writer = Producer({"bootstrap.servers": cluster.bootstrap})
    for value in ("one", "two", "three"):
        writer.produce("printed", value)
    writer.flush()
    tool(
        "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
        *("--bootstrap-server", cluster.bootstrap, "--group", "printers"),
        *("--reset-offsets", "--to-earliest", "--topic", "printed", "--execute"),
    )
    printed = tool(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        *("--bootstrap-server", cluster.bootstrap, "--topic", "printed", "--group", "printers"),
        *("--max-messages", "3", "--timeout-ms", "60000"),
    )
    assert printed.split() == ["one", "two", "three"]
    logs = sorted(cluster.data_dir.glob("**/__share_group_state-*/*.log"))
    said = tool(
        "org.apache.kafka.tools.DumpLogSegments",
        *("--files", ",".join(map(str, logs)), "--share-group-state-decoder"),
    )
    assert '"groupId":"printers"' in said
    assert '"startOffset":3' in said
