"""AddPartitionsToTxn (24). Served: v0-5; v0-3 from clients, v4+ between brokers, for many
transactions.

With VerifyOnly (v4+) nothing is added, and partitions that are not in the transaction get
TRANSACTION_ABORTABLE. v5 adds partitions for clients of KIP-890 part 2.

Errors per partition: UNKNOWN_TOPIC_OR_PARTITION (then the others get OPERATION_NOT_ATTEMPTED and
nothing is added), INVALID_REQUEST for an empty transactional id, INVALID_PRODUCER_ID_MAPPING for an
unknown producer, CONCURRENT_TRANSACTIONS while markers of the last transaction are being written,
PRODUCER_FENCED (INVALID_PRODUCER_EPOCH before v2), and the coordinator errors 14 to 16.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.services import Services
from kvorum.broker.transactions.coordinators import ADD_PARTITIONS_TO_TXN
from kvorum.broker.transactions.core.model import TopicPartition
from kvorum.broker.transactions.core.requests import (
    EPOCH_BUMP_VERSION,
    AddPartitions,
    PartitionErrors,
)
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode

API = ADD_PARTITIONS_TO_TXN
ACCESS = (
    (AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID),
    (AclOperation.WRITE, ResourceType.TOPIC),
    (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
)
"""The last is for brokers, from v4 on."""

FIRST_BATCHED_VERSION = 4
FIRST_EPOCH_BUMP_VERSION = 5
FIRST_FENCED_VERSION = 2


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    if context.api_version >= FIRST_BATCHED_VERSION:
        if not context.allows_on_cluster(AclOperation.CLUSTER_ACTION):
            return {
                "error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "results_by_transaction": (),
            }
        return await _many(context, request)
    refused = _refusals(context, request)
    if refused:
        return {"results_by_topic_v3_and_below": _rows(refused)}
    body = AddPartitions(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        partitions=_partitions(request.v3_and_below_topics),
    )
    errors = await _ask(context.services, body)
    if context.api_version < FIRST_FENCED_VERSION:
        errors = {
            partition: ErrorCode.INVALID_PRODUCER_EPOCH
            if error == ErrorCode.PRODUCER_FENCED
            else error
            for partition, error in errors.items()
        }
    return {"results_by_topic_v3_and_below": _rows(errors)}


def _refusals(context: RequestContext, request: Any) -> PartitionErrors:
    """The error of each partition of a client that may not add all of them; empty if it may."""
    asked = _partitions(request.v3_and_below_topics)
    if not context.allows_transactional_id(
        AclOperation.WRITE, request.v3_and_below_transactional_id
    ):
        return dict.fromkeys(asked, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    hidden = {
        topic
        for topic in sorted({partition.topic for partition in asked})
        if not context.allows_topic(AclOperation.WRITE, topic)
    }
    if not hidden:
        return {}
    return {
        partition: ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if partition.topic in hidden
        else ErrorCode.OPERATION_NOT_ATTEMPTED
        for partition in asked
    }


async def _many(context: RequestContext, request: Any) -> dict[str, Any]:
    results = []
    for asked in request.transactions:
        is_add = not asked.verify_only
        knows_bump = is_add and context.api_version >= FIRST_EPOCH_BUMP_VERSION
        body = AddPartitions(
            transactional_id=asked.transactional_id,
            producer_id=asked.producer_id,
            producer_epoch=asked.producer_epoch,
            partitions=_partitions(asked.topics),
            is_verify_only=asked.verify_only,
            client_version=EPOCH_BUMP_VERSION if knows_bump else 0,
        )
        errors = await _ask(context.services, body)
        results.append({"transactional_id": asked.transactional_id, "topic_results": _rows(errors)})
    return {"error_code": ErrorCode.NONE, "results_by_transaction": results}


async def _ask(services: Services, body: AddPartitions) -> PartitionErrors:
    if not body.transactional_id:
        return dict.fromkeys(body.partitions, ErrorCode.INVALID_REQUEST)
    image = services.registry.image
    unknown = {
        partition
        for partition in body.partitions
        if (topic := image.topic(partition.topic)) is None
        or partition.partition_id not in topic.partitions
    }
    if unknown and not body.is_verify_only:
        return {
            partition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if partition in unknown
            else ErrorCode.OPERATION_NOT_ATTEMPTED
            for partition in body.partitions
        }
    answer = await services.transactions.request(key=body.transactional_id, body=body)
    if isinstance(answer, ErrorCode):
        return dict.fromkeys(body.partitions, answer)
    errors: PartitionErrors = answer
    return errors


def _partitions(topics: Iterable[Any]) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.name, partition_id)
        for topic in topics
        for partition_id in topic.partitions
    )


def _rows(errors: PartitionErrors) -> list[dict[str, Any]]:
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition_id), error in sorted(errors.items()):
        row = {"partition_index": partition_id, "partition_error_code": error}
        by_topic.setdefault(topic, []).append(row)
    return [{"name": name, "results_by_partition": rows} for name, rows in by_topic.items()]
