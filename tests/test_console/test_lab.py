"""The processes of a lab: which of them may be struck, and how."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from kvorum.console.lab import NO_LINKS, Lab
from kvorum.console.proxied_links import ProxiedLinks
from kvorum.launch.cluster.cluster_file import ClusterFile, NodeEntry, write_cluster_file
from kvorum.launch.dev.control import process_state
from kvorum.runtime.errors import ConfigError
from tests.polling import eventually


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sleep", "600"])
    yield child
    child.kill()
    child.wait()


def write_lab(folder, pid, *, launcher_pid=None, state="running", is_ready=True) -> Lab:
    node = NodeEntry(
        name="broker-101",
        id=101,
        roles=("broker",),
        pid=pid,
        state=state,
        listener="127.0.0.1:1",
        advertised="127.0.0.1:1",
        directory="d",
        log_file="l",
        is_ready=is_ready,
    )
    cluster = ClusterFile(
        cluster_id="c",
        bootstrap="127.0.0.1:1",
        launcher_pid=os.getpid() if launcher_pid is None else launcher_pid,
        nodes=(node,),
    )
    write_cluster_file(str(folder), cluster)
    return Lab(str(folder), None)


def state_of(lab):
    return lab.processes()[101]["state"]


def test_node_is_paused_resumed_and_killed(tmp_path, process):
    lab = write_lab(tmp_path, process.pid)
    assert state_of(lab) == "running"
    assert lab.act("pause", "broker-101") == "broker-101 is paused"
    eventually(lambda: state_of(lab) == "paused", "it is paused")
    lab.act("resume", "101")
    eventually(lambda: state_of(lab) == "running", "it runs")
    lab.act("kill", "broker-101")
    assert process.wait() == -9
    assert state_of(lab) == "dead"
    with pytest.raises(ConfigError, match="broker-101 is not running"):
        lab.act("kill", "broker-101")


def test_process_of_a_stranger_is_never_struck(tmp_path, process):
    """The pid of a node that ended may belong to another process by now."""
    lab = write_lab(tmp_path, process.pid, launcher_pid=1)
    for action in ("kill", "pause", "resume"):
        with pytest.raises(ConfigError, match="is not running"):
            lab.act(action, "broker-101")
    assert process.poll() is None
    assert state_of(lab) == "dead"


def test_node_that_does_not_serve_yet_is_starting(tmp_path, process):
    assert state_of(write_lab(tmp_path, process.pid, is_ready=False)) == "starting"


def test_state_without_a_process_is_that_of_the_file(tmp_path):
    assert state_of(write_lab(tmp_path, None, state="stopped")) == "stopped"
    assert process_state(None, os.getpid()) == "dead"


def test_restart_without_a_launcher_is_refused(tmp_path):
    lab = write_lab(tmp_path, None, state="dead")
    with pytest.raises(ConfigError, match="no launcher is running"):
        lab.act("restart", "broker-101")


def test_unknown_node_and_missing_lab_are_named(tmp_path):
    with pytest.raises(ConfigError, match="no node 'x'; it has broker-101"):
        write_lab(tmp_path, None).act("kill", "x")
    with pytest.raises(ConfigError, match="there is no cluster in"):
        Lab(str(tmp_path / "none"), None).processes()


def test_cut_needs_links(tmp_path):
    with pytest.raises(ConfigError) as refused:
        write_lab(tmp_path, None).act("cut", "broker-101")
    assert str(refused.value) == NO_LINKS


class FakeToxiproxy:
    """Toxics by proxy; a toxic of somebody else is on one of them."""

    def __init__(self, names):
        self.toxics_of = {name: {} for name in names}

    def proxies(self):
        return {name: (f"{name}:1", f"{name}:2") for name in self.toxics_of}

    def toxics(self, link):
        return dict(self.toxics_of[link.name])

    def add_toxic(self, link, toxic):
        self.toxics_of[link.name][toxic.name] = toxic.kind

    def remove_toxic(self, link, name):
        self.toxics_of[link.name].pop(name, None)


def test_links_of_one_node_are_cut_and_healed():
    links = ProxiedLinks("127.0.0.1", 1)
    fake = FakeToxiproxy(["a.b", "b.a", "clients.a", "b.c", "stray"])
    fake.toxics_of["a.b"]["of-others"] = "latency"
    links._toxiproxy = fake
    links.cut("a")
    links.cut("a")
    assert {name for name, toxics in fake.toxics_of.items() if len(toxics) >= 2} == {
        "a.b", "b.a", "clients.a",
    }  # fmt: skip
    assert links.cut_nodes() == {"a", "clients"}
    links.heal("a")
    assert links.cut_nodes() == frozenset()
    assert fake.toxics_of == {
        "a.b": {"of-others": "latency"}, "b.a": {}, "clients.a": {}, "b.c": {}, "stray": {},
    }  # fmt: skip
