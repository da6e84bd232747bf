"""`kvorum cluster check --restart-safe` for nodes that the cluster may or may not have."""

from __future__ import annotations

import pytest

from kvorum.cli import cluster
from kvorum.metadata.inspect.health import ClusterView
from tests.command import kvorum


def answered(monkeypatch: pytest.MonkeyPatch, quorum: dict[str, object] | None) -> None:
    view = ClusterView(
        quorum=quorum,
        no_quorum="" if quorum else "no quorum: 1 of 3 voters reachable",
        brokers=[{"broker_id": 101, "is_fenced": False}],
        topics=[],
        min_isr={},
    )
    monkeypatch.setattr(cluster, "read_view", lambda options: view)


def test_without_a_leader_no_controller_is_called_unknown(monkeypatch):
    answered(monkeypatch, None)
    code, out, err = kvorum("cluster", "check", "--restart-safe", "2")
    assert (code, err) == (4, "kvorum: not healthy: restart of 2\n")
    assert "the quorum has no leader: no quorum: 1 of 3 voters reachable" in out


def test_a_node_that_the_cluster_does_not_have_is_named_with_the_others(monkeypatch):
    voters = [{"node_id": 1, "last_caught_up_timestamp": 1}]
    answered(monkeypatch, {"leader_id": 1, "leader_epoch": 1, "voters": voters, "observers": []})
    code, out, err = kvorum("cluster", "check", "--restart-safe", "broker-9")
    assert (code, out) == (1, "")
    assert err == "kvorum: the cluster has no node broker-9; it has 1, 101\n"
