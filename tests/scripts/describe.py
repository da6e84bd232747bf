"""The short texts that scripts print. A voter is its id and the letter of its disk: `2a`, and
`2b` after its disk was wiped once; a listener other than the usual one is added: `2a:9102`."""

from __future__ import annotations

import re

from kvorum.raft.model.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumEpochResponse,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from kvorum.raft.model.values import OffsetAndEpoch, VoteState
from kvorum.raft.model.voters import Voter, VoterSet
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.ids import UUID_ZERO, uuid_from_text

_FULL_VOTER = re.compile(r"(\d+)@host\d+:(\d+):([\w-]{22})")


def directory_of(node_id: int, letter: str) -> bytes:
    return bytes(14) + bytes((node_id, ord(letter)))


def usual_port(node_id: int) -> int:
    return 9000 + node_id


def voter(node_id: int, letter: str = "a", port: int | None = None) -> Voter:
    port = usual_port(node_id) if port is None else port
    return Voter(node_id, directory_of(node_id, letter), f"host{node_id}", port)


def voter_text(one: Voter) -> str:
    if one.directory_id == UUID_ZERO:
        return str(one.node_id)
    text = f"{one.node_id}{chr(one.directory_id[-1])}"
    return text if one.port == usual_port(one.node_id) else f"{text}:{one.port}"


def voters(some: VoterSet) -> str:
    return ",".join(voter_text(one) for one in some.voters)


def note(text: str) -> str:
    """A line of the core's timeline, its voters made short."""
    return _FULL_VOTER.sub(_shorten, text)


def _shorten(match: re.Match[str]) -> str:
    node_id, port, directory = match.groups()
    letter = chr(uuid_from_text(directory)[-1])
    return voter_text(voter(int(node_id), letter, int(port)))


def parse_voters(text: str) -> VoterSet:
    return VoterSet.of(parse_voter(part) for part in text.split(",") if part)


def parse_voter(text: str) -> Voter:
    key, _, port = text.partition(":")
    if key.isdigit():
        return Voter(int(key))
    return voter(int(key[:-1]), key[-1], int(port) if port else None)


def snapshot(one: OffsetAndEpoch) -> str:
    return f"{one.offset}-{one.epoch}"


def entry(one) -> str:
    return f"{one.value}@{one.epoch}"


def node(node_id: int) -> str:
    return "-" if node_id < 0 else str(node_id)


def vote_state(state: VoteState) -> str:
    return f"epoch={state.epoch} leader={node(state.leader_id)} voted={node(state.voted_id)}"


def message(payload: Request | Response) -> str:
    """One message, without who sends it to whom."""
    match payload:
        case VoteRequest():
            kind = "PreVote" if payload.is_pre_vote else "Vote"
            return f"{kind} epoch={payload.epoch} log={payload.end_offset}@{payload.last_epoch}"
        case BeginQuorumEpochRequest():
            return f"BeginQuorumEpoch epoch={payload.epoch}"
        case EndQuorumEpochRequest():
            successors = ",".join(map(str, payload.preferred_successors))
            return f"EndQuorumEpoch epoch={payload.epoch} successors={successors}"
        case FetchRequest():
            at = f"{payload.fetch_offset}@{payload.last_fetched_epoch}"
            return f"Fetch epoch={payload.epoch} from={at}"
        case FetchSnapshotRequest():
            name = snapshot(payload.snapshot)
            return f"FetchSnapshot epoch={payload.epoch} {name} position={payload.position}"
        case AddVoterRequest():
            return f"AddVoter {voter_text(payload.voter)}"
        case RemoveVoterRequest():
            return f"RemoveVoter {payload.node_id}"
        case UpdateVoterRequest():
            return f"UpdateVoter epoch={payload.epoch} {voter_text(payload.voter)}"
        case _:
            return _response(payload)


def _response(response: Response) -> str:
    where = f"epoch={response.epoch} leader={node(response.leader_id)}"
    failed = response.error is not ErrorCode.NONE
    match response:
        case VoteResponse():
            verdict = "granted" if response.is_granted else f"refused ({response.reason})"
            text = f"{verdict} {where}"
        case QuorumEpochResponse():
            text = f"EpochResponse {where}"
        case FetchResponse():
            text = f"FetchResponse {where} {_fetched(response)}".rstrip()
        case FetchSnapshotResponse():
            end = response.position + len(response.data)
            piece = "" if failed else f" bytes={response.position}-{end} of {response.size}"
            text = f"FetchSnapshotResponse {where}{piece}"
        case VoterChangeResponse():
            detail = f" {response.message!r}" if response.message else ""
            text = f"VoterChangeResponse {where} voters={voters(response.voters)}{detail}"
    return f"{text} {response.error.name}" if failed else text


def _fetched(response: FetchResponse) -> str:
    if response.error is not ErrorCode.NONE:
        return ""
    if response.snapshot is not None:
        return f"snapshot={snapshot(response.snapshot)}"
    if response.diverging is not None:
        return f"diverging={response.diverging.offset}@{response.diverging.epoch}"
    records = " ".join(entry(one) for batch in response.records or () for one in batch)
    return f"hw={response.high_watermark} [{records}]"
