"""The voter set, and the history of voter sets in the log (KIP-853).

A static voter set comes from the configuration and never changes. A dynamic one comes from the log:
the last VotersRecord that a node has is in force, committed or not. So the majorities of
consecutive sets always overlap.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from kvorum.runtime.errors import invariant
from kvorum.runtime.ids import UUID_ZERO, Uuid, uuid_text
from kvorum.runtime.text import address_text

VOTERS_MAX = 126
"""The limit that keeps the count of a compact array within one byte of a VotersRecord."""

HOST_BYTES_MAX = 126
"""The limit that keeps the length of a listener's host within one byte of a VotersRecord."""


@dataclass(frozen=True, slots=True)
class Voter:
    """One voter.

    directory_id: of the disk that votes; zero for a static voter, whose disk is not known.
    host, port: the voter's listener; empty and 0 for a static voter.
    """

    node_id: int
    directory_id: Uuid = UUID_ZERO
    host: str = ""
    port: int = 0

    def is_key(self, node_id: int, directory_id: bytes) -> bool:
        """True if this replica is this voter; an entry without directory id is matched by node id
        alone."""
        return node_id == self.node_id and self.directory_id in (UUID_ZERO, directory_id)

    def __str__(self) -> str:
        if self.directory_id == UUID_ZERO:
            return str(self.node_id)
        return f"{self.node_id}@{address_text(self.host, self.port)}:{uuid_text(self.directory_id)}"


@dataclass(frozen=True, slots=True)
class VoterSet:
    """Voters by ascending id. `of` and `static` create one."""

    voters: tuple[Voter, ...] = ()

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        """A set of these voters; their ids must differ."""
        ordered = tuple(sorted(voters, key=lambda voter: voter.node_id))
        ids = [voter.node_id for voter in ordered]
        invariant(len(set(ids)) == len(ids), f"voters named twice: {ids}")
        return cls(ordered)

    @classmethod
    def static(cls, node_ids: Iterable[int]) -> VoterSet:
        """A static set, whose voters are known by id only."""
        return cls.of(Voter(node_id) for node_id in node_ids)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(voter.node_id for voter in self.voters)

    def __len__(self) -> int:
        return len(self.voters)

    def get(self, node_id: int) -> Voter | None:
        """The voter with this id; None if there is none."""
        return next((voter for voter in self.voters if voter.node_id == node_id), None)

    def has(self, node_id: int, directory_id: bytes) -> bool:
        """True if this replica, by id and disk, is a voter."""
        for voter in self.voters:  # a plain loop, because every fetch calls this
            if voter.node_id == node_id:
                return voter.directory_id in (UUID_ZERO, directory_id)
        return False

    def complaint_of(self, node_id: int, directory_id: bytes) -> str | None:
        """A sentence for a node whose id votes with another disk than its own; or None."""
        voter = self.get(node_id)
        if voter is None or voter.is_key(node_id, directory_id):
            return None
        return (
            f"node {node_id} votes with directory {uuid_text(voter.directory_id)}, and this one is "
            f"{uuid_text(directory_id)}: it follows without a vote. If the other disk is lost: "
            f"kvorum quorum remove-voter --id {node_id}, then add-voter --id {node_id}"
        )

    def with_voter(self, voter: Voter) -> VoterSet:
        """This set with `voter` added, or put in place of the entry with the same id."""
        return VoterSet.of([*self.without(voter.node_id).voters, voter])

    def without(self, node_id: int) -> VoterSet:
        return VoterSet(tuple(v for v in self.voters if v.node_id != node_id))

    def __str__(self) -> str:
        return ",".join(map(str, self.voters))


NO_VOTERS = VoterSet()


class VoterHistory:
    """Voter sets by the offset of their VotersRecord; the last one is in force.

    The entry at -1 comes from the configuration or the bootstrap checkpoint. An entry below the
    start of the log comes from a snapshot.
    """

    __slots__ = ("_offsets", "_sets")

    def __init__(self, entries: Iterable[tuple[int, VoterSet]] = ()) -> None:
        ordered = sorted(entries, key=lambda entry: entry[0])
        self._offsets = [offset for offset, _ in ordered]
        self._sets = [voters for _, voters in ordered]

    @property
    def last(self) -> VoterSet:
        """The set in force, empty if none is known."""
        return self._sets[-1] if self._sets else NO_VOTERS

    @property
    def previous(self) -> VoterSet:
        """The set before the one in force, empty if none is known."""
        return self._sets[-2] if len(self._sets) > 1 else NO_VOTERS

    @property
    def last_offset(self) -> int:
        """Offset of the VotersRecord in force; -1 if the set does not come from the log."""
        return self._offsets[-1] if self._offsets else -1

    @property
    def entries(self) -> list[tuple[int, VoterSet]]:
        return list(zip(self._offsets, self._sets, strict=True))

    def append(self, offset: int, voters: VoterSet) -> None:
        """Put a set in force, from the VotersRecord at this offset."""
        invariant(offset > self.last_offset, f"voters at {offset} after {self.last_offset}")
        self._offsets.append(offset)
        self._sets.append(voters)

    def truncate(self, end_offset: int) -> None:
        """Drop the sets whose records are at or above end_offset."""
        keep = bisect_left(self._offsets, end_offset)
        del self._offsets[keep:]
        del self._sets[keep:]

    def at(self, end_offset: int) -> VoterSet:
        """The set in force for the part of the log below end_offset."""
        index = bisect_left(self._offsets, end_offset)
        return self._sets[index - 1] if index else NO_VOTERS

    def trim(self, start_offset: int) -> None:
        """Drop every set that another one below start_offset has replaced."""
        drop = max(bisect_left(self._offsets, start_offset) - 1, 0)
        del self._offsets[:drop]
        del self._sets[:drop]
