"""The secure cluster of docs/deploying.md: its commands, and the units, on six loopback addresses.

A folder stands for each host: `ssh` and `systemctl` of the test act there. A node thus reads only
what the documented commands copied.
"""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvorum.launch.config.node_file import load_node_file
from tests.live.units import NODES, Service, skip_if_taken
from tests.polling import eventually
from tests.shell import Shell, shell_block

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

# Other addresses than those of the document: the walk in the clear may run at the same time.
HOSTS = {node: f"127.0.0.{last}" for last, node in enumerate(NODES, 21)}
FILES = {"etc/kvorum/secrets/ca.pem", "etc/kvorum/secrets/{}.pem", "etc/kvorum/{}.toml"}

SSH = """\
#!/bin/sh
root="{folder}/hosts/${{1#root@}}"
mkdir -p "$root"
shift
exec sh -c "$(echo "$*" | sed "s#/etc/kvorum\\|/var/lib/kvorum#$root&#g")"
"""

SYSTEMCTL = """\
#!{python}
import socket, sys
with socket.socket(socket.AF_UNIX) as manager:
    manager.connect("{folder}/manager")
    manager.sendall(" ".join(sys.argv[1:]).encode())
    sys.exit(manager.recv(100) != b"done")
"""


def block(mark: str) -> str:
    return re.sub(r"127\.0\.0\.1(\d)\b", r"127.0.0.2\1", shell_block("docs/deploying.md", mark))


class Hosts:
    """Six hosts, with a node each. `close` leaves no process."""

    def __init__(self, folder: Path) -> None:
        self.shell = Shell(folder)
        self.shell.install("ssh", SSH.format(folder=folder))
        self.shell.install("systemctl", SYSTEMCTL.format(folder=folder, python=sys.executable))
        # The test's user has no account kvorum to give files to.
        self.shell.install("chown", "#!/bin/sh\n")
        self.restarted: list[str] = []
        self._services: dict[str, Service] = {}
        self._manager = socket.socket(socket.AF_UNIX)
        self._manager.bind(str(folder / "manager"))
        self._manager.listen()
        threading.Thread(target=self._manage, daemon=True).start()

    def root(self, node: str) -> Path:
        return self.shell.folder / "hosts" / HOSTS[node]

    def start(self) -> None:
        for node in NODES:
            etc = self.root(node) / "etc" / "kvorum"
            self._services[node] = Service(node, self.shell.folder, etc)
        for service in self._services.values():
            service.start()
        for service in self._services.values():
            service.wait_for("READY=1")

    def _manage(self) -> None:
        """Carry out what `systemctl` asks for, until the test closes the socket."""
        while True:
            try:
                connection, _ = self._manager.accept()
            except OSError:
                return
            with connection:
                verb, unit = connection.recv(1_000).decode().split()
                node = unit.removeprefix("kvorum-").replace("@", "-")
                service = self._services[node]
                assert (verb, service.stop()) == ("restart", 0)
                service.start()
                service.wait_for("READY=1")
                self.restarted.append(node)
                connection.sendall(b"done")

    def close(self) -> None:
        self._manager.shutdown(socket.SHUT_RDWR)
        self._manager.close()
        for service in reversed(self._services.values()):
            service.close()


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    skip_if_taken(HOSTS.values(), 9092, 9192, 9292)
    # A socket's path has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="kv-"))
    hosts = Hosts(folder)
    try:
        hosts.shell.run(block("init").replace("kvorum init", "kvorum init --secure"))
        hosts.shell.run(block("copy"))
        hosts.start()
        yield hosts
    finally:
        hosts.close()
        shutil.rmtree(folder)


@pytest.mark.parametrize("node", NODES)
def test_a_host_has_the_secrets_of_its_node_alone(hosts: Hosts, node: str) -> None:
    root = hosts.root(node)
    etc = root / "etc" / "kvorum"
    found = {str(path.relative_to(root)) for path in etc.rglob("*") if path.is_file()}
    assert found == {name.format(node) for name in FILES}
    modes = {path.stat().st_mode & 0o777 for path in etc.rglob("*") if path.is_file()}
    assert (modes, (etc / "secrets").stat().st_mode & 0o777) == ({0o640}, 0o750)
    properties = load_node_file(str(etc / f"{node}.toml"))
    assert properties["ssl.keystore.location"] == f"{etc}/secrets/{node}.pem"
    assert properties["log.dirs"] == f"{root}/var/lib/kvorum/{node}"
    assert [path.name for path in (root / "var" / "lib" / "kvorum").iterdir()] == [node]


def test_the_documents_commands_work_and_restart_every_node(hosts: Hosts) -> None:
    hosts.shell.run(block("secure"))
    assert sorted(hosts.restarted) == sorted(NODES)


def test_a_certificate_is_renewed_while_the_node_runs(hosts: Hosts) -> None:
    address = (HOSTS["broker-101"], 9092)
    before = ssl.get_server_certificate(address)
    hosts.shell.run(block("renew"))
    new = (hosts.shell.folder / "cluster" / "secrets" / "broker-101.pem").read_text()
    assert before not in new
    eventually(lambda: ssl.get_server_certificate(address) in new, "the new certificate is served")
    file = hosts.root("broker-101") / "etc" / "kvorum" / "secrets" / "broker-101.pem"
    assert file.stat().st_mode & 0o777 == 0o640
    hosts.shell.run("kvorum health --wait 60 --profile prod")
