"""`kvorum groups` against a cluster with a consumer in it, and the blobs that it reads."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import pytest

from kvorum.broker.groups.classic.subscription import assigned_partitions, subscribed_topics
from kvorum.cli.groups import _end_with, _of_each
from kvorum.client.connection import BrokerGone
from kvorum.client.failures import EXIT_FAILED, EXIT_NOT_AUTHORIZED, CommandFailed
from tests.clients.groups import QUICK_GROUPS, Reader, fill, together
from tests.live.cluster import Cluster
from tests.test_groups.world import subscription


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("groups-cli")
    with Cluster(folder, brokers=2, settings=QUICK_GROUPS) as cluster:
        yield cluster


@pytest.mark.live
def test_groups_are_listed_described_and_deleted(cluster):
    fill(cluster.bootstrap, "orders", replicas=2)
    reader = Reader(cluster.bootstrap, "workers", "orders", client_id="worker")
    together([reader], lambda: len(reader.seen) >= 120, "all records are read")
    reader.commit()
    listed = {"group": "workers", "type": "classic", "protocol_type": "consumer", "state": "Stable"}
    assert cluster.cli_json("groups", "list") == [listed]
    assert cluster.cli_json("groups", "list", "--state", "empty") == []
    (described,) = cluster.cli_json("groups", "describe", "workers")
    assert (described["state"], described["protocol"]) == ("Stable", "range")
    assert described["coordinator"] in (101, 102)
    (member,) = described["members"]
    assert (member["client_id"], member["client_host"]) == ("worker", "/127.0.0.1")
    assert member["partitions"] == [f"orders-{p}" for p in range(4)]
    assert [(row["committed_offset"], row["end_offset"], row["lag"], row["member_id"])
            for row in described["offsets"]] == [(30, 30, 0, member["member_id"])] * 4  # fmt: skip
    shown = cluster.cli("groups", "describe", "workers", "--members").stdout
    assert "orders-0,orders-1,orders-2,orders-3" in shown
    refused = cluster.cli("groups", "delete", "workers")
    assert refused.returncode == 1
    assert "NON_EMPTY_GROUP" in refused.stdout
    assert refused.stderr == (
        "kvorum: not deleted: workers (NON_EMPTY_GROUP: it has members, which kvorum groups "
        "describe workers --members shows; stop them first)\n"
    )
    reader.close()
    assert cluster.cli_json("groups", "delete", "workers") == [
        {"group": "workers", "error": "NONE"}
    ]
    assert cluster.cli_json("groups", "list") == []


@pytest.mark.live
def test_a_group_that_is_not_there_fails_with_its_name(cluster):
    missing = cluster.cli("groups", "describe", "nobodys")
    assert missing.returncode == 1
    assert "group nobodys: GROUP_ID_NOT_FOUND" in missing.stderr
    missing = cluster.cli("groups", "delete", "nobodys")
    assert missing.returncode == 1
    assert (
        "nobodys (GROUP_ID_NOT_FOUND: there is no such group; kvorum groups list" in missing.stderr
    )


@pytest.mark.live
def test_the_groups_that_are_there_are_shown_beside_those_that_are_missing(cluster):
    topic = ("--topic", "several", "--to-earliest", "--execute")
    fill(cluster.bootstrap, "several", replicas=2)
    for name in ("a", "b"):
        assert cluster.cli("groups", "reset-offsets", name, *topic).returncode == 0
    no_x, no_y = (
        f"group {name}: GROUP_ID_NOT_FOUND: the cluster has no such group" for name in ("x", "y")
    )
    described = cluster.cli("groups", "describe", "x", "a", "y", "b", "-o", "json")
    assert described.returncode == 1
    assert described.stderr == f"kvorum: {no_x}; {no_y}\n"
    assert [group["group"] for group in json.loads(described.stdout)] == ["a", "b"]
    shown = cluster.cli("groups", "describe", "a", "x")
    assert (shown.returncode, shown.stderr) == (1, f"kvorum: {no_x}\n")
    assert [line.split()[0] for line in shown.stdout.splitlines()] == ["GROUP", *["a"] * 4]
    none = cluster.cli("groups", "describe", "x", "-o", "json")
    assert (none.returncode, none.stdout) == (1, "")
    deleted = cluster.cli("groups", "delete", "x", "a", "b")
    assert deleted.returncode == 1
    assert [line.split() for line in deleted.stdout.splitlines()] == [
        ["GROUP", "RESULT"], ["x", "GROUP_ID_NOT_FOUND"], ["a", "deleted"], ["b", "deleted"],
    ]  # fmt: skip


def failing(*failures: CommandFailed) -> Callable[[list[str]], list[dict[str, Any]]]:
    """Asks of one group: these failures for the first names, then a row for each name."""
    left = list(failures)

    def ask(names: list[str]) -> list[dict[str, Any]]:
        if left:
            raise left.pop(0)
        return [{"group": name} for name in names]

    return ask


def test_a_group_that_the_user_may_not_see_does_not_hide_the_others():
    rows, failures = _of_each(["a", "b"], failing(CommandFailed("no right", EXIT_NOT_AUTHORIZED)))
    assert rows == [{"group": "b"}]
    with pytest.raises(CommandFailed, match="no right") as ended:
        _end_with(failures)
    assert ended.value.exit_code == EXIT_NOT_AUTHORIZED
    with pytest.raises(CommandFailed, match="no right; gone") as ended:
        _end_with([*failures, CommandFailed("gone")])
    assert ended.value.exit_code == EXIT_FAILED


def test_a_cluster_that_does_not_answer_is_not_asked_for_each_group():
    rows, failures = _of_each(["a", "b"], failing(BrokerGone("no broker answers")))
    assert rows == []
    assert [str(failure) for failure in failures] == ["no broker answers"]


def test_controllers_are_not_asked_for_groups(cluster):
    refused = cluster.cli("groups", "list", "--bootstrap-controller", cluster.bootstrap_controller)
    assert refused.returncode == 2
    assert "--bootstrap-server" in refused.stderr


def test_blobs_of_consumers_are_read_and_others_are_nothing():
    assert subscribed_topics(subscription("a", "b")) == {"a", "b"}
    assignment = struct.pack(">hi", 1, 1) + b"\x00\x01a" + struct.pack(">iiii", 2, 0, 3, -1)
    assert assigned_partitions(assignment) == {"a": (0, 3)}
    assert assigned_partitions(b"") == {}
    for blob in (b"\x00", b"\xff\xff", assignment[:-6], struct.pack(">hi", 0, 2**30)):
        assert assigned_partitions(blob) is None
    assert subscribed_topics(b"x") is None
