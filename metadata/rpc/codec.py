"""Between the controller's requests and replies and their protobuf form. No rule lives here."""

from __future__ import annotations

from collections.abc import Iterable

from kvorum.metadata.image.features import FeatureRange
from kvorum.metadata.image.records import Endpoint
from kvorum.metadata.requests import controller_requests as r
from kvorum.rpc import admin_pb2 as admin_pb
from kvorum.rpc import common_pb2 as common_pb
from kvorum.rpc import controller_pb2 as pb
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.ids import UUID_ZERO
from kvorum.storage.format.batch import iter_headers


def encode_status(rejected: Rejected | None) -> common_pb.Status:
    if rejected is None:
        return common_pb.Status()
    return common_pb.Status(code=rejected.code, message=rejected.message)


def decode_status(status: common_pb.Status) -> Rejected | None:
    """The refusal, or None for success."""
    if status.code == ErrorCode.NONE:
        return None
    return Rejected(ErrorCode(status.code), status.message)


def encode_endpoints(endpoints: Iterable[Endpoint]) -> list[common_pb.Endpoint]:
    return [
        common_pb.Endpoint(
            name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol
        )
        for e in endpoints
    ]


def decode_endpoints(messages: Iterable[common_pb.Endpoint]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(m.name, m.host, m.port, m.security_protocol) for m in messages)


def encode_features(features: Iterable[FeatureRange]) -> list[common_pb.FeatureRange]:
    return [
        common_pb.FeatureRange(name=f.name, min_level=f.min_level, max_level=f.max_level)
        for f in features
    ]


def decode_features(messages: Iterable[common_pb.FeatureRange]) -> tuple[FeatureRange, ...]:
    return tuple(FeatureRange(m.name, m.min_level, m.max_level) for m in messages)


def encode_register(request: r.RegisterBrokerRequest) -> pb.RegisterBrokerRequest:
    return pb.RegisterBrokerRequest(
        broker_id=request.broker_id,
        cluster_id=request.cluster_id,
        incarnation_id=request.incarnation_id,
        endpoints=encode_endpoints(request.endpoints),
        rack=request.rack,
        broker_epoch_before=request.broker_epoch_before,
        features=encode_features(request.features),
        log_dirs=request.log_dirs,
    )


def decode_register(message: pb.RegisterBrokerRequest) -> r.RegisterBrokerRequest:
    return r.RegisterBrokerRequest(
        broker_id=message.broker_id,
        cluster_id=message.cluster_id,
        incarnation_id=message.incarnation_id,
        endpoints=decode_endpoints(message.endpoints),
        rack=message.rack if message.HasField("rack") else None,
        broker_epoch_before=message.broker_epoch_before,
        features=decode_features(message.features),
        log_dirs=tuple(message.log_dirs),
    )


def encode_heartbeat(request: r.Heartbeat) -> pb.HeartbeatRequest:
    return pb.HeartbeatRequest(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        metadata_offset=request.metadata_offset,
        want_fence=request.want_fence,
        want_shutdown=request.want_shutdown,
        offline_log_dirs=request.offline_log_dirs,
    )


def decode_heartbeat(message: pb.HeartbeatRequest) -> r.Heartbeat:
    return r.Heartbeat(
        broker_id=message.broker_id,
        broker_epoch=message.broker_epoch,
        metadata_offset=message.metadata_offset,
        want_fence=message.want_fence,
        want_shutdown=message.want_shutdown,
        offline_log_dirs=tuple(message.offline_log_dirs),
    )


def encode_alter_partition(request: r.AlterPartition) -> pb.AlterPartitionRequest:
    return pb.AlterPartitionRequest(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        proposals=[
            pb.IsrProposal(
                topic_id=p.topic_id,
                partition_id=p.partition_id,
                leader_epoch=p.leader_epoch,
                partition_epoch=p.partition_epoch,
                new_isr=[pb.IsrMember(broker_id=b, broker_epoch=e) for b, e in p.new_isr],
            )
            for p in request.proposals
        ],
    )


def decode_alter_partition(message: pb.AlterPartitionRequest) -> r.AlterPartition:
    return r.AlterPartition(
        broker_id=message.broker_id,
        broker_epoch=message.broker_epoch,
        proposals=tuple(
            r.IsrProposal(
                topic_id=p.topic_id,
                partition_id=p.partition_id,
                leader_epoch=p.leader_epoch,
                partition_epoch=p.partition_epoch,
                new_isr=tuple((m.broker_id, m.broker_epoch) for m in p.new_isr),
            )
            for p in message.proposals
        ),
    )


def encode_altered(partitions: Iterable[r.AlteredPartition]) -> list[pb.AlteredPartition]:
    return [
        pb.AlteredPartition(
            topic_id=p.topic_id,
            partition_id=p.partition_id,
            error=p.error,
            leader=p.leader,
            leader_epoch=p.leader_epoch,
            isr=p.isr,
            partition_epoch=p.partition_epoch,
        )
        for p in partitions
    ]


def decode_altered(messages: Iterable[pb.AlteredPartition]) -> tuple[r.AlteredPartition, ...]:
    return tuple(
        r.AlteredPartition(
            topic_id=p.topic_id,
            partition_id=p.partition_id,
            error=ErrorCode(p.error),
            leader=p.leader,
            leader_epoch=p.leader_epoch,
            isr=tuple(p.isr),
            partition_epoch=p.partition_epoch,
        )
        for p in messages
    )


def encode_create_topics(request: r.CreateTopics) -> admin_pb.CreateTopicsRequest:
    return admin_pb.CreateTopicsRequest(
        topics=[
            admin_pb.NewTopic(
                name=t.name,
                num_partitions=t.num_partitions,
                replication_factor=t.replication_factor,
                assignments=[
                    admin_pb.ReplicaAssignment(broker_ids=replicas) for replicas in t.assignments
                ],
                configs=[admin_pb.ConfigEntry(name=n, value=v) for n, v in t.configs],
            )
            for t in request.topics
        ],
        validate_only=request.validate_only,
    )


def decode_create_topics(message: admin_pb.CreateTopicsRequest) -> r.CreateTopics:
    return r.CreateTopics(
        topics=tuple(
            r.NewTopic(
                name=t.name,
                num_partitions=t.num_partitions,
                replication_factor=t.replication_factor,
                assignments=tuple(tuple(a.broker_ids) for a in t.assignments),
                configs=tuple((c.name, c.value) for c in t.configs),
            )
            for t in message.topics
        ),
        validate_only=message.validate_only,
    )


def encode_created(topics: Iterable[r.CreatedTopic]) -> list[admin_pb.CreatedTopic]:
    return [
        admin_pb.CreatedTopic(
            name=t.name,
            error=t.error,
            message=t.message,
            topic_id=t.topic_id,
            num_partitions=t.num_partitions,
            replication_factor=t.replication_factor,
        )
        for t in topics
    ]


def decode_created(messages: Iterable[admin_pb.CreatedTopic]) -> tuple[r.CreatedTopic, ...]:
    return tuple(
        r.CreatedTopic(
            name=t.name,
            error=ErrorCode(t.error),
            message=t.message,
            topic_id=t.topic_id,
            num_partitions=t.num_partitions,
            replication_factor=t.replication_factor,
        )
        for t in messages
    )


def encode_delete_topics(request: r.DeleteTopics) -> admin_pb.DeleteTopicsRequest:
    return admin_pb.DeleteTopicsRequest(
        topics=[admin_pb.TopicReference(name=t.name, topic_id=t.topic_id) for t in request.topics]
    )


def decode_delete_topics(message: admin_pb.DeleteTopicsRequest) -> r.DeleteTopics:
    return r.DeleteTopics(
        topics=tuple(
            r.TopicReference(name=t.name, topic_id=t.topic_id or UUID_ZERO) for t in message.topics
        )
    )


def encode_deleted(topics: Iterable[r.DeletedTopic]) -> list[admin_pb.DeletedTopic]:
    return [
        admin_pb.DeletedTopic(name=t.name, topic_id=t.topic_id, error=t.error, message=t.message)
        for t in topics
    ]


def decode_deleted(messages: Iterable[admin_pb.DeletedTopic]) -> tuple[r.DeletedTopic, ...]:
    return tuple(
        r.DeletedTopic(
            name=t.name, topic_id=t.topic_id, error=ErrorCode(t.error), message=t.message
        )
        for t in messages
    )


def encode_elect_leaders(request: r.ElectLeaders) -> admin_pb.ElectLeadersRequest:
    return admin_pb.ElectLeadersRequest(
        partitions=[
            admin_pb.TopicPartition(topic=topic, partition_id=partition_id)
            for topic, partition_id in request.partitions
        ],
        election_type=request.election,
    )


def decode_elect_leaders(message: admin_pb.ElectLeadersRequest) -> r.ElectLeaders:
    return r.ElectLeaders(
        partitions=tuple((p.topic, p.partition_id) for p in message.partitions),
        election=r.ElectionType(message.election_type),
    )


def encode_elected(leaders: Iterable[r.ElectedLeader]) -> list[admin_pb.ElectedLeader]:
    return [
        admin_pb.ElectedLeader(
            topic=e.topic, partition_id=e.partition_id, error=e.error, message=e.message
        )
        for e in leaders
    ]


def decode_elected(messages: Iterable[admin_pb.ElectedLeader]) -> tuple[r.ElectedLeader, ...]:
    return tuple(
        r.ElectedLeader(
            topic=e.topic,
            partition_id=e.partition_id,
            error=ErrorCode(e.error),
            message=e.message,
        )
        for e in messages
    )


def end_offset_of(records: bytes) -> int:
    """End offset (exclusive) of a non-empty run of whole batches."""
    end_offset = -1
    for _, header in iter_headers(records):
        end_offset = header.end_offset
    return end_offset
