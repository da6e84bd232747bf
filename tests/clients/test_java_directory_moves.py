"""Kafka's own tools move replicas between the data directories of brokers, unchanged (KIP-113)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.java_tools import needs_java, run_tool, tool
from tests.live.by_hand import HandMade
from tests.live.clients import Load, Topics
from tests.live.cluster import run_kvorum
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.java, needs_java]

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[HandMade]:
    """A controller and two brokers, each with two directories."""
    made = HandMade(tmp_path, controllers=1, brokers=2)
    try:
        for name in ("broker-101", "broker-102"):
            made.change(name, log_dirs=",".join(map(str, directories(made, name))))
        made.start("controller-1", "broker-101", "broker-102")
        eventually(
            lambda: run_kvorum("brokers", "list", "-b", made.bootstrap).returncode == 0, "it serves"
        )
        yield made
    finally:
        made.close()


def directories(made: HandMade, name: str) -> list[Path]:
    first = Path(str(made.data(name)).partition(",")[0])
    return [first, first.with_name(f"{first.name}-second")]


def described(made: HandMade) -> dict[str, dict[str, bool]]:
    """By directory: the partitions, and if each is a future replica."""
    said = tool(
        "org.apache.kafka.tools.LogDirsCommand", "--describe", "--bootstrap-server", made.bootstrap
    )
    answer = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    return {
        row["logDir"]: {p["partition"]: p["isFuture"] for p in row["partitions"]}
        for broker in answer["brokers"]
        for row in broker["logDirs"]
    }


def reassign(made: HandMade, plan: Path, *action: str):
    return run_tool(
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        *("--bootstrap-server", made.bootstrap, "--reassignment-json-file", str(plan), *action),
    )


def test_kafka_reassign_partitions_moves_replicas_to_the_directories_it_names(
    made: HandMade, tmp_path: Path
) -> None:
    """One replica changes its directory, one its broker too, and the moves are throttled."""
    Topics(made.bootstrap).create("t", 1, 1)
    load = Load(made.bootstrap, "t", 1)
    load.wait_more()
    load.finish()
    (own,) = (path for path, found in described(made).items() if "t-0" in found)
    name = "broker-101" if own in map(str, directories(made, "broker-101")) else "broker-102"
    other_name = {"broker-101": "broker-102", "broker-102": "broker-101"}[name]
    broker_id, other_id = int(name[-3:]), int(other_name[-3:])
    (target,) = (path for path in directories(made, name) if str(path) != own)
    far = directories(made, other_name)[1]
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps(
            {
                "version": 1,
                "partitions": [
                    {
                        "topic": "t",
                        "partition": 0,
                        "replicas": [broker_id, other_id],
                        "log_dirs": [str(target), str(far)],
                    }
                ],
            }
        )
    )
    done = reassign(
        made, plan, "--execute", "--replica-alter-log-dirs-throttle", "10000000",
        "--throttle", "10000000",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Successfully started" in done.stdout
    eventually(
        lambda: (
            (found := described(made))[str(target)] == {"t-0": False}
            and found[str(far)] == {"t-0": False}
        ),
        "both replicas are where the plan says",
    )
    assert "t-0" not in described(made)[own]
    done = reassign(made, plan, "--verify")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Reassignment of partition t-0 is completed" in done.stdout
    assert done.stdout.count("completed successfully") == 2, done.stdout
    said = run_kvorum(
        "configs", "describe", "--entity", "broker", "--name", str(broker_id),
        "-b", made.bootstrap, "-o", "json",
    ).stdout  # fmt: skip
    assert RATE not in {row["name"] for row in json.loads(said)}, "the throttle is removed"


def test_kafka_configs_cordons_a_directory_and_kafka_topics_is_told(made: HandMade) -> None:
    first, second = directories(made, "broker-101")

    def cordon(value: str) -> None:
        tool(
            "org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", made.bootstrap, "--alter",
            "--entity-type", "brokers", "--entity-name", "101",
            "--add-config", f"cordoned.log.dirs=[{value}]",
        )  # fmt: skip

    cordon(str(first))
    Topics(made.bootstrap).create("u", 6, 2)
    eventually(lambda: len(described(made)[str(second)]) == 6, "the other directory gets all")
    assert described(made)[str(first)] == {}
    cordon(f"{first},{second}")
    done = run_tool(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", made.bootstrap,
        "--create", "--topic", "v", "--partitions", "1", "--replication-factor", "2",
    )  # fmt: skip
    assert done.returncode != 0
    assert "INVALID_REPLICATION_FACTOR" in done.stdout + done.stderr or (
        "InvalidReplicationFactor" in done.stdout + done.stderr
    )
