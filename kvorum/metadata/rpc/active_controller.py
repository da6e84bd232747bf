"""Chooses the controller that is asked next: the one that seems to be active, else each in turn.
Pure; brokers, commands and the simulator's brokers use it.
"""

from __future__ import annotations

from collections.abc import Iterable


class ActiveController:
    """A caller's knowledge of the active controller.

    leader_id: the controller that seems to be active, None if none is known. epoch: of the newest
    election that the caller has heard of, -1 for none.
    """

    def __init__(self, controller_ids: Iterable[int], turn: int = 0) -> None:
        """turn: any number; callers with different ones begin with different controllers."""
        self.leader_id: int | None = None
        self.epoch = -1
        self._ids = sorted(controller_ids)
        self._turn = turn

    def update(self, controller_ids: Iterable[int]) -> None:
        """Replace the ids of all controllers."""
        self._ids = sorted(controller_ids)
        if self.leader_id not in self._ids:
            self.leader_id = None

    def next(self) -> int:
        """The controller to ask."""
        if self.leader_id is not None:
            return self.leader_id
        self._turn += 1
        return self._ids[self._turn % len(self._ids)]

    def note_active(self, controller_id: int) -> None:
        """Note that this controller is active. An unknown id is ignored: a bootstrap server's
        stand-in id, which the voter set has replaced since the call was sent."""
        if controller_id in self._ids:
            self.leader_id = controller_id

    def note_election(self, leader_id: int, epoch: int) -> bool:
        """Note the leader of `epoch`, as an observer of the quorum's log reports it. False if the
        caller knows a newer one, or not this controller."""
        if leader_id not in self._ids or epoch <= self.epoch:
            return False
        self.epoch = epoch
        self.leader_id = leader_id
        return True

    def note_failure(self, controller_id: int, hint: int = -1) -> None:
        """Note that this controller did not answer, or is not active. hint: the leader that it
        named, perhaps an outdated one or itself; below 0 for none."""
        if self.leader_id == controller_id:
            self.leader_id = None
        if hint != controller_id:
            self.note_active(hint)
