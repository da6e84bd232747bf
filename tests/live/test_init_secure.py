"""The ten commands of docs/security.md, on six addresses of this machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.cluster import Command, Ports, run_kvorum
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

CONTROLLERS = {1: "127.0.0.11", 2: "127.0.0.12", 3: "127.0.0.13"}
BROKERS = {101: "127.0.0.14", 102: "127.0.0.15"}
ADDED = "127.0.0.16"


class Hosts:
    """Nodes of `kvorum init --secure`, and commands with the profile `prod`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "cluster"
        self.ports = Ports()
        self.profiles = folder / "profiles.yaml"
        broker, controller = self.ports.broker, self.ports.controller
        places = [f"{i}@{host}:{controller}" for i, host in CONTROLLERS.items()]
        arguments = [word for place in places for word in ("--controller", place)]
        places = [f"{i}@{host}:{broker}" for i, host in BROKERS.items()]
        arguments += [word for place in places for word in ("--broker", place)]
        made = run_kvorum("init", str(self.folder), "--secure", *arguments, "-o", "json")
        assert made.returncode == 0, made.stderr
        self.nodes: dict[str, Command] = {}
        for row in json.loads(made.stdout):
            self.start(row)
        self.bootstrap = f"{BROKERS[101]}:{broker}"
        properties = self.folder / "secrets" / "admin.properties"
        keys = (f"bootstrap_server={self.bootstrap}", f"command_config={properties}")
        assert self.run("profile", "set", "prod", *keys) == ""

    def start(self, row: dict[str, Any]) -> None:
        """Start a node of `kvorum init` on a host that has what the node needs, and no more."""
        name, host = row["node"], self.folder.parent / "hosts" / row["node"]
        for needed in map(Path, row["needs"]):
            there = host / needed.relative_to(self.folder)
            there.parent.mkdir(parents=True, exist_ok=True)
            if needed.is_dir():
                shutil.copytree(needed, there)
            else:
                shutil.copy2(needed, there)
        assert not list(host.rglob("*.key")) and not list(host.rglob("admin*"))
        role, file = name.partition("-")[0], str(host / f"{name}.toml")
        errors = self.folder.parent / f"{name}.err"
        self.nodes[name] = Command(role, "--config", file, error_file=errors)

    def run(self, *arguments: str, code: int = 0) -> str:
        """The error output of a command, which must end with this code."""
        done = run_kvorum(*arguments, KVORUM_PROFILES=str(self.profiles))
        assert done.returncode == code, done.stderr
        return done.stderr

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()
        self.ports.close()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    hosts = Hosts(tmp_path)
    yield hosts
    hosts.close()


def test_a_reader_comes_from_nothing_to_a_user_with_rights(hosts: Hosts, tmp_path: Path) -> None:
    prod = ("--profile", "prod")
    hosts.run("health", "--wait", "60", *prod)
    hosts.run("topics", "create", "orders", "--replication-factor", "2", *prod)
    password = tmp_path / "password"
    password.write_text("correct horse battery staple")
    hosts.run("users", "create", "alice", "--password-file", str(password), *prod)
    alice = tmp_path / "alice.properties"
    text = (hosts.folder / "secrets" / "admin.properties").read_text()
    secret = text.partition('password="')[2].partition('"')[0]
    lines = [line for line in text.splitlines() if not line.startswith("ssl.keystore")]
    own = "\n".join(lines).replace('"admin"', '"alice"').replace(secret, password.read_text())
    alice.write_text(own)
    as_alice = ("-b", hosts.bootstrap, "--command-config", str(alice))
    assert "TOPIC_AUTHORIZATION_FAILED" in hosts.run("produce", "orders", "v", *as_alice, code=5)
    given = ("acls", "create", "--allow-principal", "User:alice", "--topic", "orders")
    hosts.run(*given, "--producer", "--consumer", "--group", "billing", *prod)
    eventually(
        lambda: run_kvorum("produce", "orders", "v", *as_alice).returncode == 0,
        "alice may produce",
    )
    done = run_kvorum("consume", "orders", "-g", "billing", "-n", "1", "-o", "start", *as_alice)
    assert (done.returncode, done.stdout) == (0, "v\n"), done.stderr
    refused = hosts.run("topics", "delete", "orders", *as_alice, code=5)
    assert "not deleted: orders" in refused


def test_a_broker_that_is_added_serves_once_an_acl_lets_it_in(hosts: Hosts) -> None:
    prod = ("--profile", "prod")
    made = run_kvorum("init", str(hosts.folder), "--add", "broker", "--host", ADDED, "-o", "json")
    assert made.returncode == 0, made.stderr
    name = f"broker-{max(BROKERS) + 1}"
    grant = ("--allow-principal", f"User:{name}", "--operation", "cluster-action", "--cluster")
    assert " ".join(grant) in made.stderr
    let_in = ("acls", "create", *grant, *prod)
    eventually(
        lambda: run_kvorum(*let_in, KVORUM_PROFILES=str(hosts.profiles)).returncode == 0,
        "the cluster has an ACL of the new broker",
    )
    hosts.start(json.loads(made.stdout)[0])
    create = ("topics", "create", "wide", "--replication-factor", "3", *prod)
    eventually(
        lambda: run_kvorum(*create, KVORUM_PROFILES=str(hosts.profiles)).returncode == 0,
        "three brokers have replicas",
    )

    def is_in_sync() -> bool:
        describe = ("topics", "describe", "wide", "-o", "json", *prod)
        done = run_kvorum(*describe, KVORUM_PROFILES=str(hosts.profiles))
        (partition,) = json.loads(done.stdout)[0]["partitions"]
        return len(partition["isr"]) == 3

    eventually(is_in_sync, "the new broker follows the others, or they follow it")
