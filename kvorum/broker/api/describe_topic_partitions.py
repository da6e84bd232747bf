"""DescribeTopicPartitions (75, KIP-966). Served: v0.

Topics are sorted by name, with at most 2,000 partitions in an answer; the cursor marks where the
next answer starts. A cursor with a topic that the request does not name, or with a negative
partition, is refused with INVALID_REQUEST for each named topic. Like Metadata it answers from this
broker's own metadata. The request cannot ask for authorized operations; as in Kafka, the answer
always has them.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.metadata_answers.authorized_operations import NOT_ASKED
from kvorum.broker.metadata_answers.topic_metadata import live_brokers, offline_replicas
from kvorum.broker.metadata_answers.topic_names import INTERNAL_TOPICS, name_refusal
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.image.image import PartitionImage, TopicImage
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(key=75, name="describe_topic_partitions", min_version=0, max_version=0, first_flexible=0)
ACCESS = ((AclOperation.DESCRIBE, ResourceType.TOPIC),)

PARTITIONS_PER_ANSWER_MAX = 2_000
"""Kafka's max.request.partition.size.limit."""


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    image = context.services.image()
    live = live_brokers(image)
    cursor = request.cursor
    named = [topic.name for topic in request.topics]
    first_name, first_id = "", 0
    if cursor is not None:
        first_name, first_id = cursor.topic_name, cursor.partition_index
        if first_id < 0 or (named and first_name not in named):
            refused = [_failed(name, ErrorCode.INVALID_REQUEST, NOT_ASKED) for name in named]
            return {"topics": refused, "next_cursor": None}
    names = set(named) or set(image.topic_ids)
    left = min(max(request.response_partition_limit, 1), PARTITIONS_PER_ANSWER_MAX)
    topics: list[dict[str, Any]] = []
    next_cursor = None
    for name in sorted(n for n in names if n >= first_name):
        if not context.shows(ResourceType.TOPIC, name):
            if request.topics:
                context.allows_topic(AclOperation.DESCRIBE, name)  # noted in the audit log
                topics.append(_failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, NOT_ASKED))
            continue
        topic = image.topic(name)
        if topic is None:
            # If all topics are requested, the cursor's topic may have been deleted meanwhile.
            if request.topics:
                topics.append(_unknown(name, context.operations(ResourceType.TOPIC, name)))
            continue
        start = first_id if name == first_name else 0
        if left == 0:
            next_cursor = {"topic_name": name, "partition_index": start}
            break
        ids = sorted(i for i in topic.partitions if i >= start)
        operations = context.operations(ResourceType.TOPIC, name)
        topics.append(_topic(live, topic, ids[:left], operations))
        if len(ids) > left:
            next_cursor = {"topic_name": name, "partition_index": ids[left]}
            break
        left -= len(ids)
    return {"topics": topics, "next_cursor": next_cursor}


def _unknown(name: str, operations: int) -> dict[str, Any]:
    if name_refusal(name) is not None:
        return _failed(name, ErrorCode.INVALID_TOPIC_EXCEPTION, operations)
    return _failed(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, operations)


def _failed(name: str, error: ErrorCode, operations: int) -> dict[str, Any]:
    return {
        "error_code": error,
        "name": name,
        "topic_id": None,
        "partitions": (),
        "topic_authorized_operations": operations,
    }


def _topic(
    live: frozenset[int], topic: TopicImage, ids: list[int], operations: int
) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": [_partition(live, i, topic.partitions[i]) for i in ids],
        "topic_authorized_operations": operations,
    }


def _partition(
    live: frozenset[int], partition_id: int, partition: PartitionImage
) -> dict[str, Any]:
    is_led = partition.has_leader
    return {
        "error_code": ErrorCode.NONE if is_led else ErrorCode.LEADER_NOT_AVAILABLE,
        "partition_index": partition_id,
        "leader_id": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "eligible_leader_replicas": partition.elr,
        "last_known_elr": partition.last_known_elr,
        "offline_replicas": offline_replicas(partition, live),
    }
