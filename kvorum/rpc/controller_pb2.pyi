from kvorum.rpc import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RegisterBrokerRequest(_message.Message):
    __slots__ = ("broker_id", "cluster_id", "incarnation_id", "endpoints", "rack", "broker_epoch_before", "features", "log_dirs", "metadata_offset", "metadata_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_BEFORE_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    METADATA_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    endpoints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Endpoint]
    rack: str
    broker_epoch_before: int
    features: _containers.RepeatedCompositeFieldContainer[_common_pb2.FeatureRange]
    log_dirs: _containers.RepeatedScalarFieldContainer[bytes]
    metadata_offset: int
    metadata_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., cluster_id: _Optional[str] = ..., incarnation_id: _Optional[bytes] = ..., endpoints: _Optional[_Iterable[_Union[_common_pb2.Endpoint, _Mapping]]] = ..., rack: _Optional[str] = ..., broker_epoch_before: _Optional[int] = ..., features: _Optional[_Iterable[_Union[_common_pb2.FeatureRange, _Mapping]]] = ..., log_dirs: _Optional[_Iterable[bytes]] = ..., metadata_offset: _Optional[int] = ..., metadata_epoch: _Optional[int] = ...) -> None: ...

class RegisterBrokerReply(_message.Message):
    __slots__ = ("status", "leader_id", "broker_epoch")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    broker_epoch: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "metadata_offset", "want_fence", "want_shutdown", "offline_log_dirs")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WANT_FENCE_FIELD_NUMBER: _ClassVar[int]
    WANT_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool
    want_shutdown: bool
    offline_log_dirs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., metadata_offset: _Optional[int] = ..., want_fence: bool = ..., want_shutdown: bool = ..., offline_log_dirs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ("status", "leader_id", "is_caught_up", "is_fenced", "should_shut_down")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    IS_CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    IS_FENCED_FIELD_NUMBER: _ClassVar[int]
    SHOULD_SHUT_DOWN_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., is_caught_up: bool = ..., is_fenced: bool = ..., should_shut_down: bool = ...) -> None: ...

class IsrMember(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class IsrProposal(_message.Message):
    __slots__ = ("topic_id", "partition_id", "leader_epoch", "partition_epoch", "new_isr")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEW_ISR_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    leader_epoch: int
    partition_epoch: int
    new_isr: _containers.RepeatedCompositeFieldContainer[IsrMember]
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., new_isr: _Optional[_Iterable[_Union[IsrMember, _Mapping]]] = ...) -> None: ...

class AlterPartitionRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "proposals")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PROPOSALS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    proposals: _containers.RepeatedCompositeFieldContainer[IsrProposal]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., proposals: _Optional[_Iterable[_Union[IsrProposal, _Mapping]]] = ...) -> None: ...

class AlteredPartition(_message.Message):
    __slots__ = ("topic_id", "partition_id", "error", "leader", "leader_epoch", "isr", "partition_epoch")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    error: int
    leader: int
    leader_epoch: int
    isr: _containers.RepeatedScalarFieldContainer[int]
    partition_epoch: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., error: _Optional[int] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., isr: _Optional[_Iterable[int]] = ..., partition_epoch: _Optional[int] = ...) -> None: ...

class AlterPartitionReply(_message.Message):
    __slots__ = ("status", "leader_id", "partitions")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    partitions: _containers.RepeatedCompositeFieldContainer[AlteredPartition]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[AlteredPartition, _Mapping]]] = ...) -> None: ...

class AllocateProducerIdsRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class AllocateProducerIdsReply(_message.Message):
    __slots__ = ("status", "leader_id", "start", "length")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    start: int
    length: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., start: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class ReplicasOfTopic(_message.Message):
    __slots__ = ("topic_id", "partition_ids")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_IDS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class DirectoryReplicas(_message.Message):
    __slots__ = ("directory_id", "topics")
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    directory_id: bytes
    topics: _containers.RepeatedCompositeFieldContainer[ReplicasOfTopic]
    def __init__(self, directory_id: _Optional[bytes] = ..., topics: _Optional[_Iterable[_Union[ReplicasOfTopic, _Mapping]]] = ...) -> None: ...

class AssignReplicasRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "directories")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    directories: _containers.RepeatedCompositeFieldContainer[DirectoryReplicas]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., directories: _Optional[_Iterable[_Union[DirectoryReplicas, _Mapping]]] = ...) -> None: ...

class RefusedReplica(_message.Message):
    __slots__ = ("topic_id", "partition_id", "error")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    error: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., error: _Optional[int] = ...) -> None: ...

class AssignReplicasReply(_message.Message):
    __slots__ = ("status", "leader_id", "refused")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    refused: _containers.RepeatedCompositeFieldContainer[RefusedReplica]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[RefusedReplica, _Mapping]]] = ...) -> None: ...

class RegisterControllerRequest(_message.Message):
    __slots__ = ("controller_id", "cluster_id", "incarnation_id", "endpoints", "features")
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    controller_id: int
    cluster_id: str
    incarnation_id: bytes
    endpoints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Endpoint]
    features: _containers.RepeatedCompositeFieldContainer[_common_pb2.FeatureRange]
    def __init__(self, controller_id: _Optional[int] = ..., cluster_id: _Optional[str] = ..., incarnation_id: _Optional[bytes] = ..., endpoints: _Optional[_Iterable[_Union[_common_pb2.Endpoint, _Mapping]]] = ..., features: _Optional[_Iterable[_Union[_common_pb2.FeatureRange, _Mapping]]] = ...) -> None: ...

class RegisterControllerReply(_message.Message):
    __slots__ = ("status", "leader_id")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ...) -> None: ...
