"""Kvorum under test: what a node's stop and a wiped disk do to a running `kvorum dev`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvorum.chaos.live.systems.opening import LOGS, choose_system, open_system
from kvorum.chaos.live.systems.protocol import Node, active_controller, node_named
from kvorum.runtime.errors import KvorumError
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


def identity_of(node_dir: Path) -> str:
    """The directory id in meta.properties."""
    lines = (node_dir / "meta.properties").read_text().splitlines()
    return next(line for line in lines if line.startswith("directory.id="))


def test_a_stopped_node_keeps_its_disk_and_a_wiped_one_gets_a_new_one(tmp_path):
    shape = SimpleNamespace(
        controllers=1, voters=0, brokers=2, is_secure=False, settings=(), start_timeout_ms=60_000
    )
    (tmp_path / LOGS).mkdir()
    with ExitStack() as stack:
        opened = open_system(
            stack,
            choose_system("kvorum"),
            shape=shape,
            run_dir=tmp_path,
            progress=lambda _: None,
        )
        system = opened.system
        assert active_controller(system) == "controller-1"
        folder = tmp_path / "cluster" / "broker-102"

        def broker() -> Node:
            return node_named(system, "broker-102")

        first = identity_of(folder)
        with pytest.raises(KvorumError, match="was not killed or stopped"):
            system.wipe("broker-102")
        system.stop_node("broker-102")
        assert broker().state == "dead"
        assert system.killed == {"broker-102"}
        assert system.died_unasked() == []
        with pytest.raises(KvorumError, match="broker-102 is not running, it cannot be stopped"):
            system.stop_node("broker-102")
        system.restart("broker-102")
        assert identity_of(folder) == first
        assert system.killed == frozenset()
        system.kill("broker-102")
        system.wipe("broker-102")
        assert not (folder / "meta.properties").exists()
        system.restart("broker-102")
        eventually((folder / "meta.properties").exists, "the disk has an identity")
        assert identity_of(folder) != first
        assert system.died_unasked() == []
