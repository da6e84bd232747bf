"""WriteTxnMarkers (27). Served: v1-2, from coordinators and from repair tools.

The leader of each partition checks the epochs, appends the marker, and waits until all in-sync
replicas have it. In v2 (Kafka 4.2), TransactionVersion says if the marker's epoch is above that of
the records (KIP-890); then a repeated marker cannot end the next transaction. Errors per partition:
see kvorum/broker/transactions/marking.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.transactions.core.model import TopicPartition
from kvorum.broker.transactions.markers import WRITE_TXN_MARKERS
from kvorum.broker.transactions.marking import TransactionMarker
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode

API = WRITE_TXN_MARKERS
ACCESS = (
    (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
    (AclOperation.ALTER, ResourceType.CLUSTER),
)
"""One of the two."""

FIRST_TRANSACTION_VERSION = 2


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    knows_version = context.api_version >= FIRST_TRANSACTION_VERSION
    markers = [
        TransactionMarker(
            asked.producer_id,
            asked.producer_epoch,
            asked.coordinator_epoch,
            asked.transaction_result,
            asked.transaction_version if knows_version else 0,
            # A partition named twice gets one marker, as in Kafka.
            tuple(
                dict.fromkeys(
                    TopicPartition(topic.name, partition_id)
                    for topic in asked.topics
                    for partition_id in topic.partition_indexes
                )
            ),
        )
        for asked in request.markers
    ]
    # KIP-664: an administrator may end a hanging transaction.
    if context.allows_on_cluster(AclOperation.CLUSTER_ACTION) or context.allows_on_cluster(
        AclOperation.ALTER
    ):
        results = await context.services.transaction_driver.marker_writer.write(markers)
    else:
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        results = [dict.fromkeys(marker.partitions, refused) for marker in markers]
    rows = []
    for marker, errors in zip(markers, results, strict=True):
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition_id), error in errors.items():
            topics.setdefault(topic, []).append(
                {"partition_index": partition_id, "error_code": error}
            )
        rows.append(
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {"name": name, "partitions": partitions} for name, partitions in topics.items()
                ],
            }
        )
    return {"markers": rows}
