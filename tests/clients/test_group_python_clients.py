"""kafka-python and aiokafka in groups: clients that use the oldest versions of these APIs."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from tests.clients.groups import (
    QUICK_GROUPS,
    RECORDS_PER_PARTITION,
    SESSION_TIMEOUT_MS,
    committed_offsets,
    fill,
)
from tests.live.cluster import Cluster
from tests.polling import DEADLINE_S, eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

ALL = 4 * RECORDS_PER_PARTITION
NONE_COMMITTED = -1001
PARTS = [0, 1, 2, 3]
RECORDS = sorted((p, o) for p in range(4) for o in range(RECORDS_PER_PARTITION))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("python-groups"), settings=QUICK_GROUPS) as cluster:
        yield cluster


class Poller(threading.Thread):
    """A kafka-python consumer, polled as an application does: in a thread of its own.

    Two that take turns in one thread keep each other waiting: a poll that ends in the middle of a
    rebalance begins it anew.
    """

    def __init__(self, kafka, bootstrap, topic):
        super().__init__(daemon=True)
        self.client = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap.split(","),
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=300,
        )
        self.seen: set[tuple[int, int]] = set()
        self.owned: list[int] = []
        self._is_stopping = threading.Event()
        self.start()

    def run(self):
        while not self._is_stopping.is_set():
            for rows in self.client.poll(timeout_ms=500).values():
                self.seen.update((row.partition, row.offset) for row in rows)
            self.owned = sorted(p.partition for p in self.client.assignment())
        self.client.commit()
        self.client.close()

    def stop(self):
        self._is_stopping.set()
        self.join(DEADLINE_S)
        assert not self.is_alive()


def test_two_kafka_python_consumers_share_a_topic_and_one_goes_on(cluster):
    kafka = pytest.importorskip("kafka")
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    topic = "kafka-python"
    fill(cluster.bootstrap, topic)
    both = [Poller(kafka, cluster.bootstrap, topic) for _ in range(2)]
    first, second = both
    try:
        eventually(
            lambda: first.owned and second.owned and sorted(first.owned + second.owned) == PARTS,
            "each has a part",
        )
        eventually(lambda: len(first.seen | second.seen) == ALL, "all records are read")
        second.stop()
        eventually(lambda: first.owned == PARTS, "the rest is taken over")
        found = committed_offsets(cluster.bootstrap, topic, topic)
        assert [found[p] for p in range(4) if found[p] != NONE_COMMITTED]
    finally:
        for poller in both:
            poller.stop()
    assert committed_offsets(cluster.bootstrap, topic, topic) == [RECORDS_PER_PARTITION] * 4
    admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        assert topic in str(admin.list_groups())
    finally:
        admin.close()


def test_two_aiokafka_consumers_share_a_topic_and_one_goes_on(cluster):
    aiokafka = pytest.importorskip("aiokafka")
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    fill(cluster.bootstrap, "aiokafka")

    def consumer():
        return aiokafka.AIOKafkaConsumer(
            "aiokafka",
            bootstrap_servers=cluster.bootstrap,
            group_id="aiokafka",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=300,
        )

    async def story():
        first, second = consumer(), consumer()
        seen: set[tuple[int, int]] = set()

        async def until(clients, condition):
            while not condition():
                for client in clients:
                    for rows in (await client.getmany(timeout_ms=50)).values():
                        seen.update((row.partition, row.offset) for row in rows)

        both = [first, second]
        try:
            await first.start()
            await second.start()
            await until(both, lambda: sorted(len(c.assignment()) for c in both) == [2, 2])
            await until(both, lambda: len(seen) == ALL)
            await first.commit()
            await second.commit()
            await second.stop()
            await until([first], lambda: len(first.assignment()) == 4)
            rows = [await first.committed(partition) for partition in first.assignment()]
        finally:
            for client in both:
                await client.stop()
        return rows, sorted(seen)

    rows, seen = asyncio.run(asyncio.wait_for(story(), 2 * DEADLINE_S))
    assert rows == [RECORDS_PER_PARTITION] * 4
    assert seen == RECORDS
