"""Every group of commands on a secure cluster, as administrator and as a user without rights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvorum.client.failures import EXIT_NOT_AUTHORIZED
from tests.command import kvorum
from tests.live.cluster import Cluster, run_kvorum

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

PASSWORD = "correct horse battery staple"

BY_BROKERS = (
    "groups list",
    "groups describe billing",
    "transactions list",
    "transactions producers orders",
    "transactions find-hanging --broker-id 101",
    "top --once",
    "consume orders",
    "produce orders one two",
    "topics trim orders --offset start",
)
"""Controllers know nothing of these."""
BY_ALL = (
    "topics list",
    "topics describe orders",
    "configs describe --entity topic --name orders",
    "configs alter --entity topic --name orders --set retention.ms=100000",
    "configs alter --entity user --name bob --set producer_byte_rate=1000000",
    "configs describe --entity user --name bob",
    "users list",
    "acls create --allow-principal User:zed --producer --topic orders",
    "acls list",
    "acls delete --principal User:zed --yes",
    "brokers list",
    "brokers describe 101",
    "brokers log-dirs",
    "quorum status",
    "quorum replication",
    "quorum timeline",
    "quorum remove-voter --id 3 --dry-run",
    "features describe",
    "features upgrade --feature metadata.version=33 --dry-run",
    "health",
    "cluster check",
    "cluster roll --dry-run --restart-command {node}",
    "partitions elect orders",
    "partitions reassign --list",
    "metadata ls /",
    "metadata find *acl*",
    "metadata dump",
    "raft record --node 1 --out {folder}/record",
)
OPEN = frozenset(
    {
        "topics list",
        "brokers list",
        "brokers describe 101",
        "features describe",
        "groups list",
        "transactions list",
        "transactions find-hanging --broker-id 101",
    }
)
"""Brokers answer these to every user, with what the user may describe: as with Apache Kafka."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("commands"), is_secure=True) as cluster:
        made = cluster.cli("topics", "create", "orders", "--partitions", "2")
        assert made.returncode == 0, made.stderr
        sent = cluster.cli("produce", "orders", "one")
        assert sent.returncode == 0, sent.stderr
        read = cluster.cli("consume", "orders", "--group", "billing")
        assert read.returncode == 0, read.stderr
        yield cluster


@pytest.fixture(scope="module")
def stranger(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Client properties of a user without rights, with a certificate of the cluster's CA."""
    folder = tmp_path_factory.mktemp("mallory")
    (folder / "password").write_text(PASSWORD)
    made = cluster.cli("users", "create", "mallory", "--password-file", str(folder / "password"))
    assert made.returncode == 0, made.stderr
    secrets = cluster.data_dir / "secrets"
    assert kvorum("certs", "dev", secrets, "--user", "mallory")[0] == 0
    kept = [
        line
        for line in (secrets / "admin.properties").read_text().splitlines()
        if not line.startswith(("sasl.jaas.config", "ssl.keystore.location"))
    ]
    kept += [
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="mallory" password="{PASSWORD}";',
        f"ssl.keystore.location={secrets / 'mallory.pem'}",
    ]
    (folder / "client.properties").write_text("\n".join(kept) + "\n")
    return folder / "client.properties"


def ran(
    command: str, cluster: Cluster, kind: str, config: Path | None, folder: Path
) -> tuple[int, str, str]:
    """One command as the user of a file, through brokers or controllers."""
    way = ("-b", cluster.bootstrap)
    if kind == "controllers":
        way = ("--bootstrap-controller", cluster.bootstrap_controller)
    words = [word.replace("{folder}", str(folder)) for word in command.split()]
    all_words = [*words, *way, "--command-config", str(config)]
    if words[0] != "consume":
        return kvorum(*all_words)
    # It writes bytes to the output of its process.
    done = run_kvorum(*all_words)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("kind", ["brokers", "controllers"])
def test_an_administrators_commands_work(cluster: Cluster, kind: str, tmp_path: Path) -> None:
    for command in BY_ALL + (BY_BROKERS if kind == "brokers" else ()):
        code, _, error = ran(command, cluster, kind, cluster.command_config, tmp_path)
        assert code == 0, f"{command}: {code} {error}"


@pytest.mark.parametrize("kind", ["brokers", "controllers"])
def test_a_user_without_rights_hears_one_sentence(
    cluster: Cluster, stranger: Path, kind: str, tmp_path: Path
) -> None:
    is_open = OPEN if kind == "brokers" else frozenset()
    for command in BY_ALL + (BY_BROKERS if kind == "brokers" else ()):
        code, out, error = ran(command, cluster, kind, stranger, tmp_path)
        if command in is_open:
            assert code == 0, f"{command}: {code} {error}"
            assert "orders" not in out and "billing" not in out, command
            continue
        assert code == EXIT_NOT_AUTHORIZED, f"{command}: {code} {error}"
        assert error.startswith("kvorum: ") and error.count("\n") == 1, f"{command}: {error}"


def test_a_profile_keeps_the_user(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KVORUM_PROFILES", str(tmp_path / "profiles.yaml"))
    kept = (f"bootstrap_server={cluster.bootstrap}", f"command_config={cluster.command_config}")
    assert kvorum("profile", "set", "prod", *kept)[0] == 0
    assert kvorum("profile", "use", "prod")[0] == 0
    code, out, error = kvorum("topics", "list")
    assert code == 0, error
    assert "orders" in out
