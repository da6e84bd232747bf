"""`metrics.listener` on real nodes: the page that Prometheus reads, and health."""

from __future__ import annotations

import math
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from tests.live.by_hand import HandMade
from tests.live.clients import Topics
from tests.live.cluster import run_kvorum
from tests.live.http import ask
from tests.polling import eventually

BROKER = "broker-101"


def scrape(port: int) -> dict[str, float]:
    """Values by name, or name{labels}."""
    head, _, body = ask(port, b"GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain")
    values = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
            values[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return values


def is_served(port: int) -> bool:
    try:
        return scrape(port).get("kvorum_metadata_brokers_active") == 1
    except OSError:
        return False


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HandMade, dict[str, int]]]:
    """A controller and a broker with two data directories; where each is scraped."""
    folder = tmp_path_factory.mktemp("metrics")
    made = HandMade(folder, controllers=1, brokers=1)
    names = ("controller-1", BROKER)
    ports = {name: made.ports.broker + 15 + at for at, name in enumerate(names)}
    for name, port in ports.items():
        made.change(name, metrics_listener=f"HTTP://127.0.0.1:{port}")
    made.change(BROKER, log_dirs=f"{folder}/a,{folder}/b")
    made.start(*ports)
    yield made, ports
    made.close()


@pytest.mark.live
@pytest.mark.timeout(120)
def test_a_cluster_is_scraped_and_tells_of_a_directory_that_fails(
    nodes: tuple[HandMade, dict[str, int]],
) -> None:
    made, ports = nodes
    eventually(lambda: is_served(ports[BROKER]), "the broker is scraped")
    Topics(made.bootstrap).create("seen", replicas=1, partitions=4)
    controller = scrape(ports["controller-1"])
    assert controller["kvorum_raft_is_leader"] == 1
    assert controller["kvorum_metadata_topics"] == 1
    assert controller["kvorum_metadata_brokers_active"] == 1
    assert controller["kvorum_metadata_age_seconds"] == 0
    broker = scrape(ports[BROKER])
    assert broker["kvorum_broker_replicas_led"] == 4
    assert broker["kvorum_broker_log_directories_offline"] == 0
    first, second = f"{made.folder}/a", f"{made.folder}/b"
    assert broker[f"kvorum_broker_log_directory_online{{directory={second}}}"] == 1
    # The second directory is taken away under the broker's feet.
    shutil.move(second, f"{second}.gone")
    Path(second).write_text("no directory\n")

    def has_failed() -> bool:
        _produce_anything(made.bootstrap, "seen", partitions=4)
        return scrape(ports[BROKER])["kvorum_broker_log_directories_offline"] == 1

    eventually(has_failed, "the failed directory is counted")
    broker = scrape(ports[BROKER])
    assert broker[f"kvorum_broker_log_directory_online{{directory={second}}}"] == 0
    assert broker[f"kvorum_broker_log_directory_online{{directory={first}}}"] == 1
    assert broker["kvorum_broker_replicas_offline"] >= 1


@pytest.mark.live
@pytest.mark.timeout(120)
def test_figures_of_a_broker_without_a_quorum_say_how_old_they_are(tmp_path: Path) -> None:
    made = HandMade(tmp_path, controllers=1, brokers=1)
    port = made.ports.broker + 15
    made.change(BROKER, metrics_listener=f"HTTP://127.0.0.1:{port}")
    try:
        made.start(BROKER)
        eventually(lambda: has_listener(port), "the broker is scraped before it has registered")
        assert scrape(port)["kvorum_metadata_age_seconds"] == math.inf
        made.start("controller-1")
        eventually(lambda: is_served(port), "the broker is in service")
        made.kill("controller-1")
        eventually(lambda: scrape(port)["kvorum_metadata_age_seconds"] > 2, "the figures age")
        assert scrape(port)["kvorum_metadata_brokers_fenced"] == 0
    finally:
        made.close()


def has_listener(port: int) -> bool:
    try:
        return bool(scrape(port))
    except OSError:
        return False


def _produce_anything(bootstrap: str, topic: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 1_000})
    for partition in range(partitions):
        producer.produce(topic, b"v", partition=partition)
    producer.flush(3)


@pytest.mark.live
@pytest.mark.parametrize("role", ["controller-1", BROKER])
@pytest.mark.parametrize("what", ["port", "names"])
def test_a_node_that_cannot_serve_its_metrics_ends_with_the_way_out(
    role: str, what: str, tmp_path: Path
) -> None:
    made = HandMade(tmp_path, controllers=1, brokers=1)
    try:
        with socket.create_server(("127.0.0.1", made.ports.broker + 15)) as taken:
            port = taken.getsockname()[1]
            if what == "port":
                made.change(role, metrics_listener=f"HTTP://127.0.0.1:{port}")
            else:
                made.change(role, metrics_names="jmx")
            done = run_kvorum(role.partition("-")[0], "--config", str(made.file(role)))
    finally:
        made.close()
    assert done.returncode == 2
    line = done.stderr.splitlines()[-1]
    if what == "port":
        assert f"metrics.listener: cannot listen on 127.0.0.1:{port}: Address already" in line
        assert "give this node an address of its own" in line
    else:
        assert "metrics.names='jmx' must be kvorum, kafka, or both" in line
