"""AlterClientQuotas (49). Served: v0-1; any broker forwards it to the controller.

`broker.quotas` applies the quotas.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext, error_fields
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.requests.config_requests import (
    AlterClientQuotas,
    AlteredQuota,
    QuotaAlteration,
    QuotaOperation,
)
from kvorum.metadata.rpc.calls import ALTER_CLIENT_QUOTAS
from kvorum.runtime.errors import Rejected
from kvorum.wire.versions import Api

API = Api(
    key=49,
    name="alter_client_quotas",
    min_version=0,
    max_version=1,
    first_flexible=1,
    needs_controller=True,
)
ACCESS = ((AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER),)


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    entries = tuple(
        QuotaAlteration(
            entity=tuple((part.entity_type, part.entity_name) for part in item.entity),
            operations=tuple(
                QuotaOperation(key=op.key, value=None if op.remove else float(op.value))
                for op in item.ops
            ),
        )
        for item in request.entries
    )
    reply = await context.ask_controller(
        ALTER_CLIENT_QUOTAS,
        AlterClientQuotas(entries=entries, validate_only=request.validate_only),
        needs=AclOperation.ALTER_CONFIGS,
    )
    if isinstance(reply, Rejected):
        reply = tuple(
            AlteredQuota(entity=item.entity, error=reply.code, message=reply.message)
            for item in entries
        )
    return {
        "entries": [
            {
                **error_fields(item),
                "entity": [
                    {"entity_type": kind, "entity_name": name} for kind, name in item.entity
                ],
            }
            for item in reply
        ]
    }
