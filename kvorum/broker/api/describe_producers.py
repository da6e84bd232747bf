"""DescribeProducers (61). Served: v0 (KIP-664), by every replica, as in Kafka.

For each idempotent or transactional producer: its last batch, and where its open transaction
begins. `kafka-transactions find-hanging` compares that with the coordinators. A follower answers
from the records that it has replicated so far. Errors per partition: UNKNOWN_TOPIC_OR_PARTITION,
NOT_LEADER_OR_FOLLOWER if there is no replica here, INVALID_TOPIC_EXCEPTION for an illegal topic
name, KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.metadata_answers.topic_names import name_refusal
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.files.producer_state import ProducerEntry
from kvorum.wire.versions import Api

API = Api(key=61, name="describe_producers", min_version=0, max_version=0, first_flexible=0)
ACCESS = ((AclOperation.READ, ResourceType.TOPIC),)


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    # A repeated partition is answered once: four bytes could request thousands of producers.
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return {
        "topics": [
            {
                "name": name,
                "partitions": [_describe(context, name, partition_id) for partition_id in ids],
            }
            for name, ids in asked.items()
        ]
    }


def _describe(context: RequestContext, topic: str, partition_id: int) -> dict[str, Any]:
    registry = context.services.registry
    if not context.allows_topic(AclOperation.READ, topic):
        return _refused(partition_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    refusal = name_refusal(topic)
    if refusal is not None:
        return _refused(partition_id, ErrorCode.INVALID_TOPIC_EXCEPTION, refusal)
    replica = registry.find_by_name(topic, partition_id)
    if replica is None:
        error = registry.missing_error(topic, b"", partition_id)
        message = None
        if error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            message = (
                f"broker {context.services.broker_id} has no replica of {topic}-{partition_id};"
                " Metadata names the brokers that have one"
            )
        return _refused(partition_id, error, message)
    if replica.is_offline:
        return _refused(partition_id, ErrorCode.KAFKA_STORAGE_ERROR)
    entries = replica.log.producers.entries
    return {
        "partition_index": partition_id,
        "error_code": ErrorCode.NONE,
        "active_producers": [_producer(entries[producer_id]) for producer_id in sorted(entries)],
    }


def _producer(entry: ProducerEntry) -> dict[str, Any]:
    return {
        "producer_id": entry.producer_id,
        "producer_epoch": entry.epoch,
        "last_sequence": entry.batches[-1].last_sequence if entry.batches else -1,
        "last_timestamp": entry.last_timestamp_ms,
        "coordinator_epoch": entry.coordinator_epoch,
        "current_txn_start_offset": entry.current_transaction_first_offset,
    }


def _refused(partition_id: int, error: ErrorCode, message: str | None = None) -> dict[str, Any]:
    return {
        "partition_index": partition_id,
        "error_code": error,
        "error_message": message,
        "active_producers": [],
    }
