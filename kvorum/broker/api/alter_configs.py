"""AlterConfigs (33), the deprecated API: the given configs replace all configs of the resource.

Served: v0-2, for topics (2), brokers (4), client metrics (16) and groups (32); any broker forwards
it to the controller. Clients should use IncrementalAlterConfigs: this API loses configs that
another client sets meanwhile.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.config_alteration import ALTER_ACCESS, alter, alterations
from kvorum.broker.api.context import RequestContext
from kvorum.metadata.requests.config_requests import AlterConfigs
from kvorum.wire.versions import Api

API = Api(
    key=33,
    name="alter_configs",
    min_version=0,
    max_version=2,
    first_flexible=2,
    needs_controller=True,
)
ACCESS = ALTER_ACCESS
"""The last for brokers, their loggers and client metrics."""


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    resources = alterations(request, is_replacement=True)
    return await alter(
        context,
        AlterConfigs(resources=resources, is_replacement=True, validate_only=request.validate_only),
    )
