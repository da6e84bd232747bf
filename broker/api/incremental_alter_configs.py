"""IncrementalAlterConfigs (44). Served: v0-1, for topics (2), brokers (4), client metrics (16) and
groups (32); any broker forwards it to the controller.

The answer waits until this broker's own metadata shows the change. An invalid value of a broker
gets INVALID_REQUEST and one of a topic INVALID_CONFIG, as in Kafka. Missing: broker loggers
(INVALID_REQUEST).
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.config_alteration import alter
from kvorum.broker.api.context import RequestContext
from kvorum.metadata.requests.config_requests import AlterConfigs, ConfigAlteration, ConfigOperation
from kvorum.wire.versions import Api

API = Api(
    key=44,
    name="incremental_alter_configs",
    min_version=0,
    max_version=1,
    first_flexible=1,
    needs_controller=True,
)


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    resources = tuple(
        ConfigAlteration(
            resource_type=item.resource_type,
            resource_name=item.resource_name,
            operations=tuple(
                ConfigOperation(name=c.name, kind=c.config_operation, value=c.value)
                for c in item.configs
            ),
        )
        for item in request.resources
    )
    return await alter(
        context, AlterConfigs(resources=resources, validate_only=request.validate_only)
    )
