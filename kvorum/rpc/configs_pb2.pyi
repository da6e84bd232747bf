from kvorum.rpc import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ConfigOperation(_message.Message):
    __slots__ = ("name", "kind", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: int
    value: str
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...

class ConfigAlteration(_message.Message):
    __slots__ = ("resource_type", "resource_name", "operations")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    resource_name: str
    operations: _containers.RepeatedCompositeFieldContainer[ConfigOperation]
    def __init__(self, resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., operations: _Optional[_Iterable[_Union[ConfigOperation, _Mapping]]] = ...) -> None: ...

class AlterConfigsRequest(_message.Message):
    __slots__ = ("resources", "is_replacement", "validate_only")
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    IS_REPLACEMENT_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[ConfigAlteration]
    is_replacement: bool
    validate_only: bool
    def __init__(self, resources: _Optional[_Iterable[_Union[ConfigAlteration, _Mapping]]] = ..., is_replacement: bool = ..., validate_only: bool = ...) -> None: ...

class AlteredConfigs(_message.Message):
    __slots__ = ("resource_type", "resource_name", "error", "message")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    resource_name: str
    error: int
    message: str
    def __init__(self, resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class AlterConfigsReply(_message.Message):
    __slots__ = ("status", "leader_id", "resources", "end_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    resources: _containers.RepeatedCompositeFieldContainer[AlteredConfigs]
    end_offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., resources: _Optional[_Iterable[_Union[AlteredConfigs, _Mapping]]] = ..., end_offset: _Optional[int] = ...) -> None: ...

class QuotaEntityPart(_message.Message):
    __slots__ = ("type", "name")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    type: str
    name: str
    def __init__(self, type: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class QuotaOperation(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: float
    def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class QuotaAlteration(_message.Message):
    __slots__ = ("entity", "operations")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    entity: _containers.RepeatedCompositeFieldContainer[QuotaEntityPart]
    operations: _containers.RepeatedCompositeFieldContainer[QuotaOperation]
    def __init__(self, entity: _Optional[_Iterable[_Union[QuotaEntityPart, _Mapping]]] = ..., operations: _Optional[_Iterable[_Union[QuotaOperation, _Mapping]]] = ...) -> None: ...

class AlterClientQuotasRequest(_message.Message):
    __slots__ = ("entries", "validate_only")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[QuotaAlteration]
    validate_only: bool
    def __init__(self, entries: _Optional[_Iterable[_Union[QuotaAlteration, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class AlteredQuota(_message.Message):
    __slots__ = ("entity", "error", "message")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    entity: _containers.RepeatedCompositeFieldContainer[QuotaEntityPart]
    error: int
    message: str
    def __init__(self, entity: _Optional[_Iterable[_Union[QuotaEntityPart, _Mapping]]] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class AlterClientQuotasReply(_message.Message):
    __slots__ = ("status", "leader_id", "entries", "end_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    entries: _containers.RepeatedCompositeFieldContainer[AlteredQuota]
    end_offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[AlteredQuota, _Mapping]]] = ..., end_offset: _Optional[int] = ...) -> None: ...

class ScramDeletion(_message.Message):
    __slots__ = ("user", "mechanism")
    USER_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    user: str
    mechanism: int
    def __init__(self, user: _Optional[str] = ..., mechanism: _Optional[int] = ...) -> None: ...

class ScramUpsertion(_message.Message):
    __slots__ = ("user", "mechanism", "iterations", "salt", "stored_key", "server_key")
    USER_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    STORED_KEY_FIELD_NUMBER: _ClassVar[int]
    SERVER_KEY_FIELD_NUMBER: _ClassVar[int]
    user: str
    mechanism: int
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    def __init__(self, user: _Optional[str] = ..., mechanism: _Optional[int] = ..., iterations: _Optional[int] = ..., salt: _Optional[bytes] = ..., stored_key: _Optional[bytes] = ..., server_key: _Optional[bytes] = ...) -> None: ...

class AlterScramCredentialsRequest(_message.Message):
    __slots__ = ("deletions", "upsertions")
    DELETIONS_FIELD_NUMBER: _ClassVar[int]
    UPSERTIONS_FIELD_NUMBER: _ClassVar[int]
    deletions: _containers.RepeatedCompositeFieldContainer[ScramDeletion]
    upsertions: _containers.RepeatedCompositeFieldContainer[ScramUpsertion]
    def __init__(self, deletions: _Optional[_Iterable[_Union[ScramDeletion, _Mapping]]] = ..., upsertions: _Optional[_Iterable[_Union[ScramUpsertion, _Mapping]]] = ...) -> None: ...

class AlteredScramUser(_message.Message):
    __slots__ = ("user", "error", "message")
    USER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    user: str
    error: int
    message: str
    def __init__(self, user: _Optional[str] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class AlterScramCredentialsReply(_message.Message):
    __slots__ = ("status", "leader_id", "users", "end_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    users: _containers.RepeatedCompositeFieldContainer[AlteredScramUser]
    end_offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., users: _Optional[_Iterable[_Union[AlteredScramUser, _Mapping]]] = ..., end_offset: _Optional[int] = ...) -> None: ...
