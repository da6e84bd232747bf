"""Control records of the quorum as text, in the form of Apache Kafka's dump tool."""

from __future__ import annotations

import json
import struct

from kvorum.raft.model.voters import Voter
from kvorum.raft.node.control_records import (
    KRAFT_VERSION,
    KRAFT_VOTERS,
    LISTENER_NAME,
    ParsedLeaderChange,
    parse_leader_change,
    parse_voters,
)
from kvorum.runtime.errors import WireError
from kvorum.runtime.ids import uuid_text


def control_text(key: bytes, value: bytes) -> str | None:
    """The text that kafka-dump-log prints for such a record; None if it is not a record of the
    quorum."""
    kind = int.from_bytes(key[2:4], "big", signed=True)
    try:
        change = parse_leader_change(key, value)
        if change is not None:
            return f"LeaderChange: {_json(_leader_change(change))}"
        if kind == KRAFT_VERSION:
            version, level = struct.unpack_from(">hh", value)
            return f"KRaftVersion {_json({'version': version, 'kRaftVersion': level})}"
        if kind == KRAFT_VOTERS:
            voters = parse_voters(key, value)
            listed = [] if voters is None else [_voter(voter) for voter in voters.voters]
            return f"KRaftVoters {_json({'version': 0, 'voters': listed})}"
    except (WireError, struct.error, IndexError) as error:
        return f"not readable: {error}"
    return None


def _leader_change(change: ParsedLeaderChange) -> dict[str, object]:
    return {
        "version": change.version,
        "leaderId": change.leader_id,
        "voters": [{"voterId": i} for i in change.voters],
        "grantingVoters": [{"voterId": i} for i in change.granting_voters],
    }


def _voter(voter: Voter) -> dict[str, object]:
    return {
        "voterId": voter.node_id,
        "voterDirectoryId": uuid_text(voter.directory_id),
        "endpoints": [{"name": LISTENER_NAME, "host": voter.host, "port": voter.port}],
        "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
    }


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
