"""kafka-python and aiokafka in groups: clients that use the oldest versions of these APIs."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.clients.groups import (
    QUICK_GROUPS,
    RECORDS_PER_PARTITION,
    SESSION_TIMEOUT_MS,
    committed_offsets,
    fill,
)
from tests.live.cluster import DEADLINE_S, Cluster, eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

ALL = 4 * RECORDS_PER_PARTITION
RECORDS = sorted((p, o) for p in range(4) for o in range(RECORDS_PER_PARTITION))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("python-groups"), settings=QUICK_GROUPS) as cluster:
        yield cluster


def test_two_kafka_python_consumers_share_a_topic_and_one_goes_on(cluster):
    kafka = pytest.importorskip("kafka")
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    fill(cluster.bootstrap, "kafka-python")

    def consumer():
        return kafka.KafkaConsumer(
            "kafka-python",
            bootstrap_servers=cluster.bootstrap.split(","),
            group_id="kafka-python",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=300,
        )

    first, second = consumer(), consumer()
    seen: set[tuple[int, int]] = set()

    def poll(clients):
        for client in clients:
            for rows in client.poll(timeout_ms=50).values():
                seen.update((row.partition, row.offset) for row in rows)

    def is_shared():
        poll([first, second])
        owned = [p.partition for c in (first, second) for p in c.assignment()]
        return sorted(owned) == [0, 1, 2, 3] and first.assignment() and second.assignment()

    eventually(is_shared, "each has a part")
    eventually(lambda: poll([first, second]) or len(seen) == ALL, "all records are read")
    first.commit()
    second.commit()
    second.close()
    eventually(lambda: poll([first]) or len(first.assignment()) == 4, "the rest is taken over")
    first.close()
    assert committed_offsets(cluster.bootstrap, "kafka-python", "kafka-python") == [30] * 4
    admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    listed = str(
        admin.list_groups() if hasattr(admin, "list_groups") else admin.list_consumer_groups()
    )
    assert "kafka-python" in listed
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

        await first.start()
        await second.start()
        both = [first, second]
        await until(both, lambda: sorted(len(c.assignment()) for c in both) == [2, 2])
        await until(both, lambda: len(seen) == ALL)
        await first.commit()
        await second.commit()
        await second.stop()
        await until([first], lambda: len(first.assignment()) == 4)
        rows = [await first.committed(partition) for partition in first.assignment()]
        await first.stop()
        return rows, sorted(seen)

    rows, seen = asyncio.run(asyncio.wait_for(story(), 2 * DEADLINE_S))
    assert rows == [RECORDS_PER_PARTITION] * 4
    assert seen == RECORDS
