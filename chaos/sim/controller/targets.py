"""Chooses the controller that a broker asks, as `metadata.rpc.client` does."""

from __future__ import annotations

from collections.abc import Sequence


class Targets:
    """A broker's knowledge of the active controller. leader_id: the controller that seems to be
    active, -1 for none."""

    def __init__(self, controller_ids: Sequence[int], turn: int) -> None:
        self.leader_id = -1
        self._ids = controller_ids
        self._epoch = -1
        self._turn = turn

    def next(self) -> int:
        """The known leader, else each controller in turn."""
        if self.leader_id in self._ids:
            return self.leader_id
        self._turn += 1
        return self._ids[self._turn % len(self._ids)]

    def note_active(self, target: int) -> None:
        """Note that the target has just answered as the active controller."""
        self.leader_id = target

    def note_failure(self, target: int, hint: int | None = None) -> None:
        """Note that the target did not answer, or is not active. hint: the leader that the target
        named, perhaps itself or none."""
        if self.leader_id == target:
            self.leader_id = -1
        if hint is not None and hint >= 0 and hint != target:
            self.leader_id = hint

    def note_election(self, leader_id: int, epoch: int) -> None:
        """Note an election of the metadata log's leader."""
        if leader_id >= 0 and epoch > self._epoch:
            self._epoch, self.leader_id = epoch, leader_id
