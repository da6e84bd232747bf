"""kill -9 of every process of a cluster: all acknowledged records are there after the next
start."""

from __future__ import annotations

import signal

import pytest

from tests.live.clients import Load, Topics, assert_nothing_lost
from tests.live.cluster import Cluster, is_alive
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

TOPIC = "survives"


def test_all_six_killed_at_once_and_started_again_lose_nothing(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with Cluster(tmp_path) as cluster:
        topics = Topics(cluster.bootstrap)
        topics.create(TOPIC, partitions=3, min_insync_replicas=2)
        load = Load(cluster.bootstrap, TOPIC, partitions=3)
        load.wait_more(2_000)
        cluster_id = cluster.document()["cluster_id"]
        cluster.kill(*cluster.nodes())
        load.abandon()
        assert cluster.processes_left() == []
        assert cluster.stop() == 0

        cluster.start()
        assert cluster.document()["cluster_id"] == cluster_id
        Topics(cluster.bootstrap).wait_names({TOPIC})
        assert_nothing_lost(load, cluster.bootstrap)


def test_launcher_killed_under_load_and_started_again_loses_nothing(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with Cluster(tmp_path) as cluster:
        Topics(cluster.bootstrap).create(TOPIC, partitions=3, min_insync_replicas=2)
        load = Load(cluster.bootstrap, TOPIC, partitions=3)
        load.wait_more(1_000)
        pids = [node["pid"] for node in cluster.nodes().values()]
        cluster.launcher.send(signal.SIGKILL)
        cluster.launcher.wait()
        eventually(lambda: not any(is_alive(pid) for pid in pids), "every node ended")
        load.abandon()

        cluster.start()
        assert_nothing_lost(load, cluster.bootstrap)
        second = Load(cluster.bootstrap, TOPIC, partitions=3)
        second.wait_more(1_000)
        second.finish()
