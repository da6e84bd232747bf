"""A node's messages to systemd, heard at a real datagram socket."""

from __future__ import annotations

import asyncio
import os
import signal
import socket

import pytest

from kvorum.launch.daemon.process import run_node
from kvorum.launch.daemon.service_manager import feed_watchdog, notify, watchdog_interval_s
from tests.polling import until


class Manager:
    """The socket of a service manager."""

    def __init__(self, address):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.settimeout(30)

    def heard(self):
        return self._socket.recv(4096).decode()

    def close(self):
        self._socket.close()


@pytest.fixture
def manager(tmp_path, monkeypatch):
    path = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    manager = Manager(path)
    yield manager
    manager.close()


class Node:
    """Ready at once; stops itself with SIGTERM after `signs` signs of life."""

    def __init__(self, manager, signs):
        self.said = []
        self._manager, self._signs = manager, signs

    async def start(self):
        asyncio.get_running_loop().create_task(self._hear(), name="manager")

    async def _hear(self):
        while self.said.count("WATCHDOG=1") < self._signs or "READY=1" not in self.said:
            self.said.append(await asyncio.to_thread(self._manager.heard))
        os.kill(os.getpid(), signal.SIGTERM)

    async def stop(self, *, is_withdrawn=False):
        while not self.said or self.said[-1] != "STOPPING=1":
            self.said.append(await asyncio.to_thread(self._manager.heard))


def test_a_node_says_that_it_is_ready_alive_and_stopping(manager, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    nodes = []

    def make(_):
        nodes.append(Node(manager, signs=3))
        return nodes[0]

    assert run_node(make) == 0
    said = nodes[0].said
    assert said.count("READY=1") == said.count("STOPPING=1") == 1
    assert said.count("WATCHDOG=1") >= 3
    assert said[-1] == "STOPPING=1"


def test_without_a_watchdog_no_sign_of_life_is_sent(manager, monkeypatch):
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    nodes = []

    def make(_):
        nodes.append(Node(manager, signs=0))
        return nodes[0]

    assert run_node(make) == 0
    assert nodes[0].said == ["READY=1", "STOPPING=1"]


def test_a_sign_of_life_that_is_missed_is_not_the_last_one(tmp_path, monkeypatch, caplog):
    path = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    monkeypatch.setenv("WATCHDOG_USEC", "20000")

    async def heard():
        feeding = asyncio.ensure_future(feed_watchdog())
        await until(lambda: "does not hear WATCHDOG=1" in caplog.text, "one is missed")
        manager = Manager(path)
        try:
            return await asyncio.to_thread(manager.heard)
        finally:
            manager.close()
            feeding.cancel()

    assert asyncio.run(heard()) == "WATCHDOG=1"


def test_an_abstract_socket_is_reached():
    name = f"@kvorum-test-{os.getpid()}"
    manager = Manager(f"\0{name[1:]}")
    try:
        assert notify("READY=1", {"NOTIFY_SOCKET": name})
        assert manager.heard() == "READY=1"
    finally:
        manager.close()


def test_a_manager_that_is_gone_or_missing_stops_nobody(tmp_path, caplog):
    assert not notify("READY=1", {})
    assert not notify("READY=1", {"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert "the service manager does not hear READY=1" in caplog.text


@pytest.mark.parametrize(
    ("environment", "interval_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "10000000"}, 5.0),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "1"}, None),
    ],
)
def test_half_of_the_watchdogs_time_is_the_interval(environment, interval_s):
    assert watchdog_interval_s(environment) == interval_s
