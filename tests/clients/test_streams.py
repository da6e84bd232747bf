"""Applications of Kafka Streams 4.4 on Kvorum, unchanged: counts and joins are exact under kills.

Two instances of one application count words and join them with a table, exactly once (KIP-447). An
instance and brokers are killed meanwhile. In the end each word has its true count, and each record
was joined once.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kvorum.chaos.live.systems.kafka_jars import OWN_LIBRARY
from tests.clients.java_tools import needs_java, tool
from tests.live.clients import Topics, settings
from tests.live.cluster import Cluster, broker_name, run_kvorum
from tests.polling import DEADLINE_S, eventually

pytestmark = [
    needs_java,
    pytest.mark.java,
    pytest.mark.live,
    pytest.mark.timeout(400),
    pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK (javac)"),
    pytest.mark.skipif(
        not any(OWN_LIBRARY.glob("kafka-streams-*.jar")), reason="needs Kafka Streams' jar"
    ),
]

SOURCES = Path(__file__).resolve().parent / "java_streams"
TOPICS = ("lines", "languages", "counted", "joined")
PARTITIONS = 3
WORDS = [f"word-{number}" for number in range(20)]
ROUNDS, LINES = 6, 100
SETTINGS = [
    "offsets.topic.num.partitions=5",
    "transaction.state.log.num.partitions=5",
    "group.initial.rebalance.delay.ms=200",
    "group.streams.initial.rebalance.delay.ms=200",
    "group.streams.session.timeout.ms=6000",
    "group.streams.min.session.timeout.ms=6000",
    "group.streams.heartbeat.interval.ms=500",
    "group.streams.min.heartbeat.interval.ms=500",
    "group.streams.num.standby.replicas=1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=200",
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("streams"), settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    sources = sorted(map(str, SOURCES.glob("*.java")))
    subprocess.run(["javac", "-d", str(folder), "-cp", f"{OWN_LIBRARY}/*", *sources], check=True)
    return folder


class Instance:
    """One process of the application."""

    def __init__(
        self, cluster: Cluster, classes: Path, folder: Path, prefix: str, **configs: str
    ) -> None:
        self.log_file = folder / "log"
        folder.mkdir()
        self._log = self.log_file.open("w", encoding="utf-8")
        pairs = [f"{name.replace('_', '.')}={value}" for name, value in configs.items()]
        self.process = subprocess.Popen(
            [
                *("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                *("-cp", f"{classes}:{OWN_LIBRARY}/*", "Counting"),
                *(cluster.bootstrap, prefix, f"state.dir={folder / 'state'}", *pairs),
            ],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def said(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def end(self) -> None:
        """Close the application, as a user does."""
        self.process.communicate(timeout=DEADLINE_S)
        self._log.close()

    def kill(self) -> None:
        self.process.kill()
        self.end()


def read_all(bootstrap: str, topic: str) -> list[tuple[str, str]]:
    """(key, value) of all committed records, each partition in order."""
    reader = Consumer(
        settings(
            bootstrap, group_id="reader", enable_auto_commit=False, enable_partition_eof=True,
            isolation_level="read_committed",
        )
    )  # fmt: skip
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found, at_end = [], set()
    while len(at_end) < PARTITIONS:
        message = reader.poll(DEADLINE_S)
        assert message is not None, "no more records"
        if message.error():
            at_end.add(message.partition())
        else:
            found.append((message.key().decode(), message.value().decode()))
    reader.close()
    return found


def make_topics(bootstrap: str, prefix: str) -> None:
    for name in TOPICS:
        Topics(bootstrap).create(prefix + name, partitions=PARTITIONS, min_insync_replicas=2)
    producer = Producer(settings(bootstrap, enable_idempotence=True, partitioner="murmur2_random"))
    for word in WORDS:
        producer.produce(f"{prefix}languages", f"language of {word}", key=word)
    assert producer.flush(DEADLINE_S) == 0


def write_lines(bootstrap: str, topic: str, rng: random.Random, counts: Counter[str]) -> None:
    producer = Producer(settings(bootstrap, enable_idempotence=True))
    for _ in range(LINES):
        words = rng.choices(WORDS, k=5)
        counts.update(words)
        producer.produce(topic, " ".join(words))
    assert producer.flush(DEADLINE_S) == 0


@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_counts_and_joins_are_exact_under_kills(
    cluster: Cluster, classes: Path, tmp_path: Path, protocol: str
) -> None:
    bootstrap = cluster.bootstrap
    application = f"words-{protocol}"
    prefix = f"{protocol}-"
    make_topics(bootstrap, prefix)
    rng = random.Random(7)
    counts: Counter[str] = Counter()
    number = iter(range(10))

    def started() -> Instance:
        return Instance(
            cluster,
            classes,
            tmp_path / f"instance-{next(number)}",
            prefix,
            application_id=application,
            group_protocol=protocol,
            processing_guarantee="exactly_once_v2",
            num_stream_threads="2",
            **({"session_timeout_ms": "6000"} if protocol == "classic" else {}),
        )

    instances = [started(), started()]
    try:
        for round_ in range(ROUNDS):
            write_lines(bootstrap, f"{prefix}lines", rng, counts)
            eventually(
                lambda: len(read_all(bootstrap, f"{prefix}joined")) >= sum(counts.values()) // 2,
                "the application goes on",
                deadline_s=2 * DEADLINE_S,
            )
            if round_ in (1, 3):
                instances.pop(0).kill()
                instances.append(started())
            if round_ in (2, 4):
                victim = broker_name(rng.choice([101, 102, 103]))
                cluster.kill(victim)
                cluster.restart(victim)
        eventually(
            lambda: len(read_all(bootstrap, f"{prefix}joined")) >= sum(counts.values()),
            "every word is joined",
            deadline_s=2 * DEADLINE_S,
        )
        joined = Counter(read_all(bootstrap, f"{prefix}joined"))
        assert joined == Counter(
            {(word, f"{word}/language of {word}"): count for word, count in counts.items()}
        )
        last = dict(read_all(bootstrap, f"{prefix}counted"))
        assert last == {word: str(count) for word, count in counts.items()}
        assert_tool_describes(cluster, application, protocol)
    finally:
        for instance in instances:
            instance.end()
    assert not any("uncaught" in instance.said() for instance in instances)


def assert_tool_describes(cluster: Cluster, application: str, protocol: str) -> None:
    """kafka-streams-groups of 4.4 shows the group of the streams protocol."""
    if protocol == "classic":
        return
    command = "org.apache.kafka.tools.streams.StreamsGroupCommand"
    where = ("--bootstrap-server", cluster.bootstrap)
    assert application in tool(command, *where, "--list")
    described = (*where, "--describe", "--group", application)
    assert "streams-lines" in tool(command, *described, "--offsets")
    done = run_kvorum("groups", "describe", application, "-b", cluster.bootstrap, "-o", "json")
    [group] = json.loads(done.stdout)
    tasks = [task for member in group["members"] for task in member["active_tasks"]]
    assert (group["type"], sorted(tasks)) == (
        "streams", [f"{part}_{number}" for part in (0, 1) for number in range(PARTITIONS)],
    )  # fmt: skip
    assert all(row["lag"] == 0 for row in group["offsets"] if row["topic"] == "streams-lines")
    members = tool(command, *described, "--members")
    assert members.count(application) >= 4
    assert "Sub-topology: 1" in tool(command, *described, "--topology")
    assert decoded_types(cluster, application) >= {17, 19, 20, 21, 22, 23}


def decoded_types(cluster: Cluster, group: str) -> set[int]:
    """The types of the group's records that Kafka's own decoder reads in the brokers' logs."""
    found = set()
    for log in sorted(cluster.data_dir.glob("broker-101/__consumer_offsets-*/*.log")):
        text = tool(
            "org.apache.kafka.tools.DumpLogSegments",
            *("--files", str(log), "--offsets-decoder", "--print-data-log"),
        )
        mine = [line for line in text.splitlines() if f'"groupId":"{group}"' in line]
        found |= {int(line.partition('"type":"')[2].partition('"')[0]) for line in mine}
    return found
