"""The fault boards of a cluster's nodes, and the deaths that follow from them.

A back end that starts its own nodes has one `NodeBoards`. A board lies outside its node's data
directory: a wiped disk keeps its faults.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from kvorum.runtime.fault_board import HEALTHY, FaultBoard, create_board

FOLDER = "boards"


class NodeBoards:
    """One board for each node. Made once, before the nodes start; `close` at the end."""

    def __init__(self) -> None:
        self._boards: dict[str, FaultBoard] = {}
        self._may_die: set[str] = set()

    def make(self, folder: Path, names: Iterable[str]) -> None:
        """Make the boards of healthy nodes in a folder. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            self._boards[name] = create_board(str(folder / f"{name}.board"))

    @property
    def by_node(self) -> Mapping[str, FaultBoard]:
        """Node -> board; empty before `make`."""
        return self._boards

    def path_of(self, name: str) -> str:
        """The node's board as a file; empty if it has none."""
        board = self._boards.get(name)
        return "" if board is None else board.path

    @property
    def may_die(self) -> frozenset[str]:
        """The nodes whose death would be the work of a fault of their disk."""
        return frozenset(self._may_die)

    def allow_death(self, name: str, *, is_allowed: bool) -> None:
        """Put a node into `may_die`, or take it out."""
        if is_allowed:
            self._may_die.add(name)
        else:
            self._may_die.discard(name)

    def close(self) -> None:
        """End every fault, so that a node which stops is not held up, and unmap all boards; may be
        called again."""
        boards, self._boards = self._boards, {}
        for board in boards.values():
            board.set(HEALTHY)
            board.close()
