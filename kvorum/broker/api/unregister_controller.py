"""UnregisterController (94). Served: v0, by the active controller.

Errors: CONTROLLER_ID_NOT_REGISTERED, INVALID_REQUEST for a voter, UNSUPPORTED_VERSION below
metadata.version 33.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext, refusal_fields
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.requests.controller_requests import UnregisterControllerRequest
from kvorum.metadata.rpc.calls import UNREGISTER_CONTROLLER
from kvorum.runtime.errors import Rejected
from kvorum.wire.versions import Api

API = Api(
    key=94,
    name="unregister_controller",
    min_version=0,
    max_version=0,
    first_flexible=0,
    needs_controller=True,
)
ACCESS = ((AclOperation.ALTER, ResourceType.CLUSTER),)


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    reply = await context.ask_controller(
        UNREGISTER_CONTROLLER,
        UnregisterControllerRequest(controller_id=request.controller_id),
        needs=AclOperation.ALTER,
    )
    return refusal_fields(reply if isinstance(reply, Rejected) else None)
