"""Conversion between the quorum's messages and their protobuf form. It holds no rule.

Two fields travel beside a message, because the core does not use them: the correlation id of a
fetch, and the leader's address. `raft.node.transport` keeps the address, so that a node can reach a
leader that its own log does not name yet.
"""

from __future__ import annotations

from typing import Any

from kvorum.raft.model import messages as m
from kvorum.raft.model.voters import Voter
from kvorum.raft.node.control_records import parsed_set
from kvorum.raft.node.replica_log import fetched_spans
from kvorum.rpc import raft_pb2 as pb
from kvorum.runtime.errors import WireError
from kvorum.runtime.message_mapper import ByHand, MessageMapper, items_converters

Address = tuple[str, int]

EPOCH_MAX = (1 << 31) - 1 - (1 << 20)
"""The largest epoch that a peer may name. An epoch has 32 bits in record batches, and each election
takes the next one: a node that adopted the largest could not stand any more."""

_encode_voters, _decode_voters = items_converters(
    Voter, pb.VoterChangeResponse.DESCRIPTOR.fields_by_name["voters"]
)

_VOTER_SET = ByHand(
    encode=lambda voter_set: _encode_voters(voter_set.voters),
    decode=lambda voters: parsed_set(_decode_voters(voters)),
)

_MAPPERS: dict[type, MessageMapper[Any]] = {
    m.FetchRequest: MessageMapper(
        m.FetchRequest, pb.FetchRequest, apart=("correlation_id", "sent_at_ms")
    ),
    m.VoteRequest: MessageMapper(m.VoteRequest, pb.VoteRequest),
    m.BeginQuorumEpochRequest: MessageMapper(
        m.BeginQuorumEpochRequest, pb.BeginQuorumEpochRequest, apart=("leader_address",)
    ),
    m.EndQuorumEpochRequest: MessageMapper(m.EndQuorumEpochRequest, pb.EndQuorumEpochRequest),
    m.FetchSnapshotRequest: MessageMapper(m.FetchSnapshotRequest, pb.FetchSnapshotRequest),
    m.AddVoterRequest: MessageMapper(m.AddVoterRequest, pb.AddVoterRequest),
    m.RemoveVoterRequest: MessageMapper(m.RemoveVoterRequest, pb.RemoveVoterRequest),
    m.UpdateVoterRequest: MessageMapper(m.UpdateVoterRequest, pb.UpdateVoterRequest),
    m.FetchResponse: MessageMapper(
        m.FetchResponse,
        pb.FetchResponse,
        apart=("correlation_id", "leader_address"),
        derived={"spans": lambda message: fetched_spans(message.records)},
    ),
    m.VoteResponse: MessageMapper(m.VoteResponse, pb.VoteResponse, apart=("leader_address",)),
    m.QuorumEpochResponse: MessageMapper(
        m.QuorumEpochResponse, pb.QuorumEpochResponse, apart=("leader_address",)
    ),
    m.FetchSnapshotResponse: MessageMapper(
        m.FetchSnapshotResponse, pb.FetchSnapshotResponse, apart=("leader_address",)
    ),
    m.VoterChangeResponse: MessageMapper(
        m.VoterChangeResponse,
        pb.VoterChangeResponse,
        apart=("leader_address",),
        by_hand={"voters": _VOTER_SET},
    ),
}
_MAPPER_OF_MESSAGE = {getattr(pb, kind.__name__): mapper for kind, mapper in _MAPPERS.items()}


def encode_request(
    request: m.Request,
    correlation_id: int = 0,
    leader_address: Address | None = None,
    *,
    sent_at_ms: int = 0,
) -> Any:
    """The protobuf message of a request; only fetches carry the correlation id and sent_at_ms, the
    sender's wall clock.

    leader_address: the listener of the leader that sends a BeginQuorumEpoch.
    """
    if isinstance(request, m.FetchRequest):
        mapper = _MAPPERS[m.FetchRequest]
        return mapper.encode(request, correlation_id=correlation_id, sent_at_ms=sent_at_ms)
    if isinstance(request, m.BeginQuorumEpochRequest):
        mapper = _MAPPERS[m.BeginQuorumEpochRequest]
        return mapper.encode(request, leader_address=_address(leader_address))
    return _MAPPERS[type(request)].encode(request)


def encode_response(
    response: m.Response, correlation_id: int = 0, leader_address: Address | None = None
) -> Any:
    """The protobuf message of a response; only fetches carry the correlation id."""
    mapper = _MAPPERS[type(response)]
    address = _address(leader_address)
    if isinstance(response, m.FetchResponse):
        return mapper.encode(response, correlation_id=correlation_id, leader_address=address)
    return mapper.encode(response, leader_address=address)


def decode(message: Any) -> Any:
    """The request or response in a protobuf message.

    Raises WireError for an unknown error code, for damaged or cut-off records, for a voter set with
    two voters of one id, and for an epoch that leaves no room for elections.
    """
    epoch = getattr(message, "epoch", 0)
    if epoch > EPOCH_MAX:
        raise WireError(f"epoch {epoch} is over {EPOCH_MAX}")
    return _MAPPER_OF_MESSAGE[type(message)].decode(message)


def decode_address(message: Any) -> Address | None:
    """The leader's address that a message carries, None if it carries none."""
    if not message.HasField("leader_address"):
        return None
    address = message.leader_address
    return address.host, address.port


def _address(address: Address | None) -> pb.Address | None:
    return None if address is None else pb.Address(host=address[0], port=address[1])
