"""`kvorum quorum status` and `replication`, of descriptions with a leader's id twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvorum.cli import quorum
from tests.command import kvorum


def replica(node_id: int, directory_id: str, end: int) -> dict[str, Any]:
    return {
        "node_id": node_id,
        "directory_id": directory_id,
        "log_end_offset": end,
        "last_fetch_timestamp": 5,
        "last_caught_up_timestamp": 5,
    }


def described(voters: list[dict[str, Any]], observers: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "cluster_id": "c",
        "leader_id": 1,
        "leader_epoch": 3,
        "high_watermark": 80,
        "nodes": [{"node_id": 1, "host": "h1", "port": 9192}],
        "voters": voters,
        "observers": observers,
    }


LEADER, FOLLOWER, MISTAKEN = replica(1, "A", 81), replica(2, "B", 80), replica(1, "Z", 0)


@pytest.mark.parametrize(
    ("voters", "observers", "statuses"),
    [
        # A broker was started with the leader's node.id.
        ([LEADER, FOLLOWER], [MISTAKEN], {"A": "Leader", "B": "Follower", "Z": "Observer"}),
        # The leader is being removed and leads without a vote.
        ([FOLLOWER], [LEADER, MISTAKEN], {"B": "Follower", "A": "Leader", "Z": "Observer"}),
    ],
)
def test_one_replica_is_the_leader(monkeypatch, voters, observers, statuses):
    found = described(voters, observers)
    monkeypatch.setattr(quorum, "_describe", lambda options: found)
    code, out, err = kvorum("quorum", "replication", "-o", "json")
    assert code == 0, err
    assert {row["directory_id"]: row["status"] for row in json.loads(out)} == statuses
    code, out, err = kvorum("quorum", "status", "-o", "json")
    assert (code, json.loads(out)["max_follower_lag"]) == (0, 1), err


def test_an_observer_of_a_voters_id_has_not_the_voters_endpoint(monkeypatch):
    found = described([LEADER, FOLLOWER], [MISTAKEN])
    monkeypatch.setattr(quorum, "_describe", lambda options: found)
    shown = json.loads(kvorum("quorum", "status", "-o", "json")[1])
    assert [voter["endpoints"] for voter in shown["voters"]] == [["CONTROLLER://h1:9192"], []]
    assert [observer["endpoints"] for observer in shown["observers"]] == [[]]
