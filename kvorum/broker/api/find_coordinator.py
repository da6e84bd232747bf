"""FindCoordinator (10). Served: v0-6, for groups (key type 0) and transactions (1).

The coordinator of a key is the leader of its partition of the internal topic. The first request
creates that topic. Until there is a leader the answer is COORDINATOR_NOT_AVAILABLE, and clients
retry. Key type 2 (share groups) is refused with INVALID_REQUEST. An empty key gets INVALID_GROUP_ID
for groups, INVALID_REQUEST for transactional ids.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.coordinator.host import CoordinatorHost
from kvorum.metadata.access.model import AclOperation, ResourceType
from kvorum.metadata.image.records import NO_LEADER
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.versions import Api

API = Api(key=10, name="find_coordinator", min_version=0, max_version=6, first_flexible=3)
ACCESS = (
    (AclOperation.DESCRIBE, ResourceType.GROUP),
    (AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
)

GROUP, TRANSACTION = 0, 1


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    kind = request.key_type if context.api_version >= 1 else GROUP
    if context.api_version <= 3:
        return _find(context, kind, request.key)
    return {
        "coordinators": [
            {"key": key, **_find(context, kind, key)}
            for key in dict.fromkeys(request.coordinator_keys)
        ]
    }


def _find(context: RequestContext, kind: int, key: str) -> dict[str, Any]:
    services = context.services
    if kind == GROUP:
        if not context.allows(AclOperation.DESCRIBE, ResourceType.GROUP, key):
            return _nobody(
                Rejected(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
            )
        return _coordinator(context, services.groups, key, ErrorCode.INVALID_GROUP_ID)
    if kind == TRANSACTION:
        if not context.allows_transactional_id(AclOperation.DESCRIBE, key):
            return _nobody(
                Rejected(
                    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                    "Transactional Id authorization failed.",
                )
            )
        return _coordinator(context, services.transactions, key, ErrorCode.INVALID_REQUEST)
    return _nobody(
        Rejected(
            ErrorCode.INVALID_REQUEST,
            f"key type {kind} has no coordinators here: 0 is a group, 1 a transactional id",
        )
    )


def _coordinator(
    context: RequestContext, host: CoordinatorHost, key: str, empty: ErrorCode
) -> dict[str, Any]:
    services = context.services
    if not key:
        return _nobody(Rejected(empty, "the key is empty"))
    if not host.is_served:
        return _unavailable("this cluster has no such coordinators")
    partition_id = host.partition_of(key)
    if partition_id is None:
        services.internal_topics.make(host.topic)
        return _unavailable(
            services.internal_topics.refusals.get(host.topic, f"{host.topic} is being made")
        )
    image = services.image()
    topic = image.topic(host.topic)
    partition = None if topic is None else topic.partitions.get(partition_id)
    leader = NO_LEADER if partition is None else partition.leader
    broker = image.brokers.get(leader)
    if broker is None:
        return _unavailable(f"{host.topic}-{partition_id} has no leader now")
    endpoint = services.endpoint_of(broker, context.listener)
    return {
        "node_id": leader,
        "host": endpoint.host,
        "port": endpoint.port,
        "error_code": ErrorCode.NONE,
        "error_message": "",
    }


def _unavailable(reason: str) -> dict[str, Any]:
    return _nobody(Rejected(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason))


def _nobody(refused: Rejected) -> dict[str, Any]:
    return {
        "node_id": -1,
        "host": "",
        "port": -1,
        "error_code": refused.code,
        "error_message": refused.message,
    }
