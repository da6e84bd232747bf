"""ListConfigResources (74, KIP-1142). Served: v0-1.

v0 is ListClientMetricsResources: it lists client-metrics subscriptions. v1 lists every resource
that can have configs, of the requested types or of all: topics (2), brokers (4), broker loggers
(8), client metrics (16), and groups that have configs (32). Any other type gives
UNSUPPORTED_VERSION for the whole request.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import CLUSTER_REFUSED, RequestContext
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(key=74, name="list_config_resources", min_version=0, max_version=1, first_flexible=0)
ACCESS = ((AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
TYPES = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    if not context.allows_on_cluster(AclOperation.DESCRIBE_CONFIGS):
        return {"error_code": CLUSTER_REFUSED.code, "config_resources": ()}
    asked = (CLIENT_METRICS,) if context.api_version == 0 else request.resource_types or TYPES
    if not set(asked) <= set(TYPES):
        return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "config_resources": ()}
    image = context.services.image()
    names: dict[int, list[str]] = {
        TOPIC: sorted(image.topic_ids),
        BROKER: [str(broker_id) for broker_id in sorted(image.brokers)],
    }
    names[BROKER_LOGGER] = names[BROKER]
    for kind in (CLIENT_METRICS, GROUP):
        names[kind] = sorted(name for of_kind, name in image.configs if of_kind == kind)
    return {
        "error_code": ErrorCode.NONE,
        "config_resources": [
            {"resource_name": name, "resource_type": kind}
            for kind in sorted(set(asked))
            for name in names.get(kind, ())
        ],
    }
