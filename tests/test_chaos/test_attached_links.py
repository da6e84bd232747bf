"""A whole experiment on an attached cluster behind somebody's toxiproxy, by the command line."""

from __future__ import annotations

import json

import pytest

from kvorum import Cluster
from kvorum.chaos.history import FAULT_BEGIN, FAULT_END, details_of, read_history
from kvorum.chaos.live.host.links import ProxyStream
from kvorum.chaos.live.host.toxiproxy import Toxic
from tests.test_chaos.attached_cluster import chaos_run, topics, toxics

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(
        controllers=1,
        brokers=3,
        directory=tmp_path_factory.mktemp("theirs"),
        proxies=True,
        metrics=False,
    ) as cluster:
        yield cluster


def test_a_run_cuts_slows_and_moves_and_leaves_neither_toxic_nor_topic(cluster, tmp_path):
    cluster.create_topic("of-others")
    done = chaos_run(tmp_path, cluster)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "verdict: passed" in done.stdout
    assert toxics(cluster) == {}
    assert topics(cluster) == set()
    assert ("of-others", 0) in cluster.state().partitions
    events = list(read_history(str(tmp_path / "run" / "history.jsonl")))
    begun = {details_of(e)["fault"]: details_of(e) for e in events if e.f == FAULT_BEGIN}
    assert list(begun) == ["cut", "latency", "reassign", "elect_leaders"]
    assert len(begun["cut"]["links"]) == 1 and len(begun["latency"]["links"]) == 2
    ended = {details_of(e)["fault"]: details_of(e) for e in events if e.f == FAULT_END}
    assert len(ended["reassign"]["reassigned"]) == 2
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["cluster"] == "attached"


def test_a_proxy_that_has_a_toxic_already_is_refused_and_keeps_it(cluster, tmp_path):
    toxiproxy, link = cluster._injecting()._toxiproxy, cluster._running().plan.links[0]
    toxic = Toxic(
        name="theirs", kind="latency", stream=ProxyStream.UPSTREAM, attributes={"latency": 1}
    )
    toxiproxy.add_toxic(link, toxic)
    try:
        done = chaos_run(tmp_path, cluster)
        assert done.returncode == 2, (done.stdout, done.stderr)
        assert f"the proxy {link.name} has toxics already (theirs)" in done.stderr
        assert toxics(cluster) == {link.name: {"theirs": "latency"}}
        assert topics(cluster) == set()
    finally:
        toxiproxy.remove_toxic(link, "theirs")
