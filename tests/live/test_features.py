"""Feature levels on live nodes: a rolling upgrade, and nodes that may not join any more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.by_hand import HandMade
from tests.live.cluster import run_kvorum
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

NODES = ("controller-1", "controller-2", "controller-3", "broker-101")
LEVEL = "metadata.version"
ELR = "eligible.leader.replicas.version"
GV = "group.version"
SV = "share.version"
KV = "kraft.version"
STREAMS = "streams.version"
TV = "transaction.version"


@pytest.fixture
def old(tmp_path: Path) -> Iterator[HandMade]:
    """Nodes that know metadata.version up to 26 only, as of a build before 28."""
    made = HandMade(tmp_path, controllers=3, brokers=1, settings=["metadata.version.max=26"])
    made.start(*NODES)
    begun = {LEVEL: 26, ELR: 0, GV: 0, KV: 0, SV: 0, STREAMS: 0, TV: 0}
    eventually(lambda: described(made) == begun, "the cluster has begun at 26")
    yield made
    made.close()


def described(cluster: HandMade) -> dict[str, int]:
    done = run_kvorum("features", "describe", "-b", cluster.bootstrap, "-o", "json")
    if done.returncode != 0:
        return {}
    return {row["feature"]: row["finalized_level"] for row in json.loads(done.stdout)}


def upgrade(cluster: HandMade, *arguments: str) -> Any:
    return run_kvorum(
        "features", "upgrade", "--feature", f"{LEVEL}=33", *arguments, "-b", cluster.bootstrap
    )


def restart_newer(cluster: HandMade, name: str) -> None:
    cluster.change(name, metadata_version_max=None)
    cluster.stop(name)
    cluster.start(name)


def registered_levels(cluster: HandMade) -> dict[str, int]:
    """The highest metadata.version that each node said it supports when it registered."""
    found = {}
    for kind in ("brokers", "controllers"):
        done = run_kvorum(
            "metadata", "cat", f"/{kind}", "--bootstrap-controller", cluster.bootstrap_controller
        )
        if done.returncode == 0:
            for node_id, node in json.loads(done.stdout).items():
                found[f"{kind[:-1]}-{node_id}"] = node["features"][LEVEL][1]
    return found


def test_rolling_upgrade_node_by_node_then_the_level(old: HandMade) -> None:
    for name in NODES:
        refused = upgrade(old)
        assert refused.returncode == 1, refused.stdout
        assert "supports only 26 to 26" in refused.stdout
        restart_newer(old, name)

        def has_told(name: str = name) -> bool:
            return registered_levels(old).get(name) == 33

        eventually(has_told, f"{name} has registered anew")
    tried = upgrade(old, "--dry-run", "-o", "json")
    assert json.loads(tried.stdout) == [
        {"feature": LEVEL, "level": 33, "error": "NONE", "message": "", "changed": False}
    ]
    assert described(old)[LEVEL] == 26
    more = {ELR: 1, GV: 1, KV: 1, SV: 2, STREAMS: 1, TV: 2}
    done = upgrade(old, *(f"--feature={name}={level}" for name, level in more.items()))
    assert done.returncode == 0, done.stdout + done.stderr
    eventually(lambda: described(old) == {LEVEL: 33, **more}, "all levels are finalised")

    # From now on a node of the older build is kept out, and says why.
    old.stop("broker-101")
    old.change("broker-101", metadata_version_max=26)
    assert "broker 101 cannot join" in old.refusal("broker-101")
    follower = next(i for i in (1, 2, 3) if i != old.quorum("status")["leader_id"])
    old.stop(f"controller-{follower}")
    old.change(f"controller-{follower}", metadata_version_max=26)
    old.start(f"controller-{follower}")
    ended = old.running.pop(f"controller-{follower}")
    assert ended.wait() == 2
    assert f"kvorum: controller {follower} cannot join" in ended.errors()
    assert "Traceback" not in ended.errors()


def test_through_a_controller_the_levels_are_those_of_all_nodes(old: HandMade) -> None:
    restart_newer(old, "broker-101")
    eventually(lambda: registered_levels(old).get("broker-101") == 33, "the broker is newer")
    done = run_kvorum(
        "features", "describe", "-o", "json", "--bootstrap-controller", old.bootstrap_controller
    )
    rows = {row["feature"]: row for row in json.loads(done.stdout)}
    assert (rows[LEVEL]["min_level"], rows[LEVEL]["max_level"]) == (26, 26)


@pytest.mark.parametrize(
    ("argument", "said"),
    [("x", "is not NAME=LEVEL"), ("=1", "is not NAME=LEVEL"), ("a=b", "with a whole number")],
)
def test_an_update_that_cannot_be_read_is_a_usage_error(argument: str, said: str) -> None:
    done = run_kvorum("features", "upgrade", "--feature", argument)
    assert done.returncode == 2
    assert said in done.stderr
