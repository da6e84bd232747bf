"""FindCoordinator (10). Served: v0-6, always with error 15: there are no coordinators yet.

Clients that only assign partitions ask it too, so it must be answered and not close. Missing:
consumer groups, transactions, share groups.
"""

from __future__ import annotations

from typing import Any

from broker.context import RequestContext
from runtime.errors import ErrorCode
from wire.versions import Api

API = Api(key=10, name="find_coordinator", min_version=0, max_version=6, first_flexible=3)

_REASON = "this cluster has no group or transaction coordinators"


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    nobody = {
        "node_id": -1,
        "host": "",
        "port": -1,
        "error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE,
        "error_message": _REASON,
    }
    if context.api_version <= 3:
        return nobody
    return {"coordinators": [{"key": key, **nobody} for key in request.coordinator_keys]}
