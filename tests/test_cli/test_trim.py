"""`kvorum topics trim` against a cluster, and what Kafka's client sees of it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.command import kvorum
from tests.live.clients import Topics, settings
from tests.live.cluster import Cluster
from tests.polling import DEADLINE_S
from tests.test_cli.pipes import piped, sent


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("trim"), controllers=1, brokers=2) as cluster:
        Topics(cluster.bootstrap).create("logs", partitions=2, replicas=2)
        for partition in range(2):
            for turn in range(10):
                time_ms = 1_700_000_000_000 + 1000 * turn
                sent(cluster, "logs", f"{turn}", "-p", partition, "--timestamp", time_ms)
        yield cluster


def starts(cluster: Cluster) -> list[int]:
    """The log starts as librdkafka sees them."""
    client = Consumer(settings(cluster.bootstrap, group_id="none"))
    try:
        marks = [
            client.get_watermark_offsets(TopicPartition("logs", p), timeout=DEADLINE_S)
            for p in range(2)
        ]
    finally:
        client.close()
    return [low for low, _ in marks]


def trimmed(cluster: Cluster, *arguments: object) -> list[tuple[int, str, int]]:
    done = piped(cluster, "topics", "trim", "logs", *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    return [(row["partition"], row["error"], row["log_start_offset"]) for row in rows]


@pytest.mark.live
def test_records_in_front_of_an_offset_or_a_time_are_deleted(cluster):
    assert trimmed(cluster, "--offset", 3, "--dry-run") == [(0, "NONE", 3), (1, "NONE", 3)]
    assert starts(cluster) == [0, 0]
    assert trimmed(cluster, "--offset", 3, "-p", 1) == [(1, "NONE", 3)]
    assert starts(cluster) == [0, 3]
    # Partition 1 already begins at 3, behind the offset: it stays as it is.
    assert trimmed(cluster, "--offset", 2) == [(0, "NONE", 2), (1, "NONE", 3)]
    assert trimmed(cluster, "--offset", "@1700000005") == [(0, "NONE", 5), (1, "NONE", 5)]
    assert trimmed(cluster, "--offset", "-1") == [(0, "NONE", 9), (1, "NONE", 9)]
    assert starts(cluster) == [9, 9]
    done = piped(cluster, "topics", "trim", "logs", "--offset", 11)
    assert done.returncode == 1
    assert b"kvorum: logs-0: offset 11 is beyond its end, 10" in done.stderr
    assert starts(cluster) == [9, 9]
    assert trimmed(cluster, "--offset", "end") == [(0, "NONE", 10), (1, "NONE", 10)]
    table = piped(cluster, "topics", "trim", "logs", "--offset", "end", "-p", 0).stdout
    assert table.split()[-4:] == [b"logs", b"0", b"trimmed", b"10"]


@pytest.mark.live
def test_what_cannot_be_trimmed_is_named(cluster):
    done = piped(cluster, "topics", "trim", "nowhere", "--offset", "end")
    assert done.returncode == 1 and b"topic nowhere: UNKNOWN_TOPIC_OR_PARTITION" in done.stderr
    done = piped(cluster, "topics", "trim", "logs", "--offset", "end", "-p", 2)
    assert done.returncode == 1 and b"logs-2: there is no such partition" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Missing option '--offset'"),
        (["--offset", "soon"], "'soon' is no offset"),
        (["--offset", "end", "--bootstrap-controller", "h:1"], "give --bootstrap-server"),
    ],
)
def test_bad_options_are_refused(arguments, words):
    code, _, err = kvorum("topics", "trim", "logs", *arguments)
    assert code == 2 and words in " ".join(err.split())
