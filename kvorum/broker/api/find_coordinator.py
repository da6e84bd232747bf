"""FindCoordinator (10). Served: v0-6, for groups (key type 0) and transactions (1).

The coordinator of a key is the leader of its partition of the internal topic. The first request
creates that topic. Until there is a leader the answer is COORDINATOR_NOT_AVAILABLE, and clients
retry. v6 has key type 2, a share-partition: `group:topicId:partition`, for brokers. An empty
key gets INVALID_REQUEST; a group may have one, as in Kafka.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.share_partitions import feature_refusal
from kvorum.broker.coordinator.host import CoordinatorHost
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.image.records import NO_LEADER
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.ids import uuid_from_text
from kvorum.wire.versions import Api

API = Api(key=10, name="find_coordinator", min_version=0, max_version=6, first_flexible=3)
ACCESS = (
    (AclOperation.DESCRIBE, ResourceType.GROUP),
    (AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
    (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
)

GROUP, TRANSACTION, SHARE = 0, 1, 2
FIRST_WITH_SHARE = 6


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
        return _coordinator(context, services.groups, key)
    if kind == TRANSACTION:
        if not context.allows_transactional_id(AclOperation.DESCRIBE, key):
            return _nobody(
                Rejected(
                    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                    "Transactional Id authorization failed.",
                )
            )
        if not key:
            return _nobody(Rejected(ErrorCode.INVALID_REQUEST, "the key is empty"))
        return _coordinator(context, services.transactions, key)
    if kind == SHARE and context.api_version >= FIRST_WITH_SHARE:
        return _share_coordinator(context, key)
    return _nobody(
        Rejected(
            ErrorCode.INVALID_REQUEST,
            f"key type {kind} has no coordinators here: 0 is a group, 1 a transactional id, 2 a "
            "share-partition",
        )
    )


def _share_coordinator(context: RequestContext, key: str) -> dict[str, Any]:
    refused = feature_refusal(context)
    if refused is not None:
        return _nobody(Rejected(ErrorCode.INVALID_REQUEST, refused.message))
    if not context.allows_on_cluster(AclOperation.CLUSTER_ACTION):
        return _nobody(
            Rejected(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
        )
    if not _is_share_key(key):
        text = f"the key {key!r} is not of the form group:topicId:partition"
        return _nobody(Rejected(ErrorCode.INVALID_REQUEST, text))
    return _coordinator(context, context.services.share.states, key)


def _is_share_key(key: str) -> bool:
    """True for `group:topicId:partition`; the group id may have colons."""
    parts = key.rsplit(":", 2)
    if len(parts) != 3 or not parts[0] or not parts[2].isdecimal():
        return False
    try:
        uuid_from_text(parts[1])
    except ValueError:
        return False
    return True


def _coordinator(context: RequestContext, host: CoordinatorHost, key: str) -> dict[str, Any]:
    services = context.services
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
