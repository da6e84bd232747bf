"""`kvorum completion` takes names from the cluster that the command itself would ask."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from kvorum.cli import backends
from kvorum.cli.main import cli
from kvorum.client.current import current_security
from tests.command import kvorum

ONE, TWO, THREE = "one:9092", "two:9092", "three:9092"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[Any, Any, str]]:
    """(broker, controller, user) of each backend that is opened; it has the topics a1 and b1."""
    monkeypatch.setenv("KVORUM_PROFILES", str(tmp_path / "profiles.yaml"))
    monkeypatch.delenv("KVORUM_PROFILE", raising=False)
    monkeypatch.delenv("KVORUM_BOOTSTRAP_SERVER", raising=False)
    found: list[tuple[Any, Any, str]] = []

    def open_backend(server: str | None, controller: str | None, _: float) -> Any:
        found.append((server, controller, current_security().user))
        return SimpleNamespace(topics=lambda names: [{"topic": "a1"}, {"topic": "b1"}])

    monkeypatch.setattr(backends, "open_backend", open_backend)
    assert kvorum("profile", "set", "one", f"bootstrap_server={ONE}")[0] == 0
    assert kvorum("profile", "set", "two", f"bootstrap_server={TWO}")[0] == 0
    return found


def names(*words: str) -> list[str]:
    """The completions of `kvorum WORDS... a`."""
    shell = ShellComplete(cli, {}, "kvorum", "_KVORUM_COMPLETE")
    return [item.value for item in shell.get_completions(list(words), "a")]


def test_topics_come_from_the_cluster_of_the_command(asked, monkeypatch):
    assert names("topics", "describe") == ["a1"]
    assert names("topics", "describe", "--profile", "two") == ["a1"]
    assert names("--profile", "two", "topics", "describe") == ["a1"]
    assert names("topics", "describe", "-b", THREE) == ["a1"]
    assert names("topics", "describe", "--bootstrap-controller", THREE) == ["a1"]
    monkeypatch.setenv("KVORUM_BOOTSTRAP_SERVER", THREE)
    # No option is passed on: `open_backend` reads the variable, which wins over the current
    # profile.
    assert names("topics", "describe") == ["a1"]
    assert [(server, controller) for server, controller, _ in asked] == [
        (ONE, None), (TWO, None), (TWO, None), (THREE, None), (None, THREE), (None, None),
    ]  # fmt: skip


def test_the_user_of_the_command_asks(asked, tmp_path):
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        'sasl.jaas.config=x.PlainLoginModule required username="alice" password="secret";\n'
    )
    assert names("topics", "describe", "--command-config", str(file)) == ["a1"]
    assert kvorum("profile", "set", "one", f"command_config={file}")[0] == 0
    assert names("topics", "describe") == ["a1"]
    assert names("topics", "describe", "--profile", "two") == ["a1"]
    assert [user for _, _, user in asked] == ["alice", "alice", ""]
    assert current_security().user == ""


def test_a_cluster_or_file_that_cannot_be_used_gives_no_names(asked, tmp_path):
    missing = str(tmp_path / "none")
    assert names("topics", "describe", "--command-config", missing) == []
    assert names("topics", "describe", "--profile", "nobody") == []
    assert asked == []


def test_nodes_are_those_of_the_folder_that_the_command_uses(monkeypatch):
    asked = []

    def read_cluster_file(folder: str) -> Any:
        asked.append(folder)
        return SimpleNamespace(nodes=[SimpleNamespace(name="a-101")])

    monkeypatch.setattr("kvorum.launch.cluster.cluster_file.read_cluster_file", read_cluster_file)
    assert names("dev", "logs") == ["a-101"]
    assert names("dev", "--data-dir", "/group", "logs") == ["a-101"]
    assert names("dev", "--data-dir", "/group", "logs", "--data-dir", "/own") == ["a-101"]
    assert asked == ["./kvorum-data", "/group", "/own"]


def test_users_and_principals_come_from_the_cluster(asked, monkeypatch):
    users = SimpleNamespace(users=lambda: {"alice": {}, "bob": {}})
    monkeypatch.setattr("kvorum.cli.user_backends.open_user_backend", lambda *_: users)
    assert names("users", "delete") == ["alice"]
    assert names("users", "set-password") == ["alice"]
    found = [SimpleNamespace(principal=name) for name in ("admins:x", "User:bob", "admins:x")]
    acls = SimpleNamespace(describe=lambda _: found)
    monkeypatch.setattr("kvorum.cli.acl_backends.open_acl_backend", lambda *_: acls)
    assert names("acls", "list", "--principal") == ["admins:x"]
    assert names("acls", "create", "--topic") == ["a1"]
