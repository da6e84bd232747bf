"""The common part of AlterConfigs and IncrementalAlterConfigs: to the controller and back."""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.metadata.requests.config_requests import AlterConfigs, AlteredConfigs
from kvorum.metadata.rpc.calls import ALTER_CONFIGS
from kvorum.runtime.errors import ErrorCode, Rejected

"""The requests carry no patience of their own; clients give up after 30 s at the earliest."""


async def alter(context: RequestContext, request: AlterConfigs) -> dict[str, Any]:
    """Have the active controller decide; the answer's fields."""
    reply = await context.services.controller.request(ALTER_CONFIGS, request)
    if isinstance(reply, Rejected):
        reply = tuple(
            AlteredConfigs(
                resource_type=item.resource_type,
                resource_name=item.resource_name,
                error=reply.code,
                message=reply.message,
            )
            for item in request.resources
        )
    return {
        "responses": [
            {
                "error_code": item.error,
                "error_message": item.message if item.error != ErrorCode.NONE else None,
                "resource_type": item.resource_type,
                "resource_name": item.resource_name,
            }
            for item in reply
        ]
    }
