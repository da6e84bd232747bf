"""Between what brokers tell of their directories, with the replies, and protobuf. No rule here."""

from __future__ import annotations

from collections.abc import Iterable

from kvorum.metadata.requests.directory_requests import (
    AssignedReplica,
    AssignReplicas,
    ReplicaDirectory,
)
from kvorum.rpc import directories_pb2 as pb
from kvorum.runtime.errors import ErrorCode


def encode_assign(request: AssignReplicas) -> pb.AssignReplicasRequest:
    grouped: dict[bytes, dict[bytes, list[int]]] = {}
    for replica in request.replicas:
        topics = grouped.setdefault(replica.directory_id, {})
        topics.setdefault(replica.topic_id, []).append(replica.partition_id)
    return pb.AssignReplicasRequest(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        directories=[
            pb.DirectoryReplicas(
                directory_id=directory_id,
                topics=[
                    pb.TopicPartitions(topic_id=topic_id, partition_ids=partition_ids)
                    for topic_id, partition_ids in topics.items()
                ],
            )
            for directory_id, topics in grouped.items()
        ],
    )


def decode_assign(message: pb.AssignReplicasRequest) -> AssignReplicas:
    return AssignReplicas(
        broker_id=message.broker_id,
        broker_epoch=message.broker_epoch,
        replicas=tuple(
            ReplicaDirectory(
                topic_id=topic.topic_id,
                partition_id=partition_id,
                directory_id=directory.directory_id,
            )
            for directory in message.directories
            for topic in directory.topics
            for partition_id in topic.partition_ids
        ),
    )


def encode_refused(replicas: Iterable[AssignedReplica]) -> list[pb.RefusedReplica]:
    return [
        pb.RefusedReplica(topic_id=r.topic_id, partition_id=r.partition_id, error=r.error)
        for r in replicas
        if r.error is not ErrorCode.NONE
    ]


def decode_assigned(reply: pb.AssignReplicasReply) -> tuple[AssignedReplica, ...]:
    """Those that were refused; all others of the request have been noted."""
    return tuple(
        AssignedReplica(topic_id=r.topic_id, partition_id=r.partition_id, error=ErrorCode(r.error))
        for r in reply.refused
    )
