"""A leader is killed in the middle of a read: the range is still read to its end."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from kvorum import Cluster
from kvorum.analytics.kafka_source.clients import TopicsClient
from kvorum.analytics.kafka_source.fetch import read_range
from kvorum.analytics.kafka_source.options import parse_read_options
from kvorum.analytics.kafka_source.plan import OffsetRange

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

RECORDS = 50_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(
        controllers=1, brokers=3, proxies=False, metrics=False,
        directory=tmp_path_factory.mktemp("cluster"),
    ) as cluster:  # fmt: skip
        yield cluster


def test_a_range_is_read_across_a_change_of_leaders(cluster):
    cluster.create_topic("orders")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5})
    for number in range(RECORDS):
        producer.produce("orders", str(number).encode().ljust(1000))
        producer.poll(0)
    assert producer.flush(60) == 0
    options = parse_read_options(
        {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "orders"}
    )
    wanted = OffsetRange(topic="orders", partition=0, start_offset=0, end_offset=RECORDS)
    batches = read_range(wanted, ("offset",), options)
    offsets = next(batches).column("offset").to_pylist()
    # Far fewer than all are fetched by now: a consumer's queue has 16 MB.
    (killed,) = cluster.kill("leader:orders/0")
    for batch in batches:
        offsets += batch.column("offset").to_pylist()
    assert offsets == list(range(RECORDS))
    assert TopicsClient(options).latest([("orders", 0)]) == {("orders", 0): RECORDS}
    assert [node.name for node in cluster.nodes() if node.state == "killed"] == [killed]
