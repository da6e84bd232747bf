"""IncrementalAlterConfigs (44). Served: v0-1, for topics (2), brokers (4), client metrics (16) and
groups (32); any broker forwards it to the controller.

The answer waits until this broker's own metadata shows the change. An invalid value of a broker
gets INVALID_REQUEST and one of a topic INVALID_CONFIG, as in Kafka. This broker itself changes the
levels of its own loggers (8); they last until its process ends (KIP-412).
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.config_alteration import ALTER_ACCESS, alter, alterations
from kvorum.broker.api.context import CLUSTER_REFUSED, RequestContext, refusal_fields
from kvorum.metadata.configs.loggers import RESOURCE_BROKER_LOGGER, alter_loggers
from kvorum.metadata.image.acl import AclOperation
from kvorum.metadata.requests.config_requests import AlterConfigs, ConfigAlteration
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.versions import Api

API = Api(
    key=44,
    name="incremental_alter_configs",
    min_version=0,
    max_version=1,
    first_flexible=1,
    needs_controller=True,
)
ACCESS = ALTER_ACCESS
"""The last for brokers, their loggers and client metrics."""


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    resources = alterations(request)
    loggers = [item for item in resources if item.resource_type == RESOURCE_BROKER_LOGGER]
    others = tuple(item for item in resources if item.resource_type != RESOURCE_BROKER_LOGGER)
    answer: dict[str, Any] = {"responses": []}
    if others or not loggers:
        changes = AlterConfigs(resources=others, validate_only=request.validate_only)
        answer = await alter(context, changes)
    answer["responses"] += [
        _altered_loggers(context, item, validate_only=request.validate_only) for item in loggers
    ]
    return answer


def _altered_loggers(
    context: RequestContext, item: ConfigAlteration, *, validate_only: bool
) -> dict[str, Any]:
    own = str(context.services.broker_id)
    if not context.allows_on_cluster(AclOperation.ALTER_CONFIGS):
        refused: Rejected | None = CLUSTER_REFUSED
    elif item.resource_name != own:
        refused = Rejected(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {own} but received {item.resource_name!r}; ask that "
            "broker itself",
        )
    else:
        refused = alter_loggers(item.operations, validate_only=validate_only)
    return {
        **refusal_fields(refused),
        "resource_type": item.resource_type,
        "resource_name": item.resource_name,
    }
