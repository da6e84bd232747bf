"""DescribeClientQuotas (48). Served: v0-1, from this broker's own metadata.

`broker.quotas` applies the quotas.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import CLUSTER_REFUSED, RequestContext, refusal_fields
from kvorum.metadata.configs.quotas import QuotaFilter, filter_problem, matching
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.wire.versions import Api

API = Api(key=48, name="describe_client_quotas", min_version=0, max_version=1, first_flexible=1)
ACCESS = ((AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),)


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    if not context.allows_on_cluster(AclOperation.DESCRIBE_CONFIGS):
        return {**refusal_fields(CLUSTER_REFUSED), "entries": None}
    components = tuple(
        QuotaFilter(entity_type=c.entity_type, match_type=c.match_type, match=c.match)
        for c in request.components
    )
    refused = filter_problem(components)
    if refused is not None:
        return {**refusal_fields(refused), "entries": None}
    found = matching(context.services.image(), components, is_strict=request.strict)
    return {
        **refusal_fields(None),
        "entries": [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                "values": [{"key": key, "value": quotas[key]} for key in sorted(quotas)],
            }
            for entity, quotas in found
        ],
    }
