"""A cluster whose processes a back end starts itself: the signals to its nodes.

The common half of `kvorum.py` and `kafka.py`.
"""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping

from kvorum.chaos.live.systems.boards import NodeBoards
from kvorum.chaos.live.systems.protocol import DEAD, RUNNING, Node
from kvorum.runtime.errors import KvorumError
from kvorum.runtime.fault_board import FaultBoard


class OwnCluster(ABC):
    """The nodes that faults killed, stopped and paused."""

    topic_prefix = ""
    max_nodes_down: int | None = None

    def __init__(self) -> None:
        self._killed: set[str] = set()
        self._paused: set[str] = set()
        self._boards = NodeBoards()

    @abstractmethod
    def nodes(self) -> list[Node]:
        """Every node."""

    @abstractmethod
    def _pid(self, name: str, what: str) -> int:
        """The node's process id. what: refused with a KvorumError if the node does not run."""

    @abstractmethod
    def _await_stop(self, name: str) -> None:
        """Return when a node that got SIGTERM has ended."""

    @property
    def killed(self) -> frozenset[str]:
        may_die = self._boards.may_die
        # Without a fault of disks nobody need be asked.
        return frozenset(self._killed).union(may_die.intersection(self._dead()) if may_die else ())

    @property
    def paused(self) -> frozenset[str]:
        return frozenset(self._paused)

    def died_unasked(self) -> list[str]:
        asked = self._killed | self._boards.may_die
        return [name for name in self._dead() if name not in asked]

    def _dead(self) -> list[str]:
        """The nodes whose processes have ended, in the order of `nodes`."""
        return [node.name for node in self.nodes() if node.state == DEAD]

    @property
    def fault_boards(self) -> Mapping[str, FaultBoard]:
        return self._boards.by_node

    def may_die(self, name: str) -> None:
        self._boards.allow_death(name, is_allowed=True)

    def must_live(self, name: str) -> None:
        self._boards.allow_death(name, is_allowed=False)

    def kill(self, name: str) -> None:
        """SIGKILL; returns at once."""
        pid = self._pid(name, "be killed")
        self._killed.add(name)
        self._paused.discard(name)
        os.kill(pid, signal.SIGKILL)

    def stop_node(self, name: str) -> None:
        if name in self._paused:
            raise KvorumError(f"{name} is paused, it cannot be stopped; resume it first")
        pid = self._pid(name, "be stopped")
        self._killed.add(name)
        os.kill(pid, signal.SIGTERM)
        self._await_stop(name)

    def pause(self, name: str) -> None:
        os.kill(self._pid(name, "be paused"), signal.SIGSTOP)
        self._paused.add(name)

    def resume(self, name: str) -> None:
        self._paused.discard(name)
        os.kill(self._pid(name, "be resumed"), signal.SIGCONT)

    def quorum_witnesses(self) -> list[str]:
        """The running controllers."""
        return [
            node.name
            for node in self.nodes()
            if node.is_controller and node.state == RUNNING and node.name not in self._paused
        ]
