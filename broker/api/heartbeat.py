"""Heartbeat (12). Served: v0-4, for members of the classic protocol. v3 static members.

Errors: 14, 15, 16, 22, 24, 25, 27 (join again), 82.
"""

from __future__ import annotations

from typing import Any

from broker.context import RequestContext
from broker.group_calls import ask_named
from broker.groups.requests import Heartbeat
from wire.versions import Api

API = Api(key=12, name="heartbeat", min_version=0, max_version=4, first_flexible=4)


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    body = Heartbeat(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
    )
    return {"error_code": await ask_named(context, request.group_id, body)}
