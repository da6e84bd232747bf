from kvorum.rpc import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BrokerIds(_message.Message):
    __slots__ = ("broker_ids",)
    BROKER_IDS_FIELD_NUMBER: _ClassVar[int]
    broker_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, broker_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class ConfigEntry(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class NewTopic(_message.Message):
    __slots__ = ("name", "num_partitions", "replication_factor", "assignments", "configs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    num_partitions: int
    replication_factor: int
    assignments: _containers.RepeatedCompositeFieldContainer[BrokerIds]
    configs: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
    def __init__(self, name: _Optional[str] = ..., num_partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., assignments: _Optional[_Iterable[_Union[BrokerIds, _Mapping]]] = ..., configs: _Optional[_Iterable[_Union[ConfigEntry, _Mapping]]] = ...) -> None: ...

class CreateTopicsRequest(_message.Message):
    __slots__ = ("topics", "validate_only")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[NewTopic]
    validate_only: bool
    def __init__(self, topics: _Optional[_Iterable[_Union[NewTopic, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class CreatedTopic(_message.Message):
    __slots__ = ("name", "error", "message", "topic_id", "num_partitions", "replication_factor")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    name: str
    error: int
    message: str
    topic_id: bytes
    num_partitions: int
    replication_factor: int
    def __init__(self, name: _Optional[str] = ..., error: _Optional[int] = ..., message: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., num_partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ...) -> None: ...

class CreateTopicsReply(_message.Message):
    __slots__ = ("status", "leader_id", "topics", "end_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    topics: _containers.RepeatedCompositeFieldContainer[CreatedTopic]
    end_offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[CreatedTopic, _Mapping]]] = ..., end_offset: _Optional[int] = ...) -> None: ...

class TopicReference(_message.Message):
    __slots__ = ("name", "topic_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class DeleteTopicsRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicReference]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicReference, _Mapping]]] = ...) -> None: ...

class DeletedTopic(_message.Message):
    __slots__ = ("name", "topic_id", "error", "message")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    error: int
    message: str
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class DeleteTopicsReply(_message.Message):
    __slots__ = ("status", "leader_id", "topics", "end_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    topics: _containers.RepeatedCompositeFieldContainer[DeletedTopic]
    end_offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[DeletedTopic, _Mapping]]] = ..., end_offset: _Optional[int] = ...) -> None: ...

class Assignments(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[BrokerIds]
    def __init__(self, partitions: _Optional[_Iterable[_Union[BrokerIds, _Mapping]]] = ...) -> None: ...

class NewPartitions(_message.Message):
    __slots__ = ("name", "count", "assignments")
    NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    count: int
    assignments: Assignments
    def __init__(self, name: _Optional[str] = ..., count: _Optional[int] = ..., assignments: _Optional[_Union[Assignments, _Mapping]] = ...) -> None: ...

class CreatePartitionsRequest(_message.Message):
    __slots__ = ("topics", "validate_only")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[NewPartitions]
    validate_only: bool
    def __init__(self, topics: _Optional[_Iterable[_Union[NewPartitions, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class CreatedPartitions(_message.Message):
    __slots__ = ("name", "error", "message")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    name: str
    error: int
    message: str
    def __init__(self, name: _Optional[str] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class CreatePartitionsReply(_message.Message):
    __slots__ = ("status", "leader_id", "topics", "end_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    topics: _containers.RepeatedCompositeFieldContainer[CreatedPartitions]
    end_offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[CreatedPartitions, _Mapping]]] = ..., end_offset: _Optional[int] = ...) -> None: ...

class Reassignment(_message.Message):
    __slots__ = ("topic", "partition_id", "replicas")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_id: int
    replicas: BrokerIds
    def __init__(self, topic: _Optional[str] = ..., partition_id: _Optional[int] = ..., replicas: _Optional[_Union[BrokerIds, _Mapping]] = ...) -> None: ...

class AlterReassignmentsRequest(_message.Message):
    __slots__ = ("reassignments", "allow_replication_factor_change")
    REASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    ALLOW_REPLICATION_FACTOR_CHANGE_FIELD_NUMBER: _ClassVar[int]
    reassignments: _containers.RepeatedCompositeFieldContainer[Reassignment]
    allow_replication_factor_change: bool
    def __init__(self, reassignments: _Optional[_Iterable[_Union[Reassignment, _Mapping]]] = ..., allow_replication_factor_change: bool = ...) -> None: ...

class ReassignedPartition(_message.Message):
    __slots__ = ("topic", "partition_id", "error", "message")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_id: int
    error: int
    message: str
    def __init__(self, topic: _Optional[str] = ..., partition_id: _Optional[int] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class AlterReassignmentsReply(_message.Message):
    __slots__ = ("status", "leader_id", "partitions", "end_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    partitions: _containers.RepeatedCompositeFieldContainer[ReassignedPartition]
    end_offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[ReassignedPartition, _Mapping]]] = ..., end_offset: _Optional[int] = ...) -> None: ...

class TopicPartition(_message.Message):
    __slots__ = ("topic", "partition_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_id: int
    def __init__(self, topic: _Optional[str] = ..., partition_id: _Optional[int] = ...) -> None: ...

class TopicPartitions(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[TopicPartition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[TopicPartition, _Mapping]]] = ...) -> None: ...

class ListReassignmentsRequest(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: TopicPartitions
    def __init__(self, partitions: _Optional[_Union[TopicPartitions, _Mapping]] = ...) -> None: ...

class OngoingReassignment(_message.Message):
    __slots__ = ("topic", "partition_id", "replicas", "adding_replicas", "removing_replicas")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ADDING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REMOVING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_id: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    adding_replicas: _containers.RepeatedScalarFieldContainer[int]
    removing_replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partition_id: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., adding_replicas: _Optional[_Iterable[int]] = ..., removing_replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class ListReassignmentsReply(_message.Message):
    __slots__ = ("status", "leader_id", "reassignments")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    REASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    reassignments: _containers.RepeatedCompositeFieldContainer[OngoingReassignment]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., reassignments: _Optional[_Iterable[_Union[OngoingReassignment, _Mapping]]] = ...) -> None: ...

class ElectLeadersRequest(_message.Message):
    __slots__ = ("partitions", "election")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ELECTION_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[TopicPartition]
    election: int
    def __init__(self, partitions: _Optional[_Iterable[_Union[TopicPartition, _Mapping]]] = ..., election: _Optional[int] = ...) -> None: ...

class ElectedLeader(_message.Message):
    __slots__ = ("topic", "partition_id", "error", "message")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_id: int
    error: int
    message: str
    def __init__(self, topic: _Optional[str] = ..., partition_id: _Optional[int] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class ElectLeadersReply(_message.Message):
    __slots__ = ("status", "leader_id", "leaders", "end_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    leaders: _containers.RepeatedCompositeFieldContainer[ElectedLeader]
    end_offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., leaders: _Optional[_Iterable[_Union[ElectedLeader, _Mapping]]] = ..., end_offset: _Optional[int] = ...) -> None: ...

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

class AclCreation(_message.Message):
    __slots__ = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int
    def __init__(self, resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., pattern_type: _Optional[int] = ..., principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[int] = ..., permission: _Optional[int] = ...) -> None: ...

class CreateAclsRequest(_message.Message):
    __slots__ = ("creations",)
    CREATIONS_FIELD_NUMBER: _ClassVar[int]
    creations: _containers.RepeatedCompositeFieldContainer[AclCreation]
    def __init__(self, creations: _Optional[_Iterable[_Union[AclCreation, _Mapping]]] = ...) -> None: ...

class CreatedAcl(_message.Message):
    __slots__ = ("error", "message")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class CreateAclsReply(_message.Message):
    __slots__ = ("status", "leader_id", "acls", "end_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    ACLS_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    acls: _containers.RepeatedCompositeFieldContainer[CreatedAcl]
    end_offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., acls: _Optional[_Iterable[_Union[CreatedAcl, _Mapping]]] = ..., end_offset: _Optional[int] = ...) -> None: ...

class AclSelection(_message.Message):
    __slots__ = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int
    def __init__(self, resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., pattern_type: _Optional[int] = ..., principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[int] = ..., permission: _Optional[int] = ...) -> None: ...

class DeleteAclsRequest(_message.Message):
    __slots__ = ("filters",)
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    filters: _containers.RepeatedCompositeFieldContainer[AclSelection]
    def __init__(self, filters: _Optional[_Iterable[_Union[AclSelection, _Mapping]]] = ...) -> None: ...

class Acl(_message.Message):
    __slots__ = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int
    def __init__(self, resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., pattern_type: _Optional[int] = ..., principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[int] = ..., permission: _Optional[int] = ...) -> None: ...

class DeletedAcls(_message.Message):
    __slots__ = ("error", "message", "acls")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ACLS_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    acls: _containers.RepeatedCompositeFieldContainer[Acl]
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., acls: _Optional[_Iterable[_Union[Acl, _Mapping]]] = ...) -> None: ...

class DeleteAclsReply(_message.Message):
    __slots__ = ("status", "leader_id", "results", "end_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    results: _containers.RepeatedCompositeFieldContainer[DeletedAcls]
    end_offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., results: _Optional[_Iterable[_Union[DeletedAcls, _Mapping]]] = ..., end_offset: _Optional[int] = ...) -> None: ...

class CreateDelegationTokenRequest(_message.Message):
    __slots__ = ("requester", "owner", "renewers", "max_lifetime_ms")
    REQUESTER_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    RENEWERS_FIELD_NUMBER: _ClassVar[int]
    MAX_LIFETIME_MS_FIELD_NUMBER: _ClassVar[int]
    requester: str
    owner: str
    renewers: _containers.RepeatedScalarFieldContainer[str]
    max_lifetime_ms: int
    def __init__(self, requester: _Optional[str] = ..., owner: _Optional[str] = ..., renewers: _Optional[_Iterable[str]] = ..., max_lifetime_ms: _Optional[int] = ...) -> None: ...

class CreateDelegationTokenReply(_message.Message):
    __slots__ = ("status", "leader_id", "token_id", "issue_timestamp_ms", "expiration_timestamp_ms", "max_timestamp_ms", "end_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    ISSUE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRATION_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    token_id: str
    issue_timestamp_ms: int
    expiration_timestamp_ms: int
    max_timestamp_ms: int
    end_offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., token_id: _Optional[str] = ..., issue_timestamp_ms: _Optional[int] = ..., expiration_timestamp_ms: _Optional[int] = ..., max_timestamp_ms: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class RenewDelegationTokenRequest(_message.Message):
    __slots__ = ("requester", "fingerprint", "renew_period_ms")
    REQUESTER_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    RENEW_PERIOD_MS_FIELD_NUMBER: _ClassVar[int]
    requester: str
    fingerprint: bytes
    renew_period_ms: int
    def __init__(self, requester: _Optional[str] = ..., fingerprint: _Optional[bytes] = ..., renew_period_ms: _Optional[int] = ...) -> None: ...

class RenewDelegationTokenReply(_message.Message):
    __slots__ = ("status", "leader_id", "expiration_timestamp_ms", "end_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRATION_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    expiration_timestamp_ms: int
    end_offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., expiration_timestamp_ms: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class ExpireDelegationTokenRequest(_message.Message):
    __slots__ = ("requester", "fingerprint", "expiry_period_ms")
    REQUESTER_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    EXPIRY_PERIOD_MS_FIELD_NUMBER: _ClassVar[int]
    requester: str
    fingerprint: bytes
    expiry_period_ms: int
    def __init__(self, requester: _Optional[str] = ..., fingerprint: _Optional[bytes] = ..., expiry_period_ms: _Optional[int] = ...) -> None: ...

class ExpireDelegationTokenReply(_message.Message):
    __slots__ = ("status", "leader_id", "expiration_timestamp_ms", "end_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRATION_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    expiration_timestamp_ms: int
    end_offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., expiration_timestamp_ms: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

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

class UnregisterBrokerRequest(_message.Message):
    __slots__ = ("broker_id",)
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    def __init__(self, broker_id: _Optional[int] = ...) -> None: ...

class UnregisterBrokerReply(_message.Message):
    __slots__ = ("status", "leader_id", "end_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    end_offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class UnregisterControllerRequest(_message.Message):
    __slots__ = ("controller_id",)
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    controller_id: int
    def __init__(self, controller_id: _Optional[int] = ...) -> None: ...

class UnregisterControllerReply(_message.Message):
    __slots__ = ("status", "leader_id", "end_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    leader_id: int
    end_offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., leader_id: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class DescribeQuorumRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class QuorumReplica(_message.Message):
    __slots__ = ("node_id", "log_end_offset", "last_fetch_timestamp_ms", "last_caught_up_timestamp_ms", "directory_id", "address", "clock_ahead_ms")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_FETCH_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_CAUGHT_UP_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_AHEAD_MS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    log_end_offset: int
    last_fetch_timestamp_ms: int
    last_caught_up_timestamp_ms: int
    directory_id: bytes
    address: str
    clock_ahead_ms: int
    def __init__(self, node_id: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., last_fetch_timestamp_ms: _Optional[int] = ..., last_caught_up_timestamp_ms: _Optional[int] = ..., directory_id: _Optional[bytes] = ..., address: _Optional[str] = ..., clock_ahead_ms: _Optional[int] = ...) -> None: ...

class QuorumNode(_message.Message):
    __slots__ = ("node_id", "host", "port")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    host: str
    port: int
    def __init__(self, node_id: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class DescribeQuorumReply(_message.Message):
    __slots__ = ("status", "cluster_id", "node_id", "leader_id", "leader_epoch", "high_watermark", "role", "voters", "observers", "nodes", "leaderless_ms", "directory_id", "log_start_offset", "log_end_offset", "epochs")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    OBSERVERS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    LEADERLESS_MS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    cluster_id: str
    node_id: int
    leader_id: int
    leader_epoch: int
    high_watermark: int
    role: str
    voters: _containers.RepeatedCompositeFieldContainer[QuorumReplica]
    observers: _containers.RepeatedCompositeFieldContainer[QuorumReplica]
    nodes: _containers.RepeatedCompositeFieldContainer[QuorumNode]
    leaderless_ms: int
    directory_id: bytes
    log_start_offset: int
    log_end_offset: int
    epochs: _containers.RepeatedCompositeFieldContainer[EpochStart]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., cluster_id: _Optional[str] = ..., node_id: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., role: _Optional[str] = ..., voters: _Optional[_Iterable[_Union[QuorumReplica, _Mapping]]] = ..., observers: _Optional[_Iterable[_Union[QuorumReplica, _Mapping]]] = ..., nodes: _Optional[_Iterable[_Union[QuorumNode, _Mapping]]] = ..., leaderless_ms: _Optional[int] = ..., directory_id: _Optional[bytes] = ..., log_start_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., epochs: _Optional[_Iterable[_Union[EpochStart, _Mapping]]] = ...) -> None: ...

class EpochStart(_message.Message):
    __slots__ = ("epoch", "start_offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    start_offset: int
    def __init__(self, epoch: _Optional[int] = ..., start_offset: _Optional[int] = ...) -> None: ...

class ReadMetadataLogRequest(_message.Message):
    __slots__ = ("from_offset",)
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    from_offset: int
    def __init__(self, from_offset: _Optional[int] = ...) -> None: ...

class MetadataLogChunk(_message.Message):
    __slots__ = ("records", "high_watermark", "epoch", "snapshot")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    records: bytes
    high_watermark: int
    epoch: int
    snapshot: bytes
    def __init__(self, records: _Optional[bytes] = ..., high_watermark: _Optional[int] = ..., epoch: _Optional[int] = ..., snapshot: _Optional[bytes] = ...) -> None: ...

class ReadElectionTimelineRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TimelineLine(_message.Message):
    __slots__ = ("timestamp_ms", "text")
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    timestamp_ms: int
    text: str
    def __init__(self, timestamp_ms: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class ReadElectionTimelineReply(_message.Message):
    __slots__ = ("status", "node_id", "lines")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    node_id: int
    lines: _containers.RepeatedCompositeFieldContainer[TimelineLine]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., node_id: _Optional[int] = ..., lines: _Optional[_Iterable[_Union[TimelineLine, _Mapping]]] = ...) -> None: ...

class DescribeLoggersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LoggerLevel(_message.Message):
    __slots__ = ("name", "level")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    level: str
    def __init__(self, name: _Optional[str] = ..., level: _Optional[str] = ...) -> None: ...

class DescribeLoggersReply(_message.Message):
    __slots__ = ("status", "node_id", "loggers")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    LOGGERS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    node_id: int
    loggers: _containers.RepeatedCompositeFieldContainer[LoggerLevel]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., node_id: _Optional[int] = ..., loggers: _Optional[_Iterable[_Union[LoggerLevel, _Mapping]]] = ...) -> None: ...

class AlterLoggersRequest(_message.Message):
    __slots__ = ("operations", "validate_only")
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    operations: _containers.RepeatedCompositeFieldContainer[ConfigOperation]
    validate_only: bool
    def __init__(self, operations: _Optional[_Iterable[_Union[ConfigOperation, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class AlterLoggersReply(_message.Message):
    __slots__ = ("status", "node_id")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    node_id: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., node_id: _Optional[int] = ...) -> None: ...

class ReadFlightRecordRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FlightRecordChunk(_message.Message):
    __slots__ = ("lines",)
    LINES_FIELD_NUMBER: _ClassVar[int]
    lines: bytes
    def __init__(self, lines: _Optional[bytes] = ...) -> None: ...
