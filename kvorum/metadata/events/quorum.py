"""Events about the quorum itself (leader, voters, kraft.version): their keys, and their state.

Pure. The state comes from control records and from the headers of snapshots, because an image does
not have it. A header has kraft.version and voters, but no leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kvorum.metadata.inspect.history import LogEntry

LEADER_KEY = "quorum/leader"
VOTERS_KEY = "quorum/voters"
KRAFT_VERSION = "kraft.version"
KRAFT_VERSION_KEY = f"feature/{KRAFT_VERSION}"

QUORUM_KEYS = frozenset({LEADER_KEY, VOTERS_KEY, KRAFT_VERSION_KEY})
"""Keys that never get a tombstone: a snapshot that lacks one of them only does not tell it."""

VoterRow = tuple[int, str, str, int]
"""Id, directory id, host and port, as a snapshot's header has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumState:
    """kraft_version: 0 for a quorum of static voters.
    voters: ascending; empty if not known.
    """

    kraft_version: int = 0
    voters: tuple[VoterRow, ...] = ()

    def after(self, entries: Iterable[LogEntry]) -> QuorumState:
        """This state with the control records among `entries` applied."""
        state = self
        for entry in entries:
            if entry.record is None and entry.type == "KRaftVersion":
                state = replace(state, kraft_version=entry.fields["kRaftVersion"])
            elif entry.record is None and entry.type == "KRaftVoters":
                state = replace(state, voters=voters_in(entry.fields))
        return state

    def things(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Key and fields of each thing that is known."""
        if self.kraft_version:
            yield KRAFT_VERSION_KEY, {"feature": KRAFT_VERSION, "level": self.kraft_version}
        if self.voters:
            yield VOTERS_KEY, voters_fields(self.voters)


NO_QUORUM = QuorumState()


def voters_in(fields: Mapping[str, Any]) -> tuple[VoterRow, ...]:
    """The voters of a KRaftVoters record, whose fields have Kafka's names."""
    rows = []
    for voter in fields["voters"]:
        endpoint = voter["endpoints"][0]
        row = (voter["voterId"], voter["voterDirectoryId"], endpoint["host"], endpoint["port"])
        rows.append(row)
    return tuple(sorted(rows))


def voters_fields(voters: tuple[VoterRow, ...]) -> dict[str, Any]:
    """The fields of an event about the voters."""
    listed = [
        {"controller_id": node_id, "directory_id": directory_id, "host": host, "port": port}
        for node_id, directory_id, host, port in voters
    ]
    return {"voters": [voter["controller_id"] for voter in listed], "voter_endpoints": listed}
