"""Folders of `kvorum init` that are copied to their hosts a second time, after a disk was lost: a
new disk has no vote, and brokers that know more than a quorum do not join it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.by_hand import HandMade
from tests.live.cluster import run_kvorum
from tests.live.http import get
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

METRICS = 7
"""From the first port of brokers to that of the broker's metrics."""
CONTROLLERS = ("controller-1", "controller-2", "controller-3")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[HandMade]:
    made = HandMade(tmp_path)
    # The administrator keeps what init made.
    shutil.copytree(made.conf, tmp_path / "admin")
    made.change("broker-101", metrics_listener=f"HTTP://127.0.0.1:{made.ports.broker + METRICS}")
    yield made
    made.close()


def copy_again(cluster: HandMade, name: str) -> None:
    """The node's disk is lost, and its folder is copied from the administrator's machine again."""
    cluster.wipe(name)
    data = cluster.data(name)
    shutil.copytree(cluster.folder / "admin" / data.relative_to(cluster.conf), data)


def directory_id(data: Path) -> str:
    text = (data / "meta.properties").read_text()
    found = [line for line in text.splitlines() if line.startswith("directory.id=")]
    return found[0].partition("=")[2] if found else ""


def voters(cluster: HandMade) -> dict[tuple[int, str], str]:
    """The states of the replicas as the leader sees them, by node id and directory id."""
    rows = cluster.try_quorum("replication", "-o", "json")
    return (
        {}
        if rows.returncode
        else {
            (row["node_id"], row["directory_id"]): row["status"] for row in json.loads(rows.stdout)
        }
    )


def names_all(cluster: HandMade) -> bool:
    """True if the voter set has the directory of each controller."""
    ids = {(n, directory_id(cluster.data(f"controller-{n}"))) for n in (1, 2, 3)}
    return {key for key in voters(cluster) if key[0] < 100} == ids


def create(cluster: HandMade, topic: str) -> bool:
    return run_kvorum("topics", "create", topic, "-b", cluster.bootstrap).returncode == 0


def started(cluster: HandMade) -> None:
    cluster.start(*CONTROLLERS, "broker-101")
    eventually(lambda: create(cluster, "first"), "the broker is in service")
    # A quorum that does not know its disks yet gives its vote to the one that holds the metadata.
    eventually(lambda: names_all(cluster), "every voter is known with its directory")


def test_each_host_makes_its_directory_id_and_the_voter_set_takes_it(cluster: HandMade) -> None:
    for name in CONTROLLERS:
        assert directory_id(cluster.data(name)) == ""
    started(cluster)
    ids = {directory_id(cluster.data(name)) for name in CONTROLLERS}
    assert len(ids) == 3


def test_a_folder_that_is_copied_again_has_no_vote(cluster: HandMade) -> None:
    started(cluster)
    data = cluster.data("controller-2")
    before = directory_id(data)
    cluster.kill("controller-2")
    copy_again(cluster, "controller-2")
    cluster.start("controller-2")
    eventually(lambda: directory_id(data) not in ("", before), "the new disk has its own id")
    new = (2, directory_id(data))
    eventually(lambda: voters(cluster).get(new) == "Observer", "the new disk follows, no more")
    assert create(cluster, "second")
    log = cluster.running["controller-2"].errors()
    assert f"node 2 votes with directory {before}, and this one is {new[1]}" in log
    # As after any lost disk: out with the old voter, in with the new one.
    for arguments in (("remove-voter", "--id", "2"), ("add-voter", "--id", "2")):
        eventually(
            lambda arguments=arguments: cluster.try_quorum(*arguments).returncode == 0,
            " ".join(arguments),
        )
    eventually(lambda: voters(cluster).get(new) in ("Follower", "Leader"), "it votes again")


def test_brokers_do_not_join_a_quorum_that_has_lost_their_metadata(cluster: HandMade) -> None:
    started(cluster)
    password = cluster.folder / "password"
    password.write_text("secret-of-bob\n")
    for n in range(5):
        assert create(cluster, f"more-{n}")
    cluster.kill(*CONTROLLERS)
    for name in CONTROLLERS[:2]:
        copy_again(cluster, name)
    cluster.start(*CONTROLLERS[:2])
    eventually(
        lambda: cluster.try_quorum("status", "-o", "json").returncode == 0, "a quorum of new disks"
    )
    log = cluster.running["broker-101"]
    eventually(lambda: "does not join the cluster" in log.errors(), "the broker says so")
    port = cluster.ports.broker + METRICS
    eventually(lambda: get(port, "/readyz")[0] == 503, "and it is not ready")
    assert log.is_running()
    assert not create(cluster, "lost"), "nothing is acknowledged that would be lost"
    user = ("users", "create", "bob", "--password-file", str(password), "-b", cluster.bootstrap)
    refused = run_kvorum(*user)
    assert refused.returncode != 0 and "refuses the quorum" in refused.stderr, refused.stderr
    health = run_kvorum("health", "-b", cluster.bootstrap)
    assert health.returncode != 0, health.stdout
    assert "Broker 101 refuses the quorum" in health.stdout + health.stderr
    cluster.kill("broker-101")
    cluster.start("broker-101")
    log = cluster.running["broker-101"]
    eventually(lambda: "does not join the cluster" in log.errors(), "also after a restart")
    # The controller that holds the metadata comes back: it does not give it up either.
    cluster.start(CONTROLLERS[2])
    holder = cluster.running[CONTROLLERS[2]]
    eventually(lambda: "have lost their disks" in holder.errors(), "it refuses the leader")
    # The way back, as docs/protocol/voters.md has it.
    cluster.kill(*CONTROLLERS)
    file = str(cluster.file(CONTROLLERS[2]))
    recovered = run_kvorum("quorum", "recover", "--config", file, "--unsafe")
    assert recovered.returncode == 0, recovered.stderr
    committed = re.search(r"surely committed: up to offset (\d+)", recovered.stdout)
    assert committed is not None and int(committed[1]) > 5, recovered.stdout
    cluster.start(CONTROLLERS[2])
    eventually(lambda: create(cluster, "after"), "the broker has joined")
    for n in (1, 2):
        cluster.wipe(CONTROLLERS[n - 1])
        cluster.init("--again", str(n))
        cluster.start(CONTROLLERS[n - 1])
        added = ("add-voter", "--id", str(n))
        eventually(lambda added=added: cluster.try_quorum(*added).returncode == 0, " ".join(added))
    listed = run_kvorum("topics", "list", "-b", cluster.bootstrap, "-o", "json")
    names = {row["topic"] for row in json.loads(listed.stdout)}
    assert names >= {"first", "after", *(f"more-{n}" for n in range(5))}
