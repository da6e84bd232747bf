"""The quorum-state file: epoch, leader and vote, one JSON line (KIP-595).

Version 0 is for static voters. Version 1 adds the voted directory id, for dynamic voters.

The write is atomic and fsynced before `save` returns. No message that depends on a vote or an epoch
leaves the node before that.
"""

from __future__ import annotations

import json

from kvorum.raft.model.values import VoteState
from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData, NewerFormat
from kvorum.runtime.ids import NO_NODE, UUID_ZERO, uuid_from_text, uuid_text

FILE_NAME = "quorum-state"


class VoteStore:
    """Keeps one VoteState in `directory`/quorum-state.

    version: of the file that `save` writes, 0 or 1; `load` reads both.
    """

    def __init__(self, disk: Disk, directory: str, *, version: int = 0) -> None:
        self._disk = disk
        self._version = version
        self._path = f"{directory}/{FILE_NAME}"

    def stored_version(self) -> int | None:
        """Version of the file on disk, None if there is none. Raises CorruptData."""
        if not self._disk.exists(self._path):
            return None
        try:
            return int(json.loads(self._disk.read_bytes(self._path))["data_version"])
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptData(self._path, 0, f"not a quorum-state file: {error}") from error

    def load(self) -> VoteState:
        """The state last saved, or the state of a new node if the file is missing.

        Raises CorruptData for a file that `save` cannot have written: with a guess, a node could
        vote twice in an epoch.
        """
        if not self._disk.exists(self._path):
            return VoteState()
        raw = self._disk.read_bytes(self._path)
        try:
            fields = json.loads(raw)
            version = fields["data_version"]
            if isinstance(version, int) and version > 1:
                raise NewerFormat(
                    self._path, 0, f"data_version {version} is of a newer build; this reads 0 and 1"
                )
            if version not in (0, 1):
                raise ValueError(f"data_version {version}; this build reads 0 and 1")
            directory_id = UUID_ZERO
            if version == 1:
                directory_id = uuid_from_text(fields["votedDirectoryId"])
            for name, least in (("leaderEpoch", 0), ("leaderId", NO_NODE), ("votedId", NO_NODE)):
                if int(fields[name]) < least:
                    raise ValueError(f"{name} {fields[name]}")
            return VoteState(
                epoch=int(fields["leaderEpoch"]),
                leader_id=int(fields["leaderId"]),
                voted_id=int(fields["votedId"]),
                voted_directory_id=directory_id,
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptData(self._path, 0, f"not a quorum-state file: {error}") from error

    def save(self, state: VoteState) -> None:
        """Return only when `state` is on disk, fsynced, under its final name."""
        fields: dict[str, int | str] = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted_id,
        }
        if self._version == 1:
            fields["votedDirectoryId"] = uuid_text(state.voted_directory_id)
        fields["data_version"] = self._version
        self._disk.write_atomic(self._path, json.dumps(fields).encode("ascii"))
