"""kcat, as people use it: list, produce, consume."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.live.cluster import Cluster
from tests.polling import DEADLINE_S

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("kcat")) as cluster:
        yield cluster


def kcat(cluster, *arguments, stdin=""):
    done = subprocess.run(
        ["kcat", "-b", cluster.bootstrap, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kcat_lists_brokers_and_topics(cluster):
    cluster.cli("topics", "create", "listed", "--partitions", "2", "--replication-factor", "3")
    listed = json.loads(kcat(cluster, "-L", "-J"))
    assert sorted(broker["id"] for broker in listed["brokers"]) == [101, 102, 103]
    (topic,) = [topic for topic in listed["topics"] if topic["topic"] == "listed"]
    assert len(topic["partitions"]) == 2
    assert all(len(partition["isrs"]) == 3 for partition in topic["partitions"])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat_produces_with_keys_and_headers_and_consumes_from_the_beginning(cluster, codec):
    topic = f"words-{codec}"
    cluster.cli("topics", "create", topic, "--partitions", "1", "--replication-factor", "3")
    lines = [f"k{i}:value-{i}-{'x' * 50}" for i in range(200)]
    produce = ["-P", "-t", topic, "-K:", "-H", "h=1", "-X", "acks=all", "-z", codec]
    kcat(cluster, *produce, stdin="\n".join(lines) + "\n")
    consume = ["-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%k:%s %h\n"]
    assert kcat(cluster, *consume).splitlines() == [f"{line} h=1" for line in lines]


def test_kcat_asks_for_an_offset_by_time(cluster):
    cluster.cli("topics", "create", "timed", "--partitions", "1", "--replication-factor", "3")
    kcat(cluster, "-P", "-t", "timed", stdin="a\nb\n")
    assert "offset 0" in kcat(cluster, "-Q", "-t", "timed:0:0")


def test_kcat_takes_an_idempotent_producer(cluster):
    cluster.cli("topics", "create", "once", "--partitions", "1", "--replication-factor", "3")
    produce = ["-P", "-t", "once", "-X", "enable.idempotence=true"]
    kcat(cluster, *produce, stdin="a\nb\nc\n")
    consume = ["-C", "-t", "once", "-o", "beginning", "-e", "-q"]
    assert kcat(cluster, *consume).split() == ["a", "b", "c"]
