"""Between requests about partitions, with their replies, and protobuf. No rule lives here."""

from __future__ import annotations

from collections.abc import Iterable

from kvorum.metadata.requests import controller_requests as r
from kvorum.rpc import partitions_pb2 as pb
from kvorum.runtime.errors import ErrorCode


def encode_create_partitions(request: r.CreatePartitions) -> pb.CreatePartitionsRequest:
    return pb.CreatePartitionsRequest(
        topics=[
            pb.MorePartitions(
                name=t.name,
                count=t.count,
                assignments=[pb.BrokerIds(broker_ids=replicas) for replicas in t.assignments or ()],
                has_assignments=t.assignments is not None,
            )
            for t in request.topics
        ],
        validate_only=request.validate_only,
    )


def decode_create_partitions(message: pb.CreatePartitionsRequest) -> r.CreatePartitions:
    return r.CreatePartitions(
        topics=tuple(
            r.MorePartitions(
                name=t.name,
                count=t.count,
                assignments=(
                    tuple(tuple(a.broker_ids) for a in t.assignments) if t.has_assignments else None
                ),
            )
            for t in message.topics
        ),
        validate_only=message.validate_only,
    )


def encode_grown(topics: Iterable[r.GrownTopic]) -> list[pb.GrownTopic]:
    return [pb.GrownTopic(name=t.name, error=t.error, message=t.message) for t in topics]


def decode_grown(messages: Iterable[pb.GrownTopic]) -> tuple[r.GrownTopic, ...]:
    return tuple(
        r.GrownTopic(name=t.name, error=ErrorCode(t.error), message=t.message) for t in messages
    )


def encode_alter_reassignments(request: r.AlterReassignments) -> pb.AlterReassignmentsRequest:
    return pb.AlterReassignmentsRequest(
        reassignments=[
            pb.Reassignment(
                topic=wanted.topic,
                partition_id=wanted.partition_id,
                replicas=(
                    None if wanted.replicas is None else pb.BrokerIds(broker_ids=wanted.replicas)
                ),
            )
            for wanted in request.reassignments
        ],
        allow_replication_factor_change=request.allow_replication_factor_change,
    )


def decode_alter_reassignments(message: pb.AlterReassignmentsRequest) -> r.AlterReassignments:
    return r.AlterReassignments(
        reassignments=tuple(
            r.Reassignment(
                topic=m.topic,
                partition_id=m.partition_id,
                replicas=tuple(m.replicas.broker_ids) if m.HasField("replicas") else None,
            )
            for m in message.reassignments
        ),
        allow_replication_factor_change=message.allow_replication_factor_change,
    )


def encode_reassigned(
    partitions: Iterable[r.ReassignedPartition],
) -> list[pb.ReassignedPartition]:
    return [
        pb.ReassignedPartition(
            topic=p.topic, partition_id=p.partition_id, error=p.error, message=p.message
        )
        for p in partitions
    ]


def decode_reassigned(
    messages: Iterable[pb.ReassignedPartition],
) -> tuple[r.ReassignedPartition, ...]:
    return tuple(
        r.ReassignedPartition(
            topic=m.topic,
            partition_id=m.partition_id,
            error=ErrorCode(m.error),
            message=m.message,
        )
        for m in messages
    )


def encode_list_reassignments(request: r.ListReassignments) -> pb.ListReassignmentsRequest:
    return pb.ListReassignmentsRequest(
        is_all=request.partitions is None,
        partitions=[
            pb.PartitionReference(topic=topic, partition_id=partition_id)
            for topic, partition_id in request.partitions or ()
        ],
    )


def decode_list_reassignments(message: pb.ListReassignmentsRequest) -> r.ListReassignments:
    if message.is_all:
        return r.ListReassignments()
    return r.ListReassignments(
        partitions=tuple((p.topic, p.partition_id) for p in message.partitions)
    )


def encode_ongoing(
    reassignments: Iterable[r.OngoingReassignment],
) -> list[pb.OngoingReassignment]:
    return [
        pb.OngoingReassignment(
            topic=o.topic,
            partition_id=o.partition_id,
            replicas=o.replicas,
            adding_replicas=o.adding_replicas,
            removing_replicas=o.removing_replicas,
        )
        for o in reassignments
    ]


def decode_ongoing(
    messages: Iterable[pb.OngoingReassignment],
) -> tuple[r.OngoingReassignment, ...]:
    return tuple(
        r.OngoingReassignment(
            topic=m.topic,
            partition_id=m.partition_id,
            replicas=tuple(m.replicas),
            adding_replicas=tuple(m.adding_replicas),
            removing_replicas=tuple(m.removing_replicas),
        )
        for m in messages
    )
