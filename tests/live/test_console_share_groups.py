"""The console's page of a share group beside a cluster whose nodes have pages of metrics."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer

from tests.live.clients import Topics, settings
from tests.live.cluster import Cluster
from tests.live.console import Console
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]


def test_the_page_shows_the_records_in_flight_by_deliveries(tmp_path: Path) -> None:
    with Cluster(tmp_path, controllers=1, brokers=1, has_metrics=True) as cluster:
        address = cluster.nodes()["broker-101"]["metrics"]
        ready = [line for line in cluster.launcher.lines if line.startswith("broker-101 ready on")]
        assert ready[0].endswith(f" metrics http://{address}/metrics")
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=30) as answer:
            assert answer.status == 200
        Topics(cluster.bootstrap).create("orders", replicas=1)
        producer = Producer(settings(cluster.bootstrap))
        for number in range(10):
            producer.produce("orders", str(number))
        assert producer.flush(30) == 0
        begin = ("groups", "reset-offsets", "workers", "--topic", "orders", "--to-earliest")
        assert cluster.cli(*begin, "--share", "--execute").returncode == 0
        first, second = (member_of(cluster) for _ in range(2))
        try:
            hold(first, second)
            with Console(tmp_path, "--lab", str(cluster.data_dir)) as console:
                eventually(lambda: figures(console) == [9, 9, 7, 2, 0], "the page has the figures")
                view = console.document("/api/view/group", name="workers")
                assert "figures_note" not in view
            with Console(tmp_path, "-b", cluster.bootstrap) as console:
                eventually(lambda: figures(console) == [None] * 5, "the page has the group")
                view = console.document("/api/view/group", name="workers")
                assert "start it with --metrics HOST:PORT" in view["figures_note"]
            with Console(tmp_path, "-b", cluster.bootstrap, "--metrics", address) as console:
                eventually(lambda: figures(console) == [9, 9, 7, 2, 0], "the page has the figures")
        finally:
            first.close()
            second.close()


def member_of(cluster: Cluster) -> ShareConsumer:
    mode = {"group.id": "workers", "share.acknowledgement.mode": "explicit"}
    member = ShareConsumer({"bootstrap.servers": cluster.bootstrap, **mode})
    member.subscribe(["orders"])
    return member


def hold(first: ShareConsumer, second: ShareConsumer) -> None:
    """The first member gets ten records, accepts one and gives two back, which the second gets."""
    held = all_of(first, 10)
    first.acknowledge(held[0])
    for message in held[1:3]:
        first.acknowledge(message, AcknowledgeType.RELEASE)
    assert list(first.commit_sync(10).values()) == [None]
    all_of(second, 2)


def all_of(member: ShareConsumer, count: int) -> list[Any]:
    held: list[Any] = []

    def has_some() -> bool:
        held.extend(member.poll(0.5))
        return bool(held)

    eventually(has_some, "the member has records")
    assert len(held) == count
    return held


def figures(console: Console) -> list[int | None] | None:
    """Records in flight and held, and those delivered once, twice, more often; None without the
    group's partition."""
    status, view = console.ask("/api/view/group", name="workers")
    row = view.get("rows", {}).get("orders-0") if status == 200 else None
    keys = ("in_flight", "held", "delivered_once", "delivered_twice", "delivered_more")
    return None if row is None else [row.get(key) for key in keys]
