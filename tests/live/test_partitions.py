"""Partitions of a real cluster: moved under load, grown, elected; by our own command line."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.clients import Load, Topics, read_all
from tests.live.cluster import Cluster, broker_name, run_kvorum
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

OLD = {101, 102, 103}
ALL = OLD | {104, 105}
PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = ["leader.imbalance.check.interval.seconds=2"]
    folder = tmp_path_factory.mktemp("partitions")
    with Cluster(folder, controllers=3, brokers=5, settings=settings) as cluster:
        yield cluster


def replicas_of(cluster: Cluster, topic: str) -> dict[int, list[int]]:
    (found,) = cluster.cli_json("topics", "describe", topic)
    return {p["partition"]: p["replicas"] for p in found["partitions"]}


def rows_of(cluster: Cluster, topic: str) -> list[dict[str, object]]:
    (found,) = cluster.cli_json("topics", "describe", topic)
    rows: list[dict[str, object]] = found["partitions"]
    return rows


def moved_to(path: Path, topic: str, targets: dict[int, list[int]]) -> str:
    rows = [{"topic": topic, "partition": p, "replicas": r} for p, r in targets.items()]
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    return str(path)


def verify(cluster: Cluster, path: str) -> set[str]:
    rows = cluster.cli_json("partitions", "reassign", "--verify", path)
    return {row["state"] for row in rows}


def throttles(cluster: Cluster, kind: str, name: str) -> set[str]:
    rows = cluster.cli_json("configs", "describe", "--entity", kind, "--name", name)
    return {row["name"] for row in rows if "throttled" in row["name"]}


def make_on_old_brokers(cluster: Cluster, name: str, partitions: int, tmp_path: Path) -> None:
    """A topic that is only on the three brokers that there were at first."""
    topics = Topics(cluster.bootstrap)
    topics.create(name, partitions=partitions, min_insync_replicas=2)
    old = sorted(OLD)
    targets = {p: [old[(p + i) % 3] for i in range(3)] for p in range(partitions)}
    path = moved_to(tmp_path / f"{name}-old.json", name, targets)
    assert cluster.cli("partitions", "reassign", "--execute", path).returncode == 0
    eventually(lambda: verify(cluster, path) == {"complete"}, f"{name} is on the old brokers")


def folders(cluster: Cluster, topic: str) -> set[tuple[int, int]]:
    """(broker, partition) of the replicas that lie on disk."""
    return {
        (broker_id, int(path.name.rpartition("-")[2]))
        for broker_id in ALL
        for path in (cluster.data_dir / broker_name(broker_id)).glob(f"{topic}-*")
        if path.name.rpartition("-")[0] == topic
    }


def test_a_topic_moves_from_three_brokers_to_five_under_load_and_loses_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    make_on_old_brokers(cluster, "moving", PARTITIONS, tmp_path)
    load = Load(cluster.bootstrap, "moving", PARTITIONS)
    load.wait_more(2_000)

    topics_file = tmp_path / "topics.json"
    topics_file.write_text(json.dumps({"version": 1, "topics": [{"topic": "moving"}]}))
    generated = cluster.cli_json(
        *("partitions", "reassign", "--generate", str(topics_file)),
        *("--broker-list", ",".join(map(str, sorted(ALL)))),
    )
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(generated["proposed"]))
    begun = cluster.cli("partitions", "reassign", "--execute", str(plan), "--throttle", "20000000")
    assert begun.returncode == 0, begun.stderr
    assert throttles(cluster, "topic", "moving") == {
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    }
    assert throttles(cluster, "broker", "101") == {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
    }
    eventually(lambda: verify(cluster, str(plan)) == {"complete"}, "the move is complete")
    assert throttles(cluster, "topic", "moving") == throttles(cluster, "broker", "101") == set()

    load.wait_more(2_000)
    load.finish()
    assert load.failures == []
    wanted = {row["partition"]: row["replicas"] for row in generated["proposed"]["partitions"]}
    assert replicas_of(cluster, "moving") == wanted
    assert {r for replicas in wanted.values() for r in replicas} == ALL
    read = read_all(cluster.bootstrap, "moving", PARTITIONS)
    found = [value for values in read for value in values]
    assert len(found) == len(set(found)), "a record stands twice"
    assert set(load.acknowledged) <= set(found)
    here = {(r, p) for p, replicas in wanted.items() for r in replicas}
    eventually(lambda: folders(cluster, "moving") == here, "replicas moved away are deleted")


def test_no_throttle_stays_behind(cluster: Cluster, tmp_path: Path) -> None:
    def execute(path: str) -> str:
        done = cluster.cli("partitions", "reassign", "--execute", path, "--throttle", "1000")
        return done.stderr

    def all_throttles() -> set[str]:
        return throttles(cluster, "broker", "101") | throttles(cluster, "broker", "104")

    make_on_old_brokers(cluster, "held", 2, tmp_path)
    nowhere = moved_to(tmp_path / "nowhere.json", "held", {0: [101, 999]})
    assert "brokers [999] of FILE are not registered" in execute(nowhere)
    assert all_throttles() == set()
    # No move of the plan was started, but its throttles were set. --verify fails, and removes them.
    refused = moved_to(tmp_path / "refused.json", "held", {77: [101, 104]})
    assert "not begun: held-77" in execute(refused)
    assert all_throttles() != set()
    done = cluster.cli("partitions", "reassign", "--verify", refused)
    assert done.returncode == 1 and "not where FILE says" in done.stderr
    assert all_throttles() == throttles(cluster, "topic", "held") == set()
    # A topic that is deleted while it moves.
    load = Load(cluster.bootstrap, "held", 2)
    load.wait_more(2_000)
    load.finish()
    slow = moved_to(tmp_path / "slow.json", "held", {0: [104, 105, 103]})
    execute(slow)
    assert verify(cluster, slow) == {"in progress"}
    # Another move is complete; its brokers' rates stay, because the slow move needs them too.
    make = moved_to(tmp_path / "other.json", "held", {1: replicas_of(cluster, "held")[1]})
    assert verify(cluster, make) == {"complete"}
    assert all_throttles() != set()
    assert cluster.cli("topics", "delete", "held").returncode == 0
    done = cluster.cli("partitions", "reassign", "--verify", slow)
    assert done.returncode == 1, done.stderr
    assert all_throttles() == set()


def test_a_broker_that_slept_through_a_move_deletes_what_it_lost(
    cluster: Cluster, tmp_path: Path
) -> None:
    make_on_old_brokers(cluster, "slept", 1, tmp_path)
    load = Load(cluster.bootstrap, "slept")
    load.wait_more(100)
    load.finish()
    assert (102, 0) in folders(cluster, "slept")
    cluster.kill(broker_name(102))
    plan = moved_to(tmp_path / "slept.json", "slept", {0: [104, 105, 103]})
    begun = cluster.cli("partitions", "reassign", "--execute", plan)
    assert begun.returncode == 0, begun.stderr
    eventually(lambda: verify(cluster, plan) == {"complete"}, "the move needs no one from before")
    cluster.restart(broker_name(102))
    eventually(lambda: folders(cluster, "slept") == {(103, 0), (104, 0), (105, 0)}, "it is gone")
    assert set(load.acknowledged) <= set(read_all(cluster.bootstrap, "slept")[0])


def test_a_move_that_cannot_end_survives_a_fail_over_and_is_cancelled(
    cluster: Cluster, tmp_path: Path
) -> None:
    make_on_old_brokers(cluster, "stuck", 1, tmp_path)
    before = replicas_of(cluster, "stuck")
    cluster.kill(broker_name(105))
    plan = moved_to(tmp_path / "stuck.json", "stuck", {0: [105, 104]})
    assert cluster.cli("partitions", "reassign", "--execute", plan).returncode == 0
    refused = cluster.cli("partitions", "reassign", "--execute", plan)
    assert refused.returncode == 1
    assert "--additional" in refused.stderr

    leader = cluster.cli_json("quorum", "status")["leader_id"]
    cluster.kill(f"controller-{leader}")
    ongoing = eventually(
        lambda: (
            cluster.cli("partitions", "reassign", "--list").returncode == 0
            and cluster.cli_json("partitions", "reassign", "--list")
        ),
        "the next controller knows of it",
    )
    assert [(row["topic"], row["adding_replicas"]) for row in ongoing] == [("stuck", [105, 104])]
    assert verify(cluster, plan) == {"in progress"}
    cancelled = run_kvorum(
        *("partitions", "reassign", "--cancel", plan),
        *("--bootstrap-controller", cluster.bootstrap_controller),
    )
    assert cancelled.returncode == 0, cancelled.stderr
    assert sorted(replicas_of(cluster, "stuck")[0]) == sorted(before[0])
    assert cluster.cli_json("partitions", "reassign", "--list") == []
    failed = cluster.cli("partitions", "reassign", "--verify", plan)
    assert failed.returncode == 1
    assert "stuck-0" in failed.stderr
    cluster.restart(f"controller-{leader}", broker_name(105))


def test_new_partitions_are_written_and_read_at_once(cluster: Cluster) -> None:
    Topics(cluster.bootstrap).create("growing", partitions=1)
    done = cluster.cli("partitions", "add", "growing", "--partitions", "4")
    assert done.returncode == 0, done.stderr
    assert len(replicas_of(cluster, "growing")) == 4
    load = Load(cluster.bootstrap, "growing", 4)
    load.wait_more(100)
    load.finish()
    assert all(read_all(cluster.bootstrap, "growing", 4))
    refused = cluster.cli("partitions", "add", "growing", "--partitions", "4")
    assert refused.returncode == 1
    assert "already has 4" in refused.stderr


def test_a_preferred_leader_comes_back_by_itself(cluster: Cluster) -> None:
    topics = Topics(cluster.bootstrap)
    topics.create("balanced")
    (row,) = rows_of(cluster, "balanced")
    preferred = row["replicas"][0]  # type: ignore[index]
    cluster.kill(broker_name(preferred))
    eventually(lambda: rows_of(cluster, "balanced")[0]["leader"] != preferred, "another leads")
    cluster.restart(broker_name(preferred))
    eventually(lambda: rows_of(cluster, "balanced")[0]["leader"] == preferred, "it leads again")


def test_an_unclean_election_is_held_when_it_is_ordered(cluster: Cluster) -> None:
    topics = Topics(cluster.bootstrap)
    topics.create("unclean", replicas=2)
    (row,) = rows_of(cluster, "unclean")
    first, second = row["replicas"]  # type: ignore[misc]
    cluster.kill(broker_name(second))
    topics.wait_isr("unclean", {first})
    cluster.kill(broker_name(first))
    cluster.restart(broker_name(second))
    eventually(lambda: rows_of(cluster, "unclean")[0]["leader"] == -1, "nobody leads")
    refused = cluster.cli("partitions", "elect", "unclean:0")
    assert refused.returncode == 1
    done = cluster.cli("partitions", "elect", "--unclean", "unclean")
    assert done.returncode == 0, done.stderr
    assert topics.leader("unclean") == second
    cluster.restart(broker_name(first))
    topics.wait_isr("unclean", {first, second})


def test_a_replica_that_was_away_leads_if_it_is_eligible_and_has_all_that_was_acknowledged(
    cluster: Cluster,
) -> None:
    topics = Topics(cluster.bootstrap)
    topics.create("eligible", replicas=2, min_insync_replicas=2)
    (row,) = rows_of(cluster, "eligible")
    first, second = row["replicas"]  # type: ignore[misc]
    load = Load(cluster.bootstrap, "eligible")
    load.wait_more(500)
    load.finish()

    cluster.signal(broker_name(second), signal.SIGSTOP)
    eventually(lambda: rows_of(cluster, "eligible")[0]["isr"] == [first], "it is out of the ISR")
    seen = cluster.cli_json("metadata", "cat", "/topics/eligible/0")
    assert seen["elr"] == [second]
    cluster.kill(broker_name(first))
    eventually(lambda: rows_of(cluster, "eligible")[0]["leader"] == -1, "nobody leads")
    cluster.signal(broker_name(second), signal.SIGCONT)
    # The broker that was paused answers with old metadata until it has caught up.
    eventually(lambda: topics.leader("eligible") == second, "the eligible replica leads")
    cluster.restart(broker_name(first))
    topics.wait_isr("eligible", {first, second})
    assert set(load.acknowledged) <= set(read_all(cluster.bootstrap, "eligible")[0])
