"""Apache Kafka's own tools and consumer in groups, and our records read by them."""

from __future__ import annotations

import json

import pytest

from tests.clients.groups import (
    QUICK_GROUPS,
    RECORDS_PER_PARTITION,
    Reader,
    committed_offsets,
    fill,
    together,
)
from tests.clients.java_tools import console_consumer, groups, needs_java, rows, tool
from tests.live.cluster import Cluster
from tests.polling import eventually

pytestmark = [
    pytest.mark.live,
    pytest.mark.java,
    pytest.mark.timeout(300),
    needs_java,
]

ALL = 4 * RECORDS_PER_PARTITION


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    settings = (*QUICK_GROUPS, "offsets.topic.num.partitions=5")
    with Cluster(tmp_path_factory.mktemp("java-groups"), settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def topic(cluster):
    fill(cluster.bootstrap, "java")
    return "java"


def documents_of(text):
    """The JSON documents in the formatters' output, which has no separator between them."""
    found, position = [], 0
    decoder = json.JSONDecoder()
    while (position := text.find("{", position)) >= 0:
        document, position = decoder.raw_decode(text, position)
        found.append(document)
    return found


def test_the_console_consumer_reads_in_a_group_and_goes_on_where_it_was(cluster, topic):
    arguments = ("--topic", topic, "--group", "console", "--from-beginning")
    first = console_consumer(cluster, *arguments, "--max-messages", "50").split()
    assert len(first) == 50
    rest = console_consumer(cluster, *arguments, "--max-messages", str(ALL - 50)).split()
    assert sorted(first + rest) == sorted(
        f"{p}/{n}" for p in range(4) for n in range(RECORDS_PER_PARTITION)
    )
    assert committed_offsets(cluster.bootstrap, "console", topic) == [RECORDS_PER_PARTITION] * 4


@pytest.mark.parametrize(
    "assignor", ["RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor"]
)
def test_javas_assignors_work(cluster, topic, assignor):
    read = console_consumer(
        cluster,
        *("--topic", topic, "--group", assignor, "--from-beginning"),
        *("--max-messages", str(ALL)),
        "--command-property",
        f"partition.assignment.strategy=org.apache.kafka.clients.consumer.{assignor}",
    )
    assert len(read.split()) == ALL


def test_a_java_consumer_is_a_static_member(cluster, topic):
    arguments = (
        *("--topic", topic, "--group", "static-java", "--from-beginning"),
        *("--command-property", "group.instance.id=one"),
    )
    first = console_consumer(cluster, *arguments, "--max-messages", "50").split()
    rest = console_consumer(cluster, *arguments, "--max-messages", str(ALL - 50)).split()
    assert len({*first, *rest}) == ALL


def test_kafka_consumer_groups_lists_and_describes(cluster, topic):
    reader = Reader(cluster.bootstrap, "watched", topic, client_id="watcher")
    together([reader], lambda: len(reader.seen) == ALL, "all records are read")
    reader.commit()
    assert "watched" in groups(cluster, "--list").split()
    listed = groups(cluster, "--list", "--state", "stable")
    assert ["watched", "Stable"] in [line.split() for line in listed.splitlines()]
    listed = groups(cluster, "--list", "--type", "classic")
    assert ["watched", "Classic"] in [line.split() for line in listed.splitlines()]
    described = rows(groups(cluster, "--describe", "--group", "watched"))
    assert sorted((row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in described) == [
        (str(p), "30", "0") for p in range(4)
    ]
    assert {row["CLIENT-ID"] for row in described} == {"watcher"}
    assert {row["HOST"] for row in described} == {"/127.0.0.1"}
    (member,) = rows(groups(cluster, "--describe", "--group", "watched", "--members"))
    assert (member["CLIENT-ID"], member["#PARTITIONS"]) == ("watcher", "4")
    state = groups(cluster, "--describe", "--group", "watched", "--state")
    assert "Stable" in state
    assert "range" in state
    reader.close()


def test_kafka_consumer_groups_resets_and_deletes(cluster, topic):
    reader = Reader(cluster.bootstrap, "reset", topic)
    together([reader], lambda: len(reader.seen) == ALL, "all records are read")
    reader.commit()
    of_group = ("--group", "reset")
    refused = groups(cluster, "--reset-offsets", *of_group, "--all-topics", "--to-earliest",
                     "--execute")  # fmt: skip
    assert "can only be reset if the group" in refused
    refused = groups(cluster, "--delete", *of_group)
    assert "GroupNotEmptyException" in refused
    refused = groups(cluster, "--delete-offsets", *of_group, "--topic", topic)
    assert "subscribed" in refused
    reader.close()
    done = groups(cluster, "--reset-offsets", *of_group, "--topic", f"{topic}:1,2",
                  "--to-offset", "7", "--execute")  # fmt: skip
    assert [row["NEW-OFFSET"] for row in rows(done)] == ["7", "7"]
    assert committed_offsets(cluster.bootstrap, "reset", topic) == [30, 7, 7, 30]
    groups(cluster, "--reset-offsets", *of_group, "--topic", topic, "--shift-by", "-5",
           "--execute")  # fmt: skip
    assert committed_offsets(cluster.bootstrap, "reset", topic) == [25, 2, 2, 25]
    groups(cluster, "--delete-offsets", *of_group, "--topic", f"{topic}:0")
    assert committed_offsets(cluster.bootstrap, "reset", topic)[0] == -1001
    assert "successful" in groups(cluster, "--delete", *of_group)
    assert "reset" not in groups(cluster, "--list").split()
    missing = groups(cluster, "--describe", *of_group)
    assert "does not exist" in missing or "not found" in missing.lower(), missing


def test_kafkas_formatters_read_what_we_write(cluster, topic):
    reader = Reader(cluster.bootstrap, "formatted", topic)
    together([reader], lambda: len(reader.seen) == ALL, "all records are read")
    reader.commit()

    def documents(formatter):
        text = console_consumer(
            cluster,
            *("--topic", "__consumer_offsets", "--from-beginning"),
            *("--formatter", f"org.apache.kafka.tools.consumer.{formatter}"),
            silence_ms=5_000,
        )
        return documents_of(text)

    offsets = [
        row
        for row in documents("OffsetsMessageFormatter")
        if row["key"]["data"]["group"] == "formatted"
    ]
    written = {row["key"]["data"]["partition"]: row["value"]["data"]["offset"] for row in offsets}
    assert written == dict.fromkeys(range(4), 30)
    assert {row["value"]["version"] for row in offsets} == {4}
    found = [
        row
        for row in documents("GroupMetadataMessageFormatter")
        if row["key"]["data"]["group"] == "formatted"
    ]
    first, last = found[0]["value"], found[-1]["value"]
    assert (first["data"]["protocolType"], first["data"]["members"]) == ("", [])
    assert (last["version"], last["data"]["protocol"]) == (3, "range")
    assert len(last["data"]["members"]) == 1
    reader.close()


def test_kafka_dump_log_decodes_what_we_write(cluster, topic):
    reader = Reader(cluster.bootstrap, "dumped", topic)
    together([reader], lambda: len(reader.seen) == ALL, "all records are read")
    reader.commit()
    reader.close()

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

    lines = eventually(lambda: (found := dumped()) and len(found) >= 6 and found, "all is there")
    assert any('"offset":30' in line for line in lines)
    assert any('"protocol":"range"' in line for line in lines)
