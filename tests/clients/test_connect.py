"""Kafka Connect 4.4 on Kvorum, unchanged: two workers copy a file through a topic under kills.

A file source with exactly-once support (KIP-618) writes each line of a file into a topic in
transactions, and a file sink writes the topic into another file. A worker and a broker are killed
meanwhile.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.applications import (
    Application,
    committed_values,
    forwarded_classes,
    needs_jar,
    needs_javac,
    write_properties,
)
from tests.clients.java_tools import needs_java
from tests.live.clients import Topics
from tests.live.cluster import Cluster, broker_name
from tests.polling import DEADLINE_S, eventually

pytestmark = [
    needs_java,
    needs_javac,
    needs_jar("connect-runtime"),
    needs_jar("connect-file"),
    pytest.mark.java,
    pytest.mark.live,
    pytest.mark.timeout(900),
]

TOPIC = "copied-lines"
ROUND_LINES = 200
LINE = re.compile(r"line \d{6}")
SETTINGS = [
    "offsets.topic.num.partitions=5",
    "transaction.state.log.num.partitions=5",
    "group.initial.rebalance.delay.ms=200",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=200",
]
STRINGS = "org.apache.kafka.connect.storage.StringConverter"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("connect"), settings=SETTINGS) as cluster:
        yield cluster


class Workers:
    """Two workers of one Connect cluster, by their addresses, and a client of their REST API."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._bootstrap = cluster.bootstrap
        self._folder = folder
        self._classes = forwarded_classes(folder / "classes")
        # The end of the block of ports that the cluster has reserved.
        self._ports = [cluster.ports.controller + 5 + i for i in range(2)]
        self._running: dict[str, Application] = {}
        for port in self._ports:
            self.start(f"127.0.0.1:{port}")

    def start(self, address: str) -> None:
        name = address.partition(":")[2]
        internal = ("config", "offset", "status")
        properties = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "connect",
            "listeners": f"http://{address}",
            "plugin.discovery": "service_load",
            "key.converter": STRINGS,
            "value.converter": STRINGS,
            "exactly.once.source.support": "enabled",
            "offset.flush.interval.ms": "500",
            "offset.storage.partitions": "5",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "500",
            # Tasks of a killed worker start on the other one soon.
            "scheduled.rebalance.max.delay.ms": "500",
            **{f"{one}.storage.topic": f"connect-{one}" for one in internal},
        }
        file = write_properties(self._folder / f"worker-{name}.properties", properties)
        self._running[address] = Application(
            self._folder / f"worker-{name}",
            "org.apache.kafka.connect.cli.ConnectDistributed",
            file,
            classes=self._classes,
        )

    def kill(self, address: str) -> None:
        self._running[address].kill()

    def close(self) -> None:
        for worker in self._running.values():
            worker.kill()

    def said(self) -> str:
        return "\n".join(worker.errors()[-3_000:] for worker in self._running.values())

    def configure(self, connector: str, config: dict[str, str]) -> None:
        """Create a connector; asked again until a worker does it: in a rebalance none does."""
        path = f"/connectors/{connector}/config"
        eventually(
            lambda: self._asked("PUT", path, config),
            f"a worker takes connector {connector}; they said {self.said()}",
            deadline_s=2 * DEADLINE_S,
        )

    def place_of_task(self, connector: str) -> str:
        """The address of the worker that runs the connector's only task, once one runs it."""

        def place() -> str:
            status = self._asked("GET", f"/connectors/{connector}/status")
            tasks = status["tasks"] if status else []
            assert not any(task["state"] == "FAILED" for task in tasks), tasks
            return next((task["worker_id"] for task in tasks if task["state"] == "RUNNING"), "")

        return eventually(place, f"a task of {connector} runs", deadline_s=2 * DEADLINE_S)

    def _asked(self, method: str, path: str, body: Any = None) -> Any:
        """The answer of the first worker that has one; None without."""
        for port in self._ports:
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}{path}",
                method=method,
                data=None if body is None else json.dumps(body).encode(),
                headers={"Content-Type": "application/json"},
            )
            try:
                with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                    return json.load(answer)
            except OSError:  # An answer with an error status too.
                continue
        return None


def file_connectors(source: Path, sink: Path) -> dict[str, dict[str, str]]:
    """Name to config of the connectors from file `source` to the topic and on to file `sink`."""
    classes = "org.apache.kafka.connect.file.FileStream"
    return {
        "source": {
            "connector.class": f"{classes}SourceConnector",
            "tasks.max": "1",
            "file": str(source),
            "topic": TOPIC,
            "exactly.once.support": "required",
        },
        "sink": {
            "connector.class": f"{classes}SinkConnector",
            "tasks.max": "1",
            "file": str(sink),
            "topics": TOPIC,
            "consumer.override.isolation.level": "read_committed",
        },
    }


def test_every_line_of_a_file_source_is_committed_once_under_kills(
    cluster: Cluster, tmp_path: Path
) -> None:
    Topics(cluster.bootstrap).create(TOPIC, min_insync_replicas=2)
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    written: list[str] = []

    def write_lines() -> None:
        new = [f"line {len(written) + number:06}" for number in range(ROUND_LINES)]
        with source.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in new)
        written.extend(new)

    def await_committed() -> None:
        eventually(
            lambda: len(committed_values(cluster.bootstrap, TOPIC)) >= len(written),
            "every line is in the topic",
            deadline_s=2 * DEADLINE_S,
        )

    write_lines()
    workers = Workers(cluster, tmp_path)
    try:
        for connector, config in file_connectors(source, sink).items():
            workers.configure(connector, config)
        await_committed()
        for connector in ("source", "sink"):
            worker = workers.place_of_task(connector)
            write_lines()
            workers.kill(worker)
            write_lines()
            await_committed()
            workers.start(worker)
            write_lines()
            victim = broker_name(Topics(cluster.bootstrap).leader(TOPIC))
            cluster.kill(victim)
            write_lines()
            cluster.restart(victim)
            await_committed()
        eventually(
            # A killed worker may have written lines, the last one without its end, of which it did
            # not commit offsets.
            lambda: set(written) <= set(LINE.findall(sink.read_text(encoding="utf-8"))),
            "every line is in the sink's file",
            deadline_s=2 * DEADLINE_S,
        )
        for connector in ("source", "sink"):
            workers.place_of_task(connector)
    except AssertionError as failure:
        failure.add_note(workers.said())
        raise
    finally:
        workers.close()
    assert committed_values(cluster.bootstrap, TOPIC) == written
