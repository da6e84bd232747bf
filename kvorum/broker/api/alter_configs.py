"""AlterConfigs (33), the deprecated API: the given configs replace all configs of the resource.

Served: v0-2, for topics (2), brokers (4), client metrics (16) and groups (32); any broker forwards
it to the controller. Clients should use IncrementalAlterConfigs: this API loses configs that
another client sets meanwhile.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.config_alteration import alter
from kvorum.broker.api.context import RequestContext
from kvorum.metadata.access.model import AclOperation, ResourceType
from kvorum.metadata.requests.config_requests import (
    AlterConfigs,
    ConfigAlteration,
    ConfigOperation,
    Operation,
)
from kvorum.wire.versions import Api

API = Api(
    key=33,
    name="alter_configs",
    min_version=0,
    max_version=2,
    first_flexible=2,
    needs_controller=True,
)
ACCESS = (
    (AclOperation.ALTER_CONFIGS, ResourceType.TOPIC),
    (AclOperation.ALTER_CONFIGS, ResourceType.GROUP),
    (AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER),
)
"""The last for brokers, their loggers and client metrics."""


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    resources = tuple(
        ConfigAlteration(
            resource_type=item.resource_type,
            resource_name=item.resource_name,
            operations=tuple(
                ConfigOperation(name=c.name, kind=Operation.SET, value=c.value)
                for c in item.configs
            ),
        )
        for item in request.resources
    )
    return await alter(
        context,
        AlterConfigs(resources=resources, is_replacement=True, validate_only=request.validate_only),
    )
