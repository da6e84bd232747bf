"""What Apache Kafka 4.4's tools ask of a cluster since that release: kafka-features with levels,
kafka-cluster unregister-controller, kafka-transactions with a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.java_tools import needs_java, run_tool, tool
from tests.live.by_hand import HandMade
from tests.live.cluster import run_kvorum
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.java, needs_java]

TOOLS = "org.apache.kafka.tools"
RELEASE = {
    "eligible.leader.replicas.version": "1", "group.version": "1", "kraft.version": "1",
    "metadata.version": "4.4-IV2", "share.version": "2", "streams.version": "1",
    "transaction.version": "2",
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandMade]:
    made = HandMade(Path(tmp_path_factory.mktemp("release")), controllers=1, brokers=1)
    try:
        made.start("controller-1", "broker-101")
        eventually(
            lambda: run_kvorum("brokers", "list", "-b", made.bootstrap).returncode == 0, "it serves"
        )
        yield made
    finally:
        made.close()


def features(cluster: HandMade, *arguments: str) -> str:
    command = ("--bootstrap-server", cluster.bootstrap, *arguments)
    return tool(f"{TOOLS}.FeatureCommand", *command)


def finalized(cluster: HandMade) -> dict[str, str]:
    row = r"Feature: (\S+)\s.*\sFinalizedVersionLevel: (\S+)"
    return dict(re.findall(row, features(cluster, "describe")))


def test_kafka_features_knows_the_levels_of_the_release(cluster: HandMade) -> None:
    assert finalized(cluster) == RELEASE
    said = features(cluster, "version-mapping", "--release-version", "4.4")
    levels = dict(re.findall(r"(\S+)=(\S+)", said))
    assert levels == {**RELEASE, "metadata.version": "33"}
    said = features(cluster, "feature-dependencies", "--feature", "streams.version=1")
    assert "streams.version=1 has no dependencies" in said


def test_kafka_features_goes_down_to_a_release_and_up_again(cluster: HandMade) -> None:
    said = features(cluster, "downgrade", "--release-version", "4.3")
    assert said.count("was downgraded to") == len(RELEASE)
    assert finalized(cluster) == {
        **RELEASE, "metadata.version": "4.3-IV0", "share.version": "1",
    }  # fmt: skip
    said = features(cluster, "upgrade", "--release-version", "4.4")
    assert said.count("was upgraded to") == len(RELEASE)
    assert finalized(cluster) == RELEASE


def test_kafka_features_cannot_give_the_quorum_other_voters(cluster: HandMade) -> None:
    done = run_tool(
        *(f"{TOOLS}.FeatureCommand", "--bootstrap-server", cluster.bootstrap),
        *("downgrade", "--feature", "kraft.version=0"),
    )
    assert done.returncode == 1
    assert "the voters of this quorum are dynamic for good" in done.stdout


def unregistered(cluster: HandMade, controller_id: int) -> str:
    done = run_tool(
        *(f"{TOOLS}.ClusterTool", "unregister-controller"),
        *("--bootstrap-server", cluster.bootstrap, "--id", str(controller_id)),
    )
    return done.stdout + done.stderr


def test_kafka_cluster_unregisters_a_controller_that_is_gone(cluster: HandMade) -> None:
    cluster.init("--add", "controller")
    cluster.start("controller-2")
    cluster.wait_caught_up(2, "Observer")
    eventually(
        lambda: "controller 2" not in unregistered(cluster, 2), "the running controller is there"
    )
    cluster.kill("controller-2")
    # A controller that runs registers again, so that the one above may be back.
    eventually(
        lambda: "controller 2 is not registered" in unregistered(cluster, 2), "it is forgotten"
    )
    assert "controller 1 is a voter" in unregistered(cluster, 1)


def test_kafka_transactions_lists_by_a_pattern(cluster: HandMade) -> None:
    asked = (f"{TOOLS}.TransactionsCommand", "--bootstrap-server", cluster.bootstrap, "list")
    assert "TransactionalId" in tool(*asked, "--transactional-id-pattern", "pay.*")
    assert run_tool(*asked, "--transactional-id-pattern", "(").returncode != 0
