"""DescribeCluster (60, KIP-919). Served: v0-2. Brokers describe brokers (endpoint type 1),
controllers controllers (2); the other one is MISMATCHED_ENDPOINT_TYPE, a third
UNSUPPORTED_ENDPOINT_TYPE."""

from __future__ import annotations

from collections.abc import Iterator
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
ENDPOINT_CONTROLLERS = 2


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
    asked = getattr(request, "endpoint_type", ENDPOINT_BROKERS)
    own = ENDPOINT_BROKERS if services.served_to_tools is None else ENDPOINT_CONTROLLERS
    if asked != own:
        return _refusal(asked)
    return {
        "error_code": ErrorCode.NONE,
        "endpoint_type": own,
        "cluster_id": services.cluster_id,
        "controller_id": services.controller_id(),
        "brokers": list(
            _brokers(context, with_fenced=getattr(request, "include_fenced_brokers", False))
            if own == ENDPOINT_BROKERS
            else _controllers(context)
        ),
        "cluster_authorized_operations": cluster_operations(context, request),
    }


def _brokers(context: RequestContext, *, with_fenced: bool) -> Iterator[dict[str, Any]]:
    services = context.services
    for broker_id, broker in sorted(services.image().brokers.items()):
        if broker.is_fenced and not with_fenced:
            continue
        endpoint = services.endpoint_of(broker, context.listener)
        yield {
            "broker_id": broker_id,
            "host": endpoint.host,
            "port": endpoint.port,
            "rack": broker.rack,
            "is_fenced": broker.is_fenced,
        }


def _controllers(context: RequestContext) -> Iterator[dict[str, Any]]:
    """The controllers that have the listener which the client uses."""
    for controller_id, controller in sorted(context.services.image().controllers.items()):
        for endpoint in controller.endpoints:
            if endpoint.name == context.listener:
                yield {
                    "broker_id": controller_id,
                    "host": endpoint.host,
                    "port": endpoint.port,
                    "rack": None,
                    "is_fenced": False,
                }


def _refusal(endpoint_type: int) -> dict[str, Any]:
    sides = {ENDPOINT_BROKERS: "brokers", ENDPOINT_CONTROLLERS: "controllers"}
    if endpoint_type in sides:
        error = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = f"endpoint type {endpoint_type} asks for {sides[endpoint_type]}, this is no such"
    else:
        error = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"there is no endpoint type {endpoint_type}: 1 is brokers, 2 controllers"
    return {
        "error_code": error,
        "error_message": message,
        "cluster_id": "",
        "controller_id": -1,
        "brokers": (),
    }
