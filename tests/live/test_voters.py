"""Voters come and go under load; a voter whose disk was wiped has no vote (KIP-853, row Q4)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.by_hand import HandMade
from tests.live.clients import TopicMaker, Topics
from tests.live.cluster import run_kvorum
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[object]:
    made: list[HandMade] = []

    def make_one(**options: object) -> HandMade:
        made.append(HandMade(tmp_path, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make_one
    for cluster in made:
        cluster.close()


def voters(cluster: HandMade) -> list[int]:
    found: list[int] = sorted(cluster.quorum("status")["current_voters"])
    return found


def test_one_voter_becomes_three_and_five_and_one_again_under_load(make) -> None:  # type: ignore[no-untyped-def]
    cluster: HandMade = make(controllers=1, brokers=1)
    cluster.start("controller-1", "broker-101")
    maker = TopicMaker(cluster.bootstrap, "grown", replicas=1, pause_s=0.02)
    for node_id in (2, 3, 4, 5):
        cluster.init("--add", "controller")
        cluster.start(f"controller-{node_id}")
        cluster.wait_caught_up(node_id, "Observer")
        tried = cluster.quorum("add-voter", "--id", str(node_id), "--dry-run")
        assert tried["changed"] is False
        assert node_id not in voters(cluster)
        made = cluster.quorum("add-voter", "--id", str(node_id))
        assert sorted(made["voters_after"]) == voters(cluster) == list(range(1, node_id + 1))
    again = cluster.try_quorum("add-voter", "--id", "5")
    assert again.returncode == 1
    assert again.stderr.strip() == "kvorum: DUPLICATE_VOTER: node 5 is a voter already"

    # Remove the leader first, so that leadership moves each time.
    while len(left := voters(cluster)) > 1:
        leader = cluster.quorum("status")["leader_id"]
        made = cluster.quorum("remove-voter", "--id", str(leader))
        assert sorted(made["voters_after"]) == [v for v in left if v != leader]
        eventually(
            lambda gone=leader: cluster.quorum("status")["leader_id"] != gone,
            "another voter leads",
        )
    (last,) = voters(cluster)
    refused = cluster.try_quorum("remove-voter", "--id", str(last))
    assert refused.returncode == 1
    assert "the last voter cannot be removed" in refused.stderr

    # A removed voter stays removed, also over a restart; it follows the log as an observer.
    removed = next(node_id for node_id in (1, 2, 3) if node_id != last)
    cluster.kill(f"controller-{removed}")
    cluster.start(f"controller-{removed}")
    cluster.wait_caught_up(removed, "Observer")
    leader = cluster.quorum("status")["leader_id"]
    one = cluster.address(f"controller-{leader}")
    told = run_kvorum("quorum", "timeline", "-o", "json", "--bootstrap-controller", one)
    assert removed in {row["node"] for row in json.loads(told.stdout)}
    assert voters(cluster) == [last]

    acknowledged = maker.finish()
    Topics(cluster.bootstrap).wait_names(acknowledged)
    assert len(acknowledged) > 20


def test_wiped_disk_under_an_old_id_has_no_vote_until_it_is_added_again(make) -> None:  # type: ignore[no-untyped-def]
    cluster: HandMade = make(controllers=3, brokers=1)
    cluster.start("controller-1", "controller-2", "controller-3", "broker-101")
    topics = Topics(cluster.bootstrap)
    topics.create("before", replicas=1)
    leader = cluster.quorum("status")["leader_id"]
    wiped, other = (i for i in (1, 2, 3) if i != leader)
    before = cluster.replica(wiped)
    assert before is not None
    cluster.kill(f"controller-{wiped}")
    cluster.wipe(f"controller-{wiped}")
    assert "is not prepared for a controller with dynamic voters" in cluster.refusal(
        f"controller-{wiped}"
    )
    cluster.init("--again", str(wiped))
    cluster.start(f"controller-{wiped}")

    def follows() -> bool:
        done = cluster.quorum("replication")
        mine = [r for r in done if r["node_id"] == wiped and r["status"] == "Observer"]
        return any(r["lag"] == 0 and r["directory_id"] != before["directory_id"] for r in mine)

    eventually(follows, "the new disk follows as an observer")
    # Two of the three voters are gone now; the wiped one must not stand in for its old disk.
    cluster.kill(f"controller-{other}")
    eventually(
        lambda: cluster.try_quorum("status").returncode == 4,
        "one voter and a wiped disk are no quorum",
    )
    cluster.start(f"controller-{other}")
    eventually(lambda: cluster.try_quorum("status").returncode == 0, "a quorum again")
    removed = cluster.quorum("remove-voter", "--id", str(wiped))
    assert wiped not in removed["voters_after"]
    added = cluster.quorum("add-voter", "--id", str(wiped))
    assert sorted(added["voters_after"]) == [1, 2, 3]
    after = cluster.replica(wiped)
    assert after is not None and after["directory_id"] != before["directory_id"]
    topics.create("after", replicas=1)
    topics.wait_names({"before", "after"})


def test_change_that_would_stop_the_quorum_is_refused(make) -> None:  # type: ignore[no-untyped-def]
    cluster: HandMade = make(controllers=3, brokers=0)
    cluster.start("controller-1", "controller-2", "controller-3")
    eventually(lambda: cluster.try_quorum("status").returncode == 0, "a leader")
    leader = cluster.quorum("status")["leader_id"]
    dead, alive = (i for i in (1, 2, 3) if i != leader)
    cluster.kill(f"controller-{dead}")

    def says_why() -> bool:
        done = cluster.try_quorum("remove-voter", "--id", str(alive), "--dry-run")
        return done.returncode == 1 and "the change would stop the quorum" in done.stderr

    eventually(says_why, "the dead voter is noticed")
    assert cluster.quorum("remove-voter", "--id", str(dead))["changed"] is True


def test_voter_that_listens_elsewhere_tells_the_others(make) -> None:  # type: ignore[no-untyped-def]
    cluster: HandMade = make(controllers=3, brokers=0)
    cluster.start("controller-1", "controller-2", "controller-3")
    eventually(lambda: cluster.try_quorum("status").returncode == 0, "a leader")
    leader = cluster.quorum("status")["leader_id"]
    moved = next(i for i in (1, 2, 3) if i != leader)
    cluster.kill(f"controller-{moved}")
    port = cluster.ports.controller + 6
    cluster.change(f"controller-{moved}", listeners=f"CONTROLLER://127.0.0.1:{port}")
    cluster.start(f"controller-{moved}")
    cluster.wait_caught_up(moved, "Follower")

    def is_known() -> bool:
        text = cluster.try_quorum("timeline").stdout
        return f"{moved}@127.0.0.1:{port}:" in text

    eventually(is_known, "the voter set names the new listener")
    cluster.kill(f"controller-{leader}")
    eventually(lambda: cluster.try_quorum("status").returncode == 0, "the two others lead on")
