"""Kafka's tools with --bootstrap-controller, unchanged, against controllers' listeners for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.clients.java_tools import needs_java, run_tool
from tests.live.by_hand import HandMade
from tests.live.cluster import run_kvorum
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.java, needs_java, pytest.mark.timeout(300)]

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = {"root": "secret of root", "nobody": "secret of nobody"}


class Controllers:
    """Two controllers with a listener ADMIN each, where users log in, and a broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made = HandMade(folder, controllers=2, brokers=1, settings=(
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users=User:ANONYMOUS;User:root",
        ))  # fmt: skip
        first = self.made.ports.controller
        self.bootstrap = ""
        for at, name in enumerate(("controller-1", "controller-2")):
            of_tools = f"127.0.0.1:{first + 5 + at}"
            self.bootstrap += f"{',' * at}{of_tools}"
            properties = self.made.properties(name)
            users = " ".join(f'user_{user}="{word}"' for user, word in USERS.items())
            self.made.change(name, **{
                "listeners": f"{properties['listeners']},ADMIN://{of_tools}",
                "controller.listener.names": "CONTROLLER,ADMIN",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,ADMIN:SASL_PLAINTEXT",
                "listener.name.admin.sasl.enabled.mechanisms": "PLAIN",
                "listener.name.admin.plain.sasl.jaas.config": f"{PLAIN} {users};",
            })  # fmt: skip

    def run(self, tool: str, *arguments: str, user: str = "root") -> CompletedProcess[str]:
        file = self.folder / f"{user}.properties"
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={PLAIN} username="{user}" password="{USERS[user]}";\n'
        )
        with_login = ("--bootstrap-controller", self.bootstrap, "--command-config", str(file))
        before = arguments[:1] if tool == "ClusterTool" else ()
        return run_tool(
            f"org.apache.kafka.tools.{tool}", *before, *with_login, *arguments[len(before) :]
        )

    def said(self, tool: str, *arguments: str) -> str:
        done = self.run(tool, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def controllers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controllers]:
    cluster = Controllers(Path(tmp_path_factory.mktemp("tools")))
    made = cluster.made
    try:
        made.start("controller-1", "controller-2", "broker-101")
        eventually(
            lambda: run_kvorum("brokers", "list", "-b", made.bootstrap).returncode == 0, "it serves"
        )
        eventually(
            lambda: cluster.said("ClusterTool", "list-endpoints").count("controller") == 2,
            "both controllers have registered their listeners",
        )
        yield cluster
        for name in ("controller-1", "controller-2"):
            made.stop(name)
    finally:
        made.close()


def test_kafka_metadata_quorum_describes_the_quorum(controllers: Controllers) -> None:
    said = controllers.said("MetadataQuorumCommand", "describe", "--status")
    leader = re.search(r"LeaderId:\s+(\d)", said)
    assert leader is not None and leader[1] in "12"
    assert len(re.findall('"endpoints": ', said)) == 2
    rows = controllers.said("MetadataQuorumCommand", "describe", "--replication").splitlines()
    assert {row.split()[0] for row in rows[1:]} == {"1", "2", "101"}


def test_kafka_metadata_quorum_removes_a_voter(controllers: Controllers) -> None:
    done = controllers.run(
        "MetadataQuorumCommand",
        *("remove-controller", "--controller-id", "9"),
        *("--controller-directory-id", "gsUiLg3_TROOZdUZqgYNKg"),
    )
    assert "VoterNotFoundException: node 9 is not among the voters" in done.stdout + done.stderr


def test_kafka_features_changes_levels(controllers: Controllers) -> None:
    down = controllers.said("FeatureCommand", "downgrade", "--feature", "share.version=1")
    assert "share.version was downgraded to 1" in down
    described = controllers.said("FeatureCommand", "describe")
    assert re.search(r"share.version\s.*FinalizedVersionLevel: 1\s", described)
    up = controllers.said("FeatureCommand", "upgrade", "--release-version", "4.4")
    assert "share.version was upgraded to 2" in up


def test_kafka_configs_changes_the_default_of_all_brokers(controllers: Controllers) -> None:
    default = ("--entity-type", "brokers", "--entity-default")
    controllers.said("ConfigCommand", "--alter", *default, "--add-config", "max.connections=77")
    assert "max.connections=77" in controllers.said("ConfigCommand", "--describe", *default)
    own = ("--entity-type", "brokers", "--entity-name", "2", "--all")
    assert "node.id=2 " in controllers.said("ConfigCommand", "--describe", *own)


def test_kafka_cluster_unregisters_what_is_gone(controllers: Controllers) -> None:
    for command, node_id, said in (
        ("unregister", "101", "broker 101 is alive"),
        ("unregister-controller", "7", "controller 7 is not registered"),
    ):
        done = controllers.run("ClusterTool", command, "--id", node_id)
        assert said in done.stdout + done.stderr


def test_a_user_without_rights_changes_nothing(controllers: Controllers) -> None:
    done = controllers.run(
        "FeatureCommand", "downgrade", "--feature", "streams.version=0", user="nobody"
    )
    assert done.returncode == 1
    assert "Cluster authorization failed" in done.stdout + done.stderr
    levels = controllers.said("FeatureCommand", "describe")
    assert re.search(r"streams.version\s.*FinalizedVersionLevel: 1\s", levels)
