"""`kvorum cluster roll` on a secure cluster, under a load that logs in."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kvorum.chaos.addresses import client_of, secured
from kvorum.client.security import read_properties, security_of
from tests.live.cluster import Cluster
from tests.polling import DEADLINE_S, eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

NODES = ["controller-1", "controller-2", "controller-3", "broker-101", "broker-102", "broker-103"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("secure-roll"), is_secure=True) as cluster:
        made = cluster.cli(
            "topics", "create", "orders", "--config", "min.insync.replicas=2", "--partitions", "1"
        )
        assert made.returncode == 0, made.stderr
        yield cluster


class Load:
    """Acknowledged values, sent by an idempotent producer until it is stopped."""

    def __init__(self, settings: dict[str, object]) -> None:
        self.acknowledged: list[bytes] = []
        self._failed: list[str] = []
        self._is_over = threading.Event()
        self._producer = Producer({**settings, "enable.idempotence": True, "log_level": 0})
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(0.005):
            value = b"%d" % number
            self._producer.produce("orders", value, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged.append(message.value())  # type: ignore[attr-defined]
        else:
            self._failed.append(str(error))

    def more(self) -> None:
        """Return when another record is acknowledged."""
        count = len(self.acknowledged)
        eventually(lambda: len(self.acknowledged) > count, "a record is acknowledged")

    def finish(self) -> None:
        self._is_over.set()
        self._thread.join(DEADLINE_S)
        assert self._producer.flush(DEADLINE_S) == 0
        assert self._failed == []


def stored(settings: dict[str, object]) -> list[bytes]:
    consumer = Consumer({**settings, "group.id": "check", "enable.partition.eof": True})
    consumer.assign([TopicPartition("orders", 0, 0)])
    values: list[bytes] = []
    try:
        while True:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, "the end of the partition was not read"
            if message.error():
                return values
            values.append(message.value())
    finally:
        consumer.close()


@pytest.mark.parametrize("how", ["launcher", "command"])
def test_a_roll_restarts_every_node_and_loses_nothing(cluster: Cluster, how: str) -> None:
    assert cluster.command_config is not None
    path = str(cluster.command_config)
    settings = client_of(secured(cluster.bootstrap, security_of(read_properties(path), path)))
    hooks = ["--data-dir", str(cluster.data_dir)]
    if how == "command":
        template = f"{sys.executable} -m kvorum dev restart --stop {{node}} --data-dir "
        hooks = ["--restart-command", template + str(cluster.data_dir)]
    before = {name: cluster.pid(name) for name in NODES}
    load = Load(settings)
    try:
        load.more()
        done = cluster.cli("cluster", "roll", *hooks, "-o", "json")
        assert done.returncode == 0, done.stderr
        load.more()
    finally:
        load.finish()
    rows = json.loads(done.stdout)
    assert {(row["node"], row["result"]) for row in rows} == {(name, "restarted") for name in NODES}
    assert not set(before.values()) & {cluster.pid(name) for name in NODES}
    found = stored(settings)
    assert set(load.acknowledged) <= set(found)
    # The second roll reads the records of the first one, too.
    assert len(found) >= len(load.acknowledged) > 0
