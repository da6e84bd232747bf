"""The common part of AlterConfigs and IncrementalAlterConfigs: the request to the controller, and
the answer."""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.metadata.requests.config_requests import AlterConfigs, AlteredConfigs
from kvorum.metadata.rpc.calls import ALTER_CONFIGS
from kvorum.runtime.errors import ErrorCode, Rejected


async def alter(context: RequestContext, request: AlterConfigs) -> dict[str, Any]:
    """Have the active controller decide; returns the answer's fields."""
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
