"""Makes the golden files: folders of partitions as Apache Kafka 4.1 wrote them, and what its own
kafka-dump-log prints of them.

Run: python -m tests.golden.make LIBRARY TARGET PORT
LIBRARY: the folder of Kafka's jars. TARGET: what this makes, one folder a partition, `.deleted` and
checkpoints of the broker left out. PORT: two free ports from here on. Needs Java and
confluent-kafka; takes half a minute. The committed files stay as they are when this is run again:
timestamps and producer ids differ from run to run.

Producers: librdkafka (confluent-kafka) and Java (Kafka's console producer). Topics:
  <client>-<codec>       three records, two with headers, one without value
  append-time            LogAppendTime, both clients
  transactions           one committed, one aborted, one committed
  compacted              after the cleaner has been through it, with a tombstone
  rolled                 several segments
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.polling import DEADLINE_S, eventually

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ROUND_MS = 1_000
"""Pause between the records of two rounds: more than segment.ms, so that each round begins a
segment."""
FLAGS = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


def java(library: Path, main_class: str, *arguments: str, stdin: str = "") -> str:
    """Run one of Kafka's tools; its standard output."""
    command = ["java", *FLAGS, "-cp", f"{library}/*", main_class, *arguments]
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )
    if done.returncode != 0:
        raise RuntimeError(f"{main_class}: {done.stdout}{done.stderr}")
    return done.stdout


@contextlib.contextmanager
def kafka(library: Path, folder: Path, port: int) -> Iterator[str]:
    """A broker that is its own controller, stopped in good order at the end."""
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{port + 1}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.min.isr": "1",
        "log.cleaner.backoff.ms": "200",
        "log.initial.task.delay.ms": "500",
    }
    file = folder / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    cluster_id = "Yk3vR2p1S9ORbV1xWqLz0g"
    java(library, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(file))
    with open(folder / "server.log", "wb") as log:
        process = subprocess.Popen(
            ["java", *FLAGS, "-cp", f"{library}/*", "kafka.Kafka", str(file)],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(DEADLINE_S)


def create(bootstrap: str, name: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    named = {key.replace("_", "."): value for key, value in configs.items()}
    topic = NewTopic(name, 1, 1, config=named)
    admin.create_topics([topic], request_timeout=30)[name].result(DEADLINE_S)


def from_librdkafka(bootstrap: str, topic: str, codec: str) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.codec": codec, "linger.ms": 300}
    )
    producer.produce(topic, b"value-1" * 20, b"key-1", headers=[("h", b"1"), ("h", None)])
    producer.produce(topic, None, b"key-2", headers=[("empty", b"")])
    producer.produce(topic, b"value-3" * 20, None)
    producer.flush(DEADLINE_S)


def from_java(library: Path, bootstrap: str, topic: str, codec: str) -> None:
    lines = [
        f"h:1,g:2\tkey-1\t{'value-1' * 20}",
        "e:\tkey-2\tNULL",
        f"NULL\tNULL\t{'value-3' * 20}",
    ]
    properties = ("parse.key=true", "parse.headers=true", "null.marker=NULL")
    java(
        library,
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", bootstrap, "--topic", topic),
        *("--compression-codec", codec, "--timeout", "300"),
        *(part for text in properties for part in ("--reader-property", text)),
        stdin="".join(f"{line}\n" for line in lines),
    )


def transactions(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "golden"})
    producer.init_transactions(DEADLINE_S)
    for at, is_commit in enumerate((True, False, True)):
        producer.begin_transaction()
        for part in range(2):
            producer.produce(topic, f"{at}-{part}".encode(), f"key-{part}".encode())
        producer.flush(DEADLINE_S)
        if is_commit:
            producer.commit_transaction(DEADLINE_S)
        else:
            producer.abort_transaction(DEADLINE_S)


def compacted(bootstrap: str, topic: str, folder: Path) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    rounds = 8
    began_ms = int(time.time() * 1000) - rounds * ROUND_MS
    for at in range(rounds):
        for key in range(4):
            value = None if (at, key) == (6, 2) else f"{at}-{key}".encode()
            timestamp_ms = began_ms + at * ROUND_MS
            producer.produce(topic, value, f"key-{key}".encode(), timestamp=timestamp_ms)
        producer.flush(DEADLINE_S)
    checkpoint = folder / "cleaner-offset-checkpoint"
    eventually(
        lambda: checkpoint.exists() and f"{topic} 0 28" in checkpoint.read_text(), "it compacts"
    )


def make(library: Path, target: Path, port: int) -> None:
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        data = folder / "data"
        with kafka(library, folder, port) as bootstrap:
            for codec in CODECS:
                create(bootstrap, f"librdkafka-{codec}")
                from_librdkafka(bootstrap, f"librdkafka-{codec}", codec)
                create(bootstrap, f"java-{codec}")
                from_java(library, bootstrap, f"java-{codec}", codec)
            create(bootstrap, "append-time", message_timestamp_type="LogAppendTime")
            from_librdkafka(bootstrap, "append-time", "lz4")
            from_java(library, bootstrap, "append-time", "none")
            create(bootstrap, "transactions")
            transactions(bootstrap, "transactions")
            create(bootstrap, "rolled", segment_ms="100", index_interval_bytes="100")
            create(
                bootstrap,
                "compacted",
                cleanup_policy="compact",
                segment_ms="100",
                min_cleanable_dirty_ratio="0.01",
                file_delete_delay_ms="0",
            )
            for codec in CODECS:
                from_librdkafka(bootstrap, "rolled", codec)
                from_librdkafka(bootstrap, "rolled", codec)
            compacted(bootstrap, "compacted", data)
        for partition in sorted(data.glob("*-0")):
            if partition.name.startswith("__"):
                continue
            shutil.copytree(
                partition, target / partition.name, ignore=shutil.ignore_patterns("*.deleted")
            )
    for partition in sorted(target.iterdir()):
        files = sorted(p for p in partition.iterdir() if p.name[0] == "0")
        told = java(
            library,
            "org.apache.kafka.tools.DumpLogSegments",
            *("--files", ",".join(map(str, files)), "--print-data-log"),
        )
        text = told.replace(f"{partition}/", "")
        (partition / "kafka-dump-log.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
