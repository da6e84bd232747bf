"""Between the quorum's messages and their protobuf form. No rule lives here."""

from __future__ import annotations

from kvorum.rpc import raft_pb2 as pb
from raft import messages as m
from raft.model import OffsetAndEpoch
from raft.replica_log import spans_of
from runtime.errors import ErrorCode


def encode_request(
    request: m.Request, correlation_id: int = 0
) -> pb.VoteRequest | pb.BeginQuorumEpochRequest | pb.EndQuorumEpochRequest | pb.FetchRequest:
    """The protobuf message of a request; only fetches carry the correlation id."""
    match request:
        case m.FetchRequest():
            return pb.FetchRequest(
                cluster_id=request.cluster_id,
                epoch=request.epoch,
                replica_id=request.replica_id,
                fetch_offset=request.fetch_offset,
                last_fetched_epoch=request.last_fetched_epoch,
                high_watermark=request.high_watermark,
                correlation_id=correlation_id,
            )
        case m.VoteRequest():
            return pb.VoteRequest(
                cluster_id=request.cluster_id,
                epoch=request.epoch,
                candidate_id=request.candidate_id,
                voter_id=request.voter_id,
                last_epoch=request.last_epoch,
                end_offset=request.end_offset,
                is_pre_vote=request.is_pre_vote,
            )
        case m.BeginQuorumEpochRequest():
            return pb.BeginQuorumEpochRequest(
                cluster_id=request.cluster_id,
                epoch=request.epoch,
                leader_id=request.leader_id,
                voter_id=request.voter_id,
            )
        case m.EndQuorumEpochRequest():
            return pb.EndQuorumEpochRequest(
                cluster_id=request.cluster_id,
                epoch=request.epoch,
                leader_id=request.leader_id,
                preferred_successors=request.preferred_successors,
            )


def decode_vote_request(message: pb.VoteRequest) -> m.VoteRequest:
    return m.VoteRequest(
        cluster_id=message.cluster_id,
        epoch=message.epoch,
        candidate_id=message.candidate_id,
        voter_id=message.voter_id,
        last_epoch=message.last_epoch,
        end_offset=message.end_offset,
        is_pre_vote=message.is_pre_vote,
    )


def decode_begin_request(message: pb.BeginQuorumEpochRequest) -> m.BeginQuorumEpochRequest:
    return m.BeginQuorumEpochRequest(
        cluster_id=message.cluster_id,
        epoch=message.epoch,
        leader_id=message.leader_id,
        voter_id=message.voter_id,
    )


def decode_end_request(message: pb.EndQuorumEpochRequest) -> m.EndQuorumEpochRequest:
    return m.EndQuorumEpochRequest(
        cluster_id=message.cluster_id,
        epoch=message.epoch,
        leader_id=message.leader_id,
        preferred_successors=tuple(message.preferred_successors),
    )


def decode_fetch_request(message: pb.FetchRequest) -> m.FetchRequest:
    return m.FetchRequest(
        cluster_id=message.cluster_id,
        epoch=message.epoch,
        replica_id=message.replica_id,
        fetch_offset=message.fetch_offset,
        last_fetched_epoch=message.last_fetched_epoch,
        high_watermark=message.high_watermark,
    )


def encode_response(
    response: m.Response, correlation_id: int = 0
) -> pb.VoteResponse | pb.QuorumEpochResponse | pb.FetchResponse:
    """The protobuf message of a response; only fetches carry the correlation id."""
    match response:
        case m.FetchResponse():
            message = pb.FetchResponse(
                epoch=response.epoch,
                leader_id=response.leader_id,
                error=response.error,
                high_watermark=response.high_watermark,
                records=response.records,
                correlation_id=correlation_id,
            )
            if response.diverging is not None:
                message.is_diverging = True
                message.diverging_epoch = response.diverging.epoch
                message.diverging_end_offset = response.diverging.offset
            return message
        case m.VoteResponse():
            return pb.VoteResponse(
                epoch=response.epoch,
                leader_id=response.leader_id,
                is_granted=response.is_granted,
                error=response.error,
                reason=response.reason,
            )
        case m.QuorumEpochResponse():
            return pb.QuorumEpochResponse(
                epoch=response.epoch, leader_id=response.leader_id, error=response.error
            )


def decode_vote_response(message: pb.VoteResponse) -> m.VoteResponse:
    return m.VoteResponse(
        epoch=message.epoch,
        leader_id=message.leader_id,
        is_granted=message.is_granted,
        error=ErrorCode(message.error),
        reason=message.reason,
    )


def decode_quorum_epoch_response(message: pb.QuorumEpochResponse) -> m.QuorumEpochResponse:
    return m.QuorumEpochResponse(
        epoch=message.epoch, leader_id=message.leader_id, error=ErrorCode(message.error)
    )


def decode_fetch_response(message: pb.FetchResponse) -> m.FetchResponse:
    diverging = None
    if message.is_diverging:
        diverging = OffsetAndEpoch(message.diverging_end_offset, message.diverging_epoch)
    return m.FetchResponse(
        epoch=message.epoch,
        leader_id=message.leader_id,
        error=ErrorCode(message.error),
        high_watermark=message.high_watermark,
        diverging=diverging,
        spans=spans_of(message.records),
        records=message.records,
    )
