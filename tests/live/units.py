"""The systemd units under a test, which acts as the service manager.

systemd may not run here. A service runs its unit's ExecStart, waits for READY=1, stops the node by
SIGTERM, and hears the watchdog.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.live.cluster import is_alive
from tests.polling import DEADLINE_S
from tests.tree import ROOT

NODES = ["controller-1", "controller-2", "controller-3", "broker-101", "broker-102", "broker-103"]


def skip_if_taken(hosts: Iterable[str], *ports: int) -> None:
    """Skip the test if an address that docs/deploying.md names is in use."""
    for host in hosts:
        for port in ports:
            probe = socket.socket()
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with probe:
                try:
                    probe.bind((host, port))
                except OSError as error:
                    pytest.skip(f"{host}:{port}, which docs/deploying.md names, is taken: {error}")


class Service:
    """One unit, run as systemd would."""

    def __init__(self, node: str, folder: Path, etc: Path) -> None:
        """folder: of the log and the socket. etc: stands for /etc/kvorum of the node's host."""
        role, node_id = node.split("-")
        self.name, self._folder = node, folder
        text = (ROOT / "deploy" / "systemd" / f"kvorum-{role}@.service").read_text(encoding="utf-8")
        directives = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
        start = directives["ExecStart"].replace("%i", node_id)
        program, *self._arguments = shlex.split(start)
        assert program == "/usr/bin/kvorum"
        self._arguments = [word.replace("/etc/kvorum", str(etc)) for word in self._arguments]
        self.watchdog_s = int(directives["WatchdogSec"].removesuffix("s"))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / f"{node}.notify"))
        self._socket.settimeout(DEADLINE_S)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def file(self) -> str:
        """The node's configuration file, as the unit names it."""
        return self._arguments[-1]

    def start(self, *, watchdog_s: float | None = None) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("KVORUM_")}
        environment["NOTIFY_SOCKET"] = str(self._folder / f"{self.name}.notify")
        environment["WATCHDOG_USEC"] = str(int((watchdog_s or self.watchdog_s) * 1_000_000))
        with open(self._folder / f"{self.name}.log", "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kvorum", *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def wait_for(self, state: str) -> None:
        while self._socket.recv(4096).decode() != state:
            pass

    def stop(self) -> int:
        process = self._process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        self.wait_for("STOPPING=1")
        return process.wait(DEADLINE_S)

    def close(self) -> None:
        if self._process is not None and is_alive(self._process.pid):
            self._process.kill()
            self._process.wait(DEADLINE_S)
        self._socket.close()

    def log(self) -> str:
        return (self._folder / f"{self.name}.log").read_text()
