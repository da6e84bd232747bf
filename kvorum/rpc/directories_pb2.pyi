from kvorum.rpc import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TopicPartitions(_message.Message):
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
    topics: _containers.RepeatedCompositeFieldContainer[TopicPartitions]
    def __init__(self, directory_id: _Optional[bytes] = ..., topics: _Optional[_Iterable[_Union[TopicPartitions, _Mapping]]] = ...) -> None: ...

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
