"""UpdateFeatures (57). Served: v0-2, by the active controller. Either all updates are made or none.

The answer has one error for all of them, the first one's. Up to v1 it also has a row for each
update; Kafka leaves the rows out if one update failed.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.requests.controller_requests import (
    FeatureUpdate,
    UpdatedFeature,
    UpdateFeatures,
    UpdateKind,
)
from kvorum.metadata.rpc.calls import UPDATE_FEATURES
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.versions import Api

API = Api(
    key=57,
    name="update_features",
    min_version=0,
    max_version=2,
    first_flexible=0,
    needs_controller=True,
)
ACCESS = ((AclOperation.ALTER, ResourceType.CLUSTER),)

WITHOUT_ROWS_SINCE = 2


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    try:
        updates = tuple(_update(asked) for asked in request.feature_updates)
    except ValueError as error:
        return _answer(context, Rejected(ErrorCode.INVALID_REQUEST, str(error)))
    names = [update.name for update in updates]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        return _answer(
            context, Rejected(ErrorCode.INVALID_REQUEST, f"{twice} is named twice in one request")
        )
    timeout_ms = max(int(request.timeout.total_seconds() * 1000), 1)
    asked = UpdateFeatures(updates=updates, validate_only=getattr(request, "validate_only", False))
    reply = await context.ask_controller(
        UPDATE_FEATURES, asked, timeout_ms, needs=AclOperation.ALTER
    )
    return _answer(context, reply)


def _update(asked: Any) -> FeatureUpdate:
    """Build the update. Raises ValueError for an unknown upgrade type."""
    if hasattr(asked, "upgrade_type"):
        kind = UpdateKind(asked.upgrade_type)
    else:  # v0 has only a flag
        kind = UpdateKind.SAFE_DOWNGRADE if asked.allow_downgrade else UpdateKind.UPGRADE
    return FeatureUpdate(name=asked.feature, max_level=asked.max_version_level, kind=kind)


def _answer(
    context: RequestContext, reply: tuple[UpdatedFeature, ...] | Rejected
) -> dict[str, Any]:
    code, message = ErrorCode.NONE, ""
    rows: tuple[UpdatedFeature, ...] = ()
    if isinstance(reply, Rejected):
        code, message = reply.code, reply.message
    else:
        rows = reply
    first = next((row for row in rows if row.error is not ErrorCode.NONE), None)
    if first is not None:
        code, message = first.error, first.message
    if context.api_version >= WITHOUT_ROWS_SINCE:
        return {"error_code": code, "error_message": message or None}
    return {
        "error_code": code,
        "error_message": message or None,
        "results": [
            {
                "feature": row.name,
                "error_code": row.error,
                "error_message": row.message or None,
            }
            for row in rows
        ],
    }
