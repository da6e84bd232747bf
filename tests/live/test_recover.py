"""A quorum that lost its majority for good goes on with one survivor (row Q6)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.by_hand import HandMade
from tests.live.clients import Topics
from tests.live.cluster import run_kvorum
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]


@pytest.fixture(params=["dynamic", "static"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HandMade]:
    made = HandMade(tmp_path, controllers=3, brokers=1, is_static=request.param == "static")
    yield made
    made.close()


def recover(cluster: HandMade, name: str, *flags: str) -> Any:
    return run_kvorum("quorum", "recover", "--config", str(cluster.file(name)), *flags)


def test_survivor_leads_alone_and_keeps_what_it_held(cluster: HandMade) -> None:
    names = ["controller-1", "controller-2", "controller-3"]
    cluster.start(*names, "broker-101")
    topics = Topics(cluster.bootstrap)
    topics.create("kept", replicas=1)
    for node_id in (1, 2, 3):
        cluster.wait_caught_up(
            node_id, "Leader" if cluster.quorum("status")["leader_id"] == node_id else "Follower"
        )
    while_running = recover(cluster, "controller-2", "--unsafe")
    assert while_running.returncode == 2
    assert "is in use by another process" in while_running.stderr
    cluster.kill(*names)
    cluster.wipe("controller-1")
    cluster.wipe("controller-3")

    before = sorted(cluster.data("controller-2").rglob("*"))
    contents = {path: path.read_bytes() for path in before if path.is_file()}
    tried = recover(cluster, "controller-2")
    assert tried.returncode == 1
    assert tried.stderr == "kvorum: nothing was changed; --unsafe does it\n"
    assert "controller-2) would become the only voter of [1, 2, 3]" in tried.stdout
    assert "cannot be known:" in tried.stdout
    assert {p: p.read_bytes() for p in before if p.is_file()} == contents
    known = json.loads(recover(cluster, "controller-2", "-o", "json").stdout)
    assert known["changed"] is False and known["last_offset"] > 0

    is_static = "controller.quorum.voters" in cluster.properties("controller-2")
    if is_static:
        refused = recover(cluster, "controller-2", "--unsafe")
        assert refused.returncode == 2
        alone = f"2@{cluster.address('controller-2')}"
        assert f"first set controller.quorum.voters={alone}" in refused.stderr
        cluster.change("controller-2", controller_quorum_voters=alone)
        cluster.stop("broker-101")
        cluster.change("broker-101", controller_quorum_voters=alone)
        cluster.start("broker-101")
    # The log names the voters, even if the configuration no longer does.
    tried = recover(cluster, "controller-2")
    assert "whether [1, 3] held acknowledged records" in tried.stdout
    assert "never start [1, 3] again" in tried.stdout
    done = recover(cluster, "controller-2", "--unsafe", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["changed"] is True
    cluster.start("controller-2")
    eventually(lambda: cluster.try_quorum("status").returncode == 0, "the survivor leads")
    status = cluster.quorum("status")
    assert status["current_voters"] == [2]
    assert status["leader_epoch"] > known["last_epoch"]
    topics.wait_names({"kept"})
    topics.create("after", replicas=1)
    if not is_static:
        cluster.init("--again", "1")
        cluster.start("controller-1")
        cluster.wait_caught_up(1, "Observer")
        assert sorted(cluster.quorum("add-voter", "--id", "1")["voters_after"]) == [1, 2]
