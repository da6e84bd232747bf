from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Address(_message.Message):
    __slots__ = ("host", "port")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    def __init__(self, host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class Voter(_message.Message):
    __slots__ = ("node_id", "directory_id", "host", "port")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    directory_id: bytes
    host: str
    port: int
    def __init__(self, node_id: _Optional[int] = ..., directory_id: _Optional[bytes] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class OffsetAndEpoch(_message.Message):
    __slots__ = ("offset", "epoch")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    offset: int
    epoch: int
    def __init__(self, offset: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class VoteRequest(_message.Message):
    __slots__ = ("cluster_id", "epoch", "candidate_id", "voter_id", "last_epoch", "end_offset", "is_pre_vote", "candidate_directory_id", "voter_directory_id")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    IS_PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    epoch: int
    candidate_id: int
    voter_id: int
    last_epoch: int
    end_offset: int
    is_pre_vote: bool
    candidate_directory_id: bytes
    voter_directory_id: bytes
    def __init__(self, cluster_id: _Optional[str] = ..., epoch: _Optional[int] = ..., candidate_id: _Optional[int] = ..., voter_id: _Optional[int] = ..., last_epoch: _Optional[int] = ..., end_offset: _Optional[int] = ..., is_pre_vote: bool = ..., candidate_directory_id: _Optional[bytes] = ..., voter_directory_id: _Optional[bytes] = ...) -> None: ...

class VoteResponse(_message.Message):
    __slots__ = ("epoch", "leader_id", "is_granted", "error", "reason", "leader_address")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    IS_GRANTED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    leader_id: int
    is_granted: bool
    error: int
    reason: str
    leader_address: Address
    def __init__(self, epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., is_granted: bool = ..., error: _Optional[int] = ..., reason: _Optional[str] = ..., leader_address: _Optional[_Union[Address, _Mapping]] = ...) -> None: ...

class BeginQuorumEpochRequest(_message.Message):
    __slots__ = ("cluster_id", "epoch", "leader_id", "voter_id", "voter_directory_id", "leader_address")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    epoch: int
    leader_id: int
    voter_id: int
    voter_directory_id: bytes
    leader_address: Address
    def __init__(self, cluster_id: _Optional[str] = ..., epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., voter_id: _Optional[int] = ..., voter_directory_id: _Optional[bytes] = ..., leader_address: _Optional[_Union[Address, _Mapping]] = ...) -> None: ...

class EndQuorumEpochRequest(_message.Message):
    __slots__ = ("cluster_id", "epoch", "leader_id", "preferred_successors")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_SUCCESSORS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    epoch: int
    leader_id: int
    preferred_successors: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, cluster_id: _Optional[str] = ..., epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., preferred_successors: _Optional[_Iterable[int]] = ...) -> None: ...

class QuorumEpochResponse(_message.Message):
    __slots__ = ("epoch", "leader_id", "error", "leader_address")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    leader_id: int
    error: int
    leader_address: Address
    def __init__(self, epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., error: _Optional[int] = ..., leader_address: _Optional[_Union[Address, _Mapping]] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("cluster_id", "epoch", "replica_id", "fetch_offset", "last_fetched_epoch", "high_watermark", "correlation_id", "replica_directory_id", "address", "sent_at_ms")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    FETCH_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_FETCHED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SENT_AT_MS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    epoch: int
    replica_id: int
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int
    correlation_id: int
    replica_directory_id: bytes
    address: Address
    sent_at_ms: int
    def __init__(self, cluster_id: _Optional[str] = ..., epoch: _Optional[int] = ..., replica_id: _Optional[int] = ..., fetch_offset: _Optional[int] = ..., last_fetched_epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., correlation_id: _Optional[int] = ..., replica_directory_id: _Optional[bytes] = ..., address: _Optional[_Union[Address, _Mapping]] = ..., sent_at_ms: _Optional[int] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("epoch", "leader_id", "error", "high_watermark", "diverging", "snapshot", "records", "correlation_id", "leader_address")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    DIVERGING_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    leader_id: int
    error: int
    high_watermark: int
    diverging: OffsetAndEpoch
    snapshot: OffsetAndEpoch
    records: bytes
    correlation_id: int
    leader_address: Address
    def __init__(self, epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., error: _Optional[int] = ..., high_watermark: _Optional[int] = ..., diverging: _Optional[_Union[OffsetAndEpoch, _Mapping]] = ..., snapshot: _Optional[_Union[OffsetAndEpoch, _Mapping]] = ..., records: _Optional[bytes] = ..., correlation_id: _Optional[int] = ..., leader_address: _Optional[_Union[Address, _Mapping]] = ...) -> None: ...

class FetchSnapshotRequest(_message.Message):
    __slots__ = ("cluster_id", "epoch", "replica_id", "replica_directory_id", "snapshot", "position", "bytes_max")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    epoch: int
    replica_id: int
    replica_directory_id: bytes
    snapshot: OffsetAndEpoch
    position: int
    bytes_max: int
    def __init__(self, cluster_id: _Optional[str] = ..., epoch: _Optional[int] = ..., replica_id: _Optional[int] = ..., replica_directory_id: _Optional[bytes] = ..., snapshot: _Optional[_Union[OffsetAndEpoch, _Mapping]] = ..., position: _Optional[int] = ..., bytes_max: _Optional[int] = ...) -> None: ...

class FetchSnapshotResponse(_message.Message):
    __slots__ = ("epoch", "leader_id", "error", "position", "size", "data", "leader_address")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    leader_id: int
    error: int
    position: int
    size: int
    data: bytes
    leader_address: Address
    def __init__(self, epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., error: _Optional[int] = ..., position: _Optional[int] = ..., size: _Optional[int] = ..., data: _Optional[bytes] = ..., leader_address: _Optional[_Union[Address, _Mapping]] = ...) -> None: ...

class AddVoterRequest(_message.Message):
    __slots__ = ("cluster_id", "voter", "is_dry_run", "is_answered_early")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    IS_DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    IS_ANSWERED_EARLY_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    voter: Voter
    is_dry_run: bool
    is_answered_early: bool
    def __init__(self, cluster_id: _Optional[str] = ..., voter: _Optional[_Union[Voter, _Mapping]] = ..., is_dry_run: bool = ..., is_answered_early: bool = ...) -> None: ...

class RemoveVoterRequest(_message.Message):
    __slots__ = ("cluster_id", "node_id", "directory_id", "is_dry_run")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    IS_DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    node_id: int
    directory_id: bytes
    is_dry_run: bool
    def __init__(self, cluster_id: _Optional[str] = ..., node_id: _Optional[int] = ..., directory_id: _Optional[bytes] = ..., is_dry_run: bool = ...) -> None: ...

class UpdateVoterRequest(_message.Message):
    __slots__ = ("cluster_id", "epoch", "voter")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    epoch: int
    voter: Voter
    def __init__(self, cluster_id: _Optional[str] = ..., epoch: _Optional[int] = ..., voter: _Optional[_Union[Voter, _Mapping]] = ...) -> None: ...

class VoterChangeResponse(_message.Message):
    __slots__ = ("epoch", "leader_id", "error", "message", "voters", "leader_address")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    leader_id: int
    error: int
    message: str
    voters: _containers.RepeatedCompositeFieldContainer[Voter]
    leader_address: Address
    def __init__(self, epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., error: _Optional[int] = ..., message: _Optional[str] = ..., voters: _Optional[_Iterable[_Union[Voter, _Mapping]]] = ..., leader_address: _Optional[_Union[Address, _Mapping]] = ...) -> None: ...
