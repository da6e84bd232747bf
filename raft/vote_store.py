"""The quorum-state file: epoch, leader and vote, one JSON line (kraft.md section 3).

The write is atomic and fsynced before `save` returns: no answer that rests on a vote or an epoch
leaves the node before that.
"""

from __future__ import annotations

import json

from raft.model import VoteState
from runtime.disk import Disk
from runtime.errors import CorruptData

FILE_NAME = "quorum-state"


class VoteStore:
    """Keeps one VoteState in `directory`/quorum-state."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{FILE_NAME}"

    def load(self) -> VoteState:
        """The state last saved; that of a new node if there is none.

        Raises CorruptData for a file that is not what `save` writes: guessing could vote twice.
        """
        if not self._disk.exists(self._path):
            return VoteState()
        raw = self._disk.read_bytes(self._path)
        try:
            fields = json.loads(raw)
            if fields["data_version"] != 0:
                raise ValueError(f"data_version {fields['data_version']} is not known")
            return VoteState(
                epoch=int(fields["leaderEpoch"]),
                leader_id=int(fields["leaderId"]),
                voted_id=int(fields["votedId"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptData(self._path, 0, f"not a quorum-state file: {error}") from error

    def save(self, state: VoteState) -> None:
        """Return only when `state` is on disk, fsynced, under its final name."""
        fields = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted_id,
            "data_version": 0,
        }
        self._disk.write_atomic(self._path, json.dumps(fields).encode("ascii"))
