"""Passwords are not on command lines, and files that have them are the owner's alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvorum.launch.config.node_file import node_properties
from kvorum.launch.config.secret_properties import readable_secrets
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.private_files import private_files
from tests.command import kvorum

SECRET = "of-nobody-else"
PASSWORDS = (
    "ssl.key.password",
    "sasl.jaas.config",
    "listener.name.clients.plain.sasl.jaas.config",
    "listener.name.clients.ssl.keystore.key",
)


@pytest.mark.parametrize("name", PASSWORDS)
def test_a_node_refuses_a_password_on_its_command_line(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        node_properties(None, ["node.id=1", f"{name}={SECRET}"], {})
    variable = "KVORUM_" + name.upper().replace(".", "_")
    assert name in str(refused.value)
    assert "--config FILE" in str(refused.value)
    assert variable in str(refused.value)
    assert SECRET not in str(refused.value)
    # The way out that the refusal names works.
    assert node_properties(None, ["node.id=1"], {variable: SECRET})[name] == SECRET


@pytest.mark.parametrize("name", PASSWORDS)
@pytest.mark.parametrize("command", ["dev", "init"])
def test_a_cluster_refuses_a_password_on_its_command_line(
    command: str, name: str, tmp_path: Path
) -> None:
    folder = tmp_path / "cluster"
    arguments = ["dev", "--data-dir", folder] if command == "dev" else ["init", folder]
    code, out, error = kvorum(*arguments, "--set", f"{name}={SECRET}")
    assert code == 2
    assert f"--set {name}: every user of this machine can read a command line" in error
    assert SECRET not in out + error
    assert not folder.exists()


@pytest.mark.parametrize("name", ["ssl.key.password", "sasl.jaas.config"])
def test_configs_alter_takes_a_password_from_a_file(name: str, tmp_path: Path) -> None:
    of_broker = ("configs", "alter", "--entity", "broker", "--name", "101")
    code, out, error = kvorum(*of_broker, "--set", f"{name}={SECRET}")
    assert code == 2
    assert f"--set-file {name}=FILE" in error
    assert SECRET not in out + error
    code, _, error = kvorum(*of_broker, "--set-file", f"{name}={tmp_path}/none")
    assert code == 2
    assert f"cannot read {tmp_path}/none" in error


def test_the_files_of_a_new_cluster_are_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    code, _, error = kvorum("init", folder, "--brokers", "1")
    assert code == 0, error
    found = [folder, *folder.rglob("*")]
    assert len(found) > 10
    modes = {str(path): path.stat().st_mode & 0o777 for path in found}
    wide = {
        path: oct(mode)
        for path, mode in modes.items()
        if mode != (0o700 if os.path.isdir(path) else 0o600)
    }
    assert wide == {}


def test_the_mask_is_as_before_after_private_files(tmp_path: Path) -> None:
    outside = os.umask(0o022)
    try:
        with pytest.raises(KeyError), private_files():
            (tmp_path / "private").touch()
            raise KeyError
        (tmp_path / "open").touch()
    finally:
        os.umask(outside)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("private", "open")]
    assert modes == [0o600, 0o644]


def test_a_file_with_secrets_that_everybody_may_read_is_named(tmp_path: Path) -> None:
    file, key = tmp_path / "broker.toml", tmp_path / "key.pem"
    file.touch()
    key.touch()
    properties = {"ssl.key.password": SECRET, "listener.name.x.ssl.keystore.location": str(key)}
    for path, mode in ((file, 0o644), (key, 0o604)):
        path.chmod(mode)
    lines = readable_secrets(str(file), properties, properties)
    assert [line.partition(" holds ")[0] for line in lines] == [str(file), str(key)]
    assert all("chmod 600" in line and SECRET not in line for line in lines)
    # Without a secret in it a file may be open, and a group may be meant.
    assert readable_secrets(str(file), ["node.id"], {}) == ()
    file.chmod(0o640)
    key.chmod(0o600)
    assert readable_secrets(str(file), properties, properties) == ()
    key.unlink()
    assert readable_secrets(None, (), properties) == ()
