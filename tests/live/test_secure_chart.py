"""The Helm chart with `security.enabled`: its pods as processes, and the commands of
docs/deploying.md.

helm makes the pods' variables, files and arguments. Only addresses and folders are changed: all
pods are on one loopback address, which their certificates name, each at ports of its own.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.live.cluster import Command, Ports, run_kvorum
from tests.polling import eventually
from tests.shell import Shell, shell_block
from tests.test_deploy.chart import SECURE, Pod, install_as_documented, pods, rendered

pytestmark = [pytest.mark.live, pytest.mark.long, pytest.mark.timeout(300)]

HOST = "127.0.0.1"


class Release:
    """The pods of the documented `helm install`. `close` leaves no process."""

    def __init__(self, folder: Path) -> None:
        self.shell = Shell(folder)
        self.nodes: list[Command] = []
        self._ports = [Ports(), Ports()]
        try:
            install_as_documented(self.shell)
            made = yaml.safe_load_all((folder / "manifests.yaml").read_text(encoding="utf-8"))
            first = list(pods([item for item in made if item]))
            self.cluster_id = first[0].variables()["KVORUM_CLUSTER_ID"]
            self._port: dict[tuple[str, int], int] = {}
            for pod in first:
                self._give_ports(pod)
            for pod in first:
                self.start(pod)
        except BaseException:
            self.close()
            raise

    def port(self, pod: str, port: int) -> int:
        """Where the test has a pod's port."""
        return self._port[pod, port]

    def _give_ports(self, pod: Pod) -> None:
        at = len({name for name, _ in self._port})
        for offset, port in enumerate((9092, 9292) if pod.role == "broker" else (9192,)):
            self._port[pod.name, port] = self._ports[0].broker + 2 * at + offset
        self._port[pod.name, 9404] = self._ports[1].broker + at

    def start(self, pod: Pod) -> None:
        if (pod.name, 9404) not in self._port:
            self._give_ports(pod)
        folder = self.shell.folder / pod.name
        for target, key in pod.secrets().items():
            file = folder / target.removeprefix("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes((self.shell.folder / "secret" / key).read_bytes())
            file.chmod(0o440)
        variables = {
            name: self._moved(value, pod, folder)
            for name, value in pod.variables().items()
            if name.startswith("KVORUM_")
        }
        arguments = pod.container["args"]
        self.nodes.append(Command(*arguments, error_file=folder / "node.err", **variables))

    def _moved(self, value: str, pod: Pod, folder: Path) -> str:
        """A variable's value with addresses of the loopback interface and folders of the test."""

        def address(found: re.Match[str]) -> str:
            return f"{HOST}:{self.port(found['pod'] or pod.name, int(found['port']))}"

        value = re.sub(
            r"(?:(?P<pod>kvorum-\w+-\d+)\.kvorum-\w+\.kvorum\.svc\.cluster\.local|0\.0\.0\.0)"
            r":(?P<port>\d+)",
            address,
            value,
        )
        return re.sub(r"^/(?:etc|var/lib)/kvorum", lambda m: f"{folder}{m[0]}", value)

    def run(self, mark: str) -> str:
        """The document's block, with the ports of the test in place of forwarded ones."""
        script = re.sub(
            r"localhost:(\d+)",
            lambda m: f"{HOST}:{self.port('kvorum-broker-101', int(m[1]))}",
            shell_block("docs/deploying.md", mark),
        )
        return self.shell.run(script)

    def attempt(
        self, properties: str, *words: str, port: int = 9092
    ) -> subprocess.CompletedProcess[str]:
        """A command to broker 101, with a file of client properties."""
        address = f"{HOST}:{self.port('kvorum-broker-101', port)}"
        file = str(self.shell.folder / properties)
        return run_kvorum(*words, "-b", address, "--command-config", file)

    def ask(self, properties: str, *words: str, port: int = 9092, code: int = 0) -> str:
        """The output and errors of such a command, which must end with this code."""
        done = self.attempt(properties, *words, port=port)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def close(self) -> None:
        for node in reversed(self.nodes):
            node.close()
        for ports in self._ports:
            ports.close()


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    release = Release(tmp_path_factory.mktemp("release"))
    yield release
    release.close()


def test_the_first_user_is_made_by_certificate_and_then_has_a_password(release: Release) -> None:
    ask = ("health", "--wait", "60")
    release.ask("admin-certificate.properties", *ask, port=9292)
    assert release.ask("admin.properties", "topics", "list", code=5)
    release.run("first user")
    assert "orders" in release.ask("admin.properties", "topics", "list")
    assert "3 of 3 active" in release.ask("admin.properties", *ask)


def test_a_user_needs_an_acl_and_cannot_use_the_listener_of_brokers(
    release: Release, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("correct horse battery staple")
    release.ask(
        "admin.properties", "users", "create", "alice", "--password-file", f"{tmp_path}/password"
    )
    text = (release.shell.folder / "admin.properties").read_text()
    jaas = 'required username="alice" password="correct horse battery staple";'
    kept = [line for line in text.splitlines() if not line.startswith("ssl.keystore")]
    own = re.sub(r"required .*", jaas, "\n".join(kept))
    (release.shell.folder / "alice.properties").write_text(own)
    # No certificate: the listeners of nodes are closed to this user.
    (release.shell.folder / "stranger.properties").write_text(
        own.replace("=SASL_SSL", "=SSL").partition("\nsasl.")[0]
    )
    release.ask("stranger.properties", "topics", "list", port=9292, code=3)
    produce = ("produce", "orders", "v")
    refused = release.ask("alice.properties", *produce, code=5)
    assert "TOPIC_AUTHORIZATION_FAILED" in refused
    allow = ("acls", "create", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
    release.ask("admin.properties", *allow)
    eventually(
        lambda: release.attempt("alice.properties", *produce).returncode == 0,
        "alice may produce",
    )


def test_a_broker_is_added_while_the_others_do_not_know_it_as_a_super_user(
    release: Release,
) -> None:
    release.run("add")
    values = (*SECURE, "--set", "brokers.count=4", "--set", f"clusterId={release.cluster_id}")
    pod = next(pod for pod in pods(rendered(*values)) if pod.name == "kvorum-broker-104")
    release.start(pod)

    def is_in() -> bool:
        # While the broker is fenced, the command fails.
        return "4 of 4 active" in release.attempt("admin.properties", "health").stdout

    eventually(is_in, "broker 104 is active")
    # Each follows the other: the old broker admits the new one's fetches, too.
    both = ("--replica-assignment", "104:101,101:104")
    release.ask("admin.properties", "topics", "create", "moved", *both)
    health = release.ask("admin.properties", "health", "--wait", "60")
    assert re.search(r"under-replicated +ok +0 of 8 partitions", health), health
