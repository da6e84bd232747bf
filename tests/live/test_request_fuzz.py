"""Anything may be asked of a broker: it answers or closes that connection, and nobody else notices.

`KVORUM_FUZZ_REQUESTS` sets how many, `KVORUM_FUZZ_SEED` which.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest
from confluent_kafka import Producer

from tests.live.clients import Topics, settings
from tests.live.cluster import Cluster, is_alive
from tests.live.request_fuzz import TOPIC, RequestFuzz
from tests.polling import DEADLINE_S
from tests.test_broker.raw_client import RawClient

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

REQUESTS = int(os.environ.get("KVORUM_FUZZ_REQUESTS", "4000"))
SEED = int(os.environ.get("KVORUM_FUZZ_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)
PER_CONNECTION_MAX = 20
CHECK_EACH = 200


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("fuzz")
    with Cluster(folder, controllers=1, brokers=2) as cluster:
        topics = Topics(cluster.bootstrap)
        topics.create(TOPIC, partitions=2, replicas=2)
        topics.create("steady", partitions=2, replicas=2)
        yield cluster


def send_some(cluster: Cluster, fuzz: RequestFuzz, count: int) -> list[str]:
    """Send up to `count` requests on one connection, until it is closed; returns the requests."""
    host, _, port = random.choice(cluster.bootstrap.split(",")).rpartition(":")
    sent = []
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as sock:
        sock.settimeout(0.02)
        with suppress(OSError):
            for _ in range(count):
                what, frame = fuzz.frame()
                sent.append(what)
                sock.sendall(frame)
            while sock.recv(1 << 16):
                pass
    return sent


def test_no_request_harms_a_broker_or_another_client(cluster: Cluster) -> None:
    fuzz = RequestFuzz(SEED)
    pids = {name: cluster.pid(name) for name in cluster.nodes()}
    failures: list[object] = []
    producer = Producer(settings(cluster.bootstrap, acks="all", message_timeout_ms=30_000))
    recent: list[str] = []
    sent = 0
    while sent < REQUESTS:
        recent = [*recent, *send_some(cluster, fuzz, PER_CONNECTION_MAX)][-CHECK_EACH:]
        sent += PER_CONNECTION_MAX
        if sent % CHECK_EACH == 0:
            producer.produce("steady", b"v", on_delivery=lambda e, _: e and failures.append(e))
            producer.poll(0)
            dead = [name for name, pid in pids.items() if not is_alive(pid)]
            assert not dead, f"seed {SEED}: {dead} died; the last: {recent}"
    assert producer.flush(DEADLINE_S) == 0
    assert failures == [], f"seed {SEED}"
    for name in pids:
        log = cluster.log_of(name)
        assert "Traceback" not in log, (
            f"seed {SEED}: {name}: {log[log.index('Traceback') :][:3000]}"
        )
    for address in cluster.bootstrap.split(","):
        client = RawClient(int(address.rpartition(":")[2]))
        assert client.call("api_versions", 3, {
            "client_software_name": "t", "client_software_version": "1",
        }).api_keys  # fmt: skip
        client.close()
