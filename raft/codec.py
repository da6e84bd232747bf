"""Between the quorum's messages and their protobuf form. No rule lives here.

Responses also carry the leader's address, which the core has no use for: `raft.transport` keeps
it, so that a node can reach a leader of whom its own log has not told it yet.
"""

from __future__ import annotations

from typing import Any

from kvorum.raft import messages as m
from kvorum.raft.control_records import parsed_set
from kvorum.raft.model import OffsetAndEpoch
from kvorum.raft.replica_log import fetched_spans
from kvorum.raft.voters import Voter
from kvorum.rpc import raft_pb2 as pb
from kvorum.runtime.errors import ErrorCode, WireError
from kvorum.runtime.ids import UUID_ZERO

Address = tuple[str, int]


def encode_request(
    request: m.Request, correlation_id: int = 0, leader_address: Address | None = None
) -> Any:
    """The protobuf message of a request; only fetches carry the correlation id.

    leader_address: of the sender of a BeginQuorumEpoch.
    """
    match request:
        case m.FetchRequest():
            return pb.FetchRequest(
                cluster_id=request.cluster_id,
                epoch=request.epoch,
                replica_id=request.replica_id,
                fetch_offset=request.fetch_offset,
                last_fetched_epoch=request.last_fetched_epoch,
                high_watermark=request.high_watermark,
                replica_directory_id=request.replica_directory_id,
                address=_address(request.address),
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
                candidate_directory_id=request.candidate_directory_id,
                voter_directory_id=request.voter_directory_id,
            )
        case m.BeginQuorumEpochRequest():
            return pb.BeginQuorumEpochRequest(
                cluster_id=request.cluster_id,
                epoch=request.epoch,
                leader_id=request.leader_id,
                voter_id=request.voter_id,
                voter_directory_id=request.voter_directory_id,
                leader_address=_address(leader_address),
            )
        case m.EndQuorumEpochRequest():
            return pb.EndQuorumEpochRequest(
                cluster_id=request.cluster_id,
                epoch=request.epoch,
                leader_id=request.leader_id,
                preferred_successors=request.preferred_successors,
            )
        case m.FetchSnapshotRequest():
            return pb.FetchSnapshotRequest(
                cluster_id=request.cluster_id,
                epoch=request.epoch,
                replica_id=request.replica_id,
                replica_directory_id=request.replica_directory_id,
                snapshot_end_offset=request.snapshot.offset,
                snapshot_epoch=request.snapshot.epoch,
                position=request.position,
                bytes_max=request.bytes_max,
            )
        case _:
            return _encode_voter_change(request)


def _encode_voter_change(request: m.VoterChangeRequest) -> Any:
    match request:
        case m.AddVoterRequest():
            return pb.AddVoterRequest(
                cluster_id=request.cluster_id,
                voter=encode_voter(request.voter),
                is_dry_run=request.is_dry_run,
            )
        case m.RemoveVoterRequest():
            return pb.RemoveVoterRequest(
                cluster_id=request.cluster_id,
                node_id=request.node_id,
                directory_id=request.directory_id,
                is_dry_run=request.is_dry_run,
            )
        case _:
            return pb.UpdateVoterRequest(
                cluster_id=request.cluster_id,
                epoch=request.epoch,
                voter=encode_voter(request.voter),
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
        candidate_directory_id=_directory(message.candidate_directory_id),
        voter_directory_id=_directory(message.voter_directory_id),
    )


def decode_begin_request(message: pb.BeginQuorumEpochRequest) -> m.BeginQuorumEpochRequest:
    return m.BeginQuorumEpochRequest(
        cluster_id=message.cluster_id,
        epoch=message.epoch,
        leader_id=message.leader_id,
        voter_id=message.voter_id,
        voter_directory_id=_directory(message.voter_directory_id),
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
        replica_directory_id=_directory(message.replica_directory_id),
        address=decode_address(message),
    )


def decode_fetch_snapshot_request(message: pb.FetchSnapshotRequest) -> m.FetchSnapshotRequest:
    return m.FetchSnapshotRequest(
        cluster_id=message.cluster_id,
        epoch=message.epoch,
        replica_id=message.replica_id,
        replica_directory_id=_directory(message.replica_directory_id),
        snapshot=OffsetAndEpoch(message.snapshot_end_offset, message.snapshot_epoch),
        position=message.position,
        bytes_max=message.bytes_max,
    )


def decode_add_voter(message: pb.AddVoterRequest) -> m.AddVoterRequest:
    return m.AddVoterRequest(
        cluster_id=message.cluster_id,
        voter=decode_voter(message.voter),
        is_dry_run=message.is_dry_run,
    )


def decode_remove_voter(message: pb.RemoveVoterRequest) -> m.RemoveVoterRequest:
    return m.RemoveVoterRequest(
        cluster_id=message.cluster_id,
        node_id=message.node_id,
        directory_id=_directory(message.directory_id),
        is_dry_run=message.is_dry_run,
    )


def decode_update_voter(message: pb.UpdateVoterRequest) -> m.UpdateVoterRequest:
    return m.UpdateVoterRequest(
        cluster_id=message.cluster_id, epoch=message.epoch, voter=decode_voter(message.voter)
    )


def encode_response(
    response: m.Response, correlation_id: int = 0, leader_address: Address | None = None
) -> Any:
    """The protobuf message of a response; only fetches carry the correlation id."""
    address = _address(leader_address)
    match response:
        case m.FetchResponse():
            message = pb.FetchResponse(
                epoch=response.epoch,
                leader_id=response.leader_id,
                error=response.error,
                high_watermark=response.high_watermark,
                records=response.records,
                correlation_id=correlation_id,
                leader_address=address,
            )
            if response.snapshot is not None:
                message.has_snapshot = True
                message.snapshot_end_offset = response.snapshot.offset
                message.snapshot_epoch = response.snapshot.epoch
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
                leader_address=address,
            )
        case m.QuorumEpochResponse():
            return pb.QuorumEpochResponse(
                epoch=response.epoch,
                leader_id=response.leader_id,
                error=response.error,
                leader_address=address,
            )
        case m.FetchSnapshotResponse():
            return pb.FetchSnapshotResponse(
                epoch=response.epoch,
                leader_id=response.leader_id,
                error=response.error,
                position=response.position,
                size=response.size,
                data=response.data,
                leader_address=address,
            )
        case m.VoterChangeResponse():
            return pb.VoterChangeResponse(
                epoch=response.epoch,
                leader_id=response.leader_id,
                error=response.error,
                message=response.message,
                voters=[encode_voter(voter) for voter in response.voters.voters],
                leader_address=address,
            )


def decode_vote_response(message: pb.VoteResponse) -> m.VoteResponse:
    return m.VoteResponse(
        epoch=message.epoch,
        leader_id=message.leader_id,
        is_granted=message.is_granted,
        error=_error_of(message.error),
        reason=message.reason,
    )


def decode_quorum_epoch_response(message: pb.QuorumEpochResponse) -> m.QuorumEpochResponse:
    return m.QuorumEpochResponse(
        epoch=message.epoch, leader_id=message.leader_id, error=_error_of(message.error)
    )


def decode_fetch_response(message: pb.FetchResponse) -> m.FetchResponse:
    """Raises WireError for records that are damaged or cut."""
    diverging = None
    if message.is_diverging:
        diverging = OffsetAndEpoch(message.diverging_end_offset, message.diverging_epoch)
    snapshot = None
    if message.has_snapshot:
        snapshot = OffsetAndEpoch(message.snapshot_end_offset, message.snapshot_epoch)
    return m.FetchResponse(
        epoch=message.epoch,
        leader_id=message.leader_id,
        error=_error_of(message.error),
        high_watermark=message.high_watermark,
        diverging=diverging,
        snapshot=snapshot,
        spans=fetched_spans(message.records),
        records=message.records,
    )


def decode_fetch_snapshot_response(message: pb.FetchSnapshotResponse) -> m.FetchSnapshotResponse:
    return m.FetchSnapshotResponse(
        epoch=message.epoch,
        leader_id=message.leader_id,
        error=_error_of(message.error),
        position=message.position,
        size=message.size,
        data=message.data,
    )


def decode_voter_change_response(message: pb.VoterChangeResponse) -> m.VoterChangeResponse:
    """Raises WireError for a set that names a voter twice."""
    return m.VoterChangeResponse(
        epoch=message.epoch,
        leader_id=message.leader_id,
        error=_error_of(message.error),
        message=message.message,
        voters=parsed_set([decode_voter(voter) for voter in message.voters]),
    )


def encode_voter(voter: Voter) -> pb.Voter:
    address = pb.Address(host=voter.host, port=voter.port)
    return pb.Voter(node_id=voter.node_id, directory_id=voter.directory_id, address=address)


def decode_voter(message: pb.Voter) -> Voter:
    return Voter(
        message.node_id,
        _directory(message.directory_id),
        message.address.host,
        message.address.port,
    )


def decode_address(message: Any, field: str = "address") -> Address | None:
    """The address in a field of a message, None if it is not set."""
    if not message.HasField(field):
        return None
    address = getattr(message, field)
    return address.host, address.port


def _address(address: Address | None) -> pb.Address | None:
    return None if address is None else pb.Address(host=address[0], port=address[1])


def _directory(value: bytes) -> bytes:
    return value if len(value) == len(UUID_ZERO) else UUID_ZERO


def _error_of(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError as error:
        raise WireError(f"error code {code} is not known") from error
