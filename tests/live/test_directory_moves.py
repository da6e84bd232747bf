"""Real brokers whose replicas move between data directories under load, through kills (KIP-113)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.by_hand import HandMade
from tests.live.clients import Load, Topics, assert_nothing_lost
from tests.live.cluster import Command, run_kvorum
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

PARTITIONS = 4
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[HandMade]:
    """A broker with two data directories."""
    made = HandMade(tmp_path, controllers=1, brokers=1)
    try:
        first = made.data("broker-101")
        made.change("broker-101", log_dirs=f"{first},{first}-b", metadata_log_dir=f"{first}-meta")
        made.start("controller-1", "broker-101")
        eventually(lambda: rows(made), "it serves")
        yield made
    finally:
        made.close()


def kvorum(made: HandMade, *arguments: str) -> Any:
    done = run_kvorum(*arguments, "-b", made.bootstrap, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout else None


def rows(made: HandMade) -> list[dict[str, Any]]:
    done = run_kvorum("brokers", "log-dirs", "101", "-b", made.bootstrap, "-o", "json")
    return json.loads(done.stdout) if done.returncode == 0 else []


def paths(made: HandMade) -> list[str]:
    return str(made.properties("broker-101")["log.dirs"]).split(",")


def counts(made: HandMade) -> list[tuple[int, int]]:
    """Of each directory: its replicas, and those that move to it."""
    return [(row["replicas"], row["moving_in"]) for row in rows(made)]


def set_config(made: HandMade, name: str, value: str) -> None:
    kvorum(made, "configs", "alter", "--entity", "broker", "--name", "101", "--set",
           f"{name}={value}")  # fmt: skip


def test_a_directory_is_emptied_under_load_and_kills_and_taken_out(made: HandMade) -> None:
    Topics(made.bootstrap).create("t", PARTITIONS, 1)
    load = Load(made.bootstrap, "t", PARTITIONS)
    load.wait_more(2_000)
    first, second = paths(made)
    assert counts(made) == [(2, 0), (2, 0)]
    set_config(made, "cordoned.log.dirs", second)
    assert [row["is_cordoned"] for row in rows(made)] == [False, True]

    # The moves are so slow that the broker is killed in their middle, twice.
    planned = kvorum(made, "brokers", "move-replicas", "101", "--from", second, "--dry-run")
    assert [row["target"] for row in planned] == [first] * 2
    done = kvorum(
        made, "brokers", "move-replicas", "101", "--from", second, "--throttle", "20000"
    )  # fmt: skip
    assert {row["error"] for row in done} == {"NONE"}
    for _ in range(2):
        assert counts(made) == [(2, 2), (2, 0)]
        load.wait_more()
        made.kill("broker-101")
        made.start("broker-101")
        load.wait_more()
    set_config(made, RATE, str(1 << 40))
    eventually(lambda: counts(made) == [(4, 0), (0, 0)], "the directory is empty")
    load.wait_more()

    # A directory that is empty and cordoned is taken out with a restart.
    made.stop("broker-101")
    made.change("broker-101", log_dirs=first)
    made.start("broker-101")
    load.wait_more()
    load.finish()
    assert counts(made) == [(4, 0)]
    assert_nothing_lost(load, made.bootstrap)
    said = (made.folder / "broker-101.err").read_text()
    assert "stays offline" not in said and "ERROR" not in said


def test_the_command_moves_named_replicas_and_balances_the_rest(made: HandMade) -> None:
    Topics(made.bootstrap).create("t", PARTITIONS, 1)
    load = Load(made.bootstrap, "t", PARTITIONS)
    load.wait_more(2_000)
    load.finish()
    first, second = paths(made)
    named = [f"t:{number}" for number in range(PARTITIONS)]
    done = kvorum(
        made, "brokers", "move-replicas", "101", *named, "--to", second, "--wait"
    )  # fmt: skip
    assert {row["error"] for row in done} == {"NONE"}
    assert counts(made) == [(0, 0), (4, 0)]
    assert [row["size_to_mean"] for row in rows(made)] == [0.0, 2.0]
    kvorum(made, "brokers", "move-replicas", "101", "--balance", "--wait")
    assert counts(made) == [(2, 0), (2, 0)]
    assert_nothing_lost(load, made.bootstrap)

    def refused(*arguments: str) -> str:
        done = run_kvorum("brokers", "move-replicas", *arguments, "-b", made.bootstrap)
        assert done.returncode != 0
        return done.stdout + done.stderr

    assert "data directories are" in refused("101", "t:0", "--to", "/nowhere")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in refused("101", "t:77", "--to", first)
    assert "not registered" in refused("7", "t:0", "--to", first)
    for bad in ("t", "t:²", ":0", "t:-1", f"t:{2**31}"):
        assert "no TOPIC:PARTITION" in refused("101", bad, "--to", first)
    assert "need --to" in refused("101", "t:0")
    set_config(made, "cordoned.log.dirs", second)
    assert "INVALID_REPLICA_ASSIGNMENT" in refused("101", "t:0", "--to", second)
    assert "not cordoned" in refused("101", "--from", first)


def test_the_wait_for_a_move_outlives_a_restart_of_the_broker(made: HandMade) -> None:
    Topics(made.bootstrap).create("t", 1, 1)
    load = Load(made.bootstrap, "t", 1)
    load.wait_more(2_000)
    load.finish()
    (source,) = (row["log_dir"] for row in rows(made) if row["replicas"])
    (target,) = set(paths(made)) - {source}
    errors = made.folder / "wait.err"
    wait = Command(
        "brokers", "move-replicas", "101", "t:0", "--to", target, "--throttle", "1", "--wait",
        "-b", made.bootstrap, error_file=errors,
    )  # fmt: skip
    eventually(lambda: sum(row["moving_in"] for row in rows(made)) == 1, "the move is under way")
    made.kill("broker-101")
    eventually(lambda: "waiting for it" in errors.read_text(), "the command waits for the broker")
    made.start("broker-101")
    eventually(lambda: rows(made), "it serves")
    set_config(made, RATE, str(1 << 40))
    assert wait.wait() == 0, errors.read_text()
    assert errors.read_text().count("\n") == 1
    assert wait.lines[-1].split()[:2] == ["t:0", "moved"]
    done = run_kvorum(
        "brokers", "move-replicas", "101", "t:0", "--to", target, "-b", made.bootstrap
    )  # fmt: skip
    assert "there already" in done.stdout


def test_a_reassignment_moves_replicas_to_the_directories_of_its_file(tmp_path: Path) -> None:
    """One replica changes its directory, one comes to another broker; then the printed way back."""
    made = HandMade(tmp_path, controllers=1, brokers=2)
    try:
        for name in ("broker-101", "broker-102"):
            first = made.data(name)
            made.change(name, log_dirs=f"{first},{first}-b", metadata_log_dir=f"{first}-meta")
        made.start("controller-1", "broker-101", "broker-102")
        eventually(lambda: len(kvorum_rows(made)) == 4, "both serve")
        kvorum(made, "topics", "create", "t", "--replica-assignment", "101")
        ((source, _),) = (key for key in places(made))
        (target,) = set(paths(made)) - {source}
        far = f"{made.properties('broker-102')['log.dirs']}".split(",")[1]
        plan = tmp_path / "plan.json"
        partition = {"topic": "t", "partition": 0, "replicas": [101, 102]}
        write(plan, {**partition, "log_dirs": [target, far]})
        begun = kvorum(made, "partitions", "reassign", "--execute", str(plan))
        assert begun["before"]["partitions"] == [
            {**partition, "replicas": [101], "log_dirs": [source]}
        ]
        assert [row["log_dir"] for row in begun["log_dirs"]] == [target, far]
        assert {row["error"] for row in begun["log_dirs"]} == {"NONE"}
        eventually(lambda: states(made, plan) == ["complete"] * 3, "the move is complete")
        assert places(made) == {(target, 101), (far, 102)}
        assert kvorum(made, "partitions", "reassign", "--cancel", str(plan)) == []

        plan.write_text(json.dumps(begun["before"]))
        kvorum(made, "partitions", "reassign", "--execute", str(plan))
        eventually(lambda: states(made, plan) == ["complete"] * 2, "the way back is complete")
        eventually(lambda: places(made) == {(source, 101)}, "the other replica is deleted")
        write(plan, {**partition, "replicas": [101], "log_dirs": [target]})
        done = run_kvorum(
            "partitions", "reassign", "--verify", str(plan), "-b", made.bootstrap
        )  # fmt: skip
        assert done.returncode == 1 and "t-0 at broker 101" in done.stderr
    finally:
        made.close()


def kvorum_rows(made: HandMade) -> list[dict[str, Any]]:
    done = run_kvorum("brokers", "log-dirs", "-b", made.bootstrap, "-o", "json")
    return json.loads(done.stdout) if done.returncode == 0 else []


def places(made: HandMade) -> set[tuple[str, int]]:
    """The directories that have replicas, each with its broker."""
    return {(row["log_dir"], row["broker_id"]) for row in kvorum_rows(made) if row["replicas"]}


def states(made: HandMade, plan: Path) -> list[str]:
    done = run_kvorum(
        "partitions", "reassign", "--verify", str(plan), "-b", made.bootstrap, "-o", "json"
    )  # fmt: skip
    return [row["state"] for row in json.loads(done.stdout)]


def write(plan: Path, partition: dict[str, Any]) -> None:
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
