"""Applications of Apache Kafka's own jars as processes under a test, and what they left behind."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from bench.cluster import wait_for_port
from kvorum.chaos.live.host.processes import start_process, stop_process
from kvorum.chaos.live.systems.kafka_jars import (
    OWN_LIBRARY,
    SERVER,
    TOOL_FLAGS,
    find_java,
    format_storage,
    java_command,
    properties_text,
)
from tests.live.clients import settings
from tests.polling import DEADLINE_S

START_TIMEOUT_S = 120.0
FORWARDED = Path(__file__).resolve().parent / "java_connect"
needs_javac = pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK (javac)")


def needs_jar(name: str) -> pytest.MarkDecorator:
    """Skip a test where set-up did not fetch this jar of Apache Kafka."""
    return pytest.mark.skipif(
        not any(OWN_LIBRARY.glob(f"{name}-[0-9]*.jar")), reason=f"needs Apache Kafka's {name}"
    )


class Application:
    """One JVM that runs a class of Kafka's jars; what it prints goes into files.

    name: their names without .out and .err; classes: a folder with more classes.
    """

    def __init__(
        self, name: Path, main_class: str, *arguments: str, classes: Path | None = None
    ) -> None:
        self._output, self._errors = name.with_suffix(".out"), name.with_suffix(".err")
        path = f"{OWN_LIBRARY}/*" if classes is None else f"{classes}:{OWN_LIBRARY}/*"
        with self._output.open("ab") as output, self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [find_java(), *TOOL_FLAGS, "-cp", path, main_class, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )

    def said(self) -> str:
        return self._output.read_text(encoding="utf-8", errors="replace")

    def errors(self) -> str:
        """Its log too."""
        return self._errors.read_text(encoding="utf-8", errors="replace")

    def is_running(self) -> bool:
        return self.process.poll() is None

    def interrupt(self) -> None:
        """Ask it to end, as a user does, and wait until it did."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(2 * DEADLINE_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def forwarded_classes(folder: Path) -> Path:
    """The folder, with the classes that Connect's plugins of Kafka 4.3 miss in 4.4's jars.

    The newest of these plugins that Maven has are 4.3's, and 4.4 renamed two internal classes.
    """
    sources = sorted(map(str, FORWARDED.rglob("*.java")))
    subprocess.run(["javac", "-d", str(folder), "-cp", f"{OWN_LIBRARY}/*", *sources], check=True)
    return folder


def write_properties(file: Path, properties: Mapping[str, str]) -> str:
    """The name of the file, for a command line."""
    file.write_text(properties_text(properties), encoding="utf-8")
    return str(file)


def committed_values(bootstrap: str, topic: str, partitions: int = 1) -> list[str]:
    """The values of a topic that readers of committed records see now, by partition in order."""
    reader = Consumer(
        settings(
            bootstrap, group_id="reader", enable_auto_commit=False, enable_partition_eof=True,
            isolation_level="read_committed",
        )
    )  # fmt: skip
    try:
        reader.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        found: dict[int, list[str]] = {}
        at_end: set[int] = set()
        while len(at_end) < partitions:
            message = reader.poll(DEADLINE_S)
            assert message is not None, f"no more records of {topic}"
            if message.error():
                at_end.add(message.partition())
            else:
                found.setdefault(message.partition(), []).append(message.value().decode())
        return [value for partition in sorted(found) for value in found[partition]]
    finally:
        reader.close()


@contextlib.contextmanager
def one_kafka(folder: Path, port: int, **settings: str) -> Iterator[str]:
    """One node of Apache Kafka, broker and controller, on `port` and the next; its address.
    settings: further properties."""
    address, controller = f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"
    internal = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(folder / "data"),
        "offsets.topic.num.partitions": "5",
        "group.initial.rebalance.delay.ms": "0",
        **{f"{name}.replication.factor": "1" for name in internal},
        **settings,
    }
    folder.mkdir()
    file = write_properties(folder / "server.properties", properties)
    format_storage(OWN_LIBRARY, "Yk3vR2p1S9ORbV1xWqLz0g", file)
    command = java_command(OWN_LIBRARY, SERVER, file, flags=("-Xmx512m", "-XX:+UseSerialGC"))
    process = start_process(command, log_file=str(folder / "server.log"))
    try:
        wait_for_port((address,), START_TIMEOUT_S)
        yield address
    finally:
        process.kill()
        stop_process(process, timeout_ms=5_000)
