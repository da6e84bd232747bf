"""Health of real nodes, through the loss of the quorum and its return."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live.http import get, get_json
from tests.live.observed_cluster import ObservedCluster
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedCluster]:
    made = ObservedCluster(tmp_path_factory.mktemp("health"))
    try:
        made.wait_ready()
        yield made
    finally:
        made.close()


def test_the_leader_tells_of_every_voter_and_observer(cluster: ObservedCluster) -> None:
    reports = [get_json(cluster.ports[f"controller-{i}"], "/debug/raft")[1] for i in (1, 2, 3)]
    leader = next(report for report in reports if report["role"] == "leader")
    assert {report["leader_id"] for report in reports} == {leader["node_id"]}
    assert {report["epoch"] for report in reports} == {leader["epoch"]}
    assert [voter["node_id"] for voter in leader["voters"]] == [1, 2, 3]
    others = [v for v in leader["voters"] if v["node_id"] != leader["node_id"]]
    assert all(v["last_fetch_ms"] > 0 and v["log_end_offset"] > 0 for v in others)
    assert {observer["node_id"] for observer in leader["observers"]} == {101, 102, 103}
    assert any(f"leader={leader['node_id']}" in entry["event"] for entry in leader["history"])
    _, broker = get_json(cluster.ports["broker-101"], "/debug/raft")
    assert (broker["role"], broker["leader_id"]) == ("observer", leader["node_id"])


def test_a_lost_quorum_is_not_ready_but_alive_and_ready_again_once_it_is_back(
    cluster: ObservedCluster,
) -> None:
    ports = cluster.ports
    cluster.made.kill("controller-2", "controller-3")
    left = ["controller-1", "broker-101", "broker-102", "broker-103"]
    for node in left:
        eventually(lambda node=node: cluster.status(node) == 503, f"{node} is not ready")
        assert get(ports[node], "/livez") == (200, "alive\n")
    status, body = get(ports["controller-1"], "/readyz?verbose")
    assert status == 503
    assert "[-] quorum: role=" in body
    assert "no leader for" in body or "a leader was heard of" in body
    assert "[+] metadata: applied=" in body
    _, raft = get_json(ports["controller-1"], "/debug/raft")
    assert raft["is_leader_lost"]
    assert raft["role"] in ("prospective", "unattached", "candidate", "resigned", "follower")
    status, verdict = get_json(ports["broker-102"], "/readyz")
    assert (status, verdict["status"]) == (503, "not ready")
    assert not verdict["checks"]["quorum"]["ok"]
    cluster.made.start("controller-2", "controller-3")
    cluster.wait_ready()
