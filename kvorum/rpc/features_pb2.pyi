from kvorum.rpc import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FeatureUpdate(_message.Message):
    __slots__ = ("name", "max_level", "kind")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MAX_LEVEL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    name: str
    max_level: int
    kind: int
    def __init__(self, name: _Optional[str] = ..., max_level: _Optional[int] = ..., kind: _Optional[int] = ...) -> None: ...

class UpdateFeaturesRequest(_message.Message):
    __slots__ = ("updates", "validate_only")
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    updates: _containers.RepeatedCompositeFieldContainer[FeatureUpdate]
    validate_only: bool
    def __init__(self, updates: _Optional[_Iterable[_Union[FeatureUpdate, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class UpdatedFeature(_message.Message):
    __slots__ = ("name", "error", "message")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    name: str
    error: int
    message: str
    def __init__(self, name: _Optional[str] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class UpdateFeaturesReply(_message.Message):
    __slots__ = ("status", "leader_id", "features", "end_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    features: _containers.RepeatedCompositeFieldContainer[UpdatedFeature]
    end_offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., features: _Optional[_Iterable[_Union[UpdatedFeature, _Mapping]]] = ..., end_offset: _Optional[int] = ...) -> None: ...

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
