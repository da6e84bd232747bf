"""DescribeCluster (60). Served: v0-2, for brokers; endpoint type 2 (controllers) is refused with
INVALID_REQUEST."""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.metadata_answers.authorized_operations import NOT_ASKED, is_asked
from kvorum.metadata.image.acl import CLUSTER_NAME, AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(key=60, name="describe_cluster", min_version=0, max_version=2, first_flexible=0)
ACCESS = ((AclOperation.DESCRIBE, ResourceType.CLUSTER),)
"""Only for the authorized operations of the cluster."""

ENDPOINT_BROKERS = 1


def cluster_operations(context: RequestContext, request: Any) -> int:
    """The cluster's authorized operations, for the answers to Metadata and DescribeCluster; 0 for a
    client that may not describe the cluster."""
    if not is_asked(request, "include_cluster_authorized_operations"):
        return NOT_ASKED
    if not context.shows(ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return context.operations(ResourceType.CLUSTER, CLUSTER_NAME)


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    services = context.services
    answer: dict[str, Any] = {
        "error_code": ErrorCode.NONE,
        "cluster_id": services.cluster_id,
        "controller_id": services.controller_id(),
        "brokers": [],
    }
    if getattr(request, "endpoint_type", ENDPOINT_BROKERS) != ENDPOINT_BROKERS:
        answer["error_code"] = ErrorCode.INVALID_REQUEST
        answer["error_message"] = "this listener describes brokers, not controllers"
        return answer
    answer["cluster_authorized_operations"] = cluster_operations(context, request)
    with_fenced = getattr(request, "include_fenced_brokers", False)
    image = services.image()
    for broker_id in sorted(image.brokers):
        broker = image.brokers[broker_id]
        if broker.is_fenced and not with_fenced:
            continue
        endpoint = services.endpoint_of(broker, context.listener)
        answer["brokers"].append(
            {
                "broker_id": broker_id,
                "host": endpoint.host,
                "port": endpoint.port,
                "rack": broker.rack,
                "is_fenced": broker.is_fenced,
            }
        )
    return answer
