"""`kvorum groups` against a cluster with a consumer in it, and the blobs that it reads."""

from __future__ import annotations

import struct

import pytest

from kvorum.broker.groups.classic.subscription import assigned_partitions, subscribed_topics
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
