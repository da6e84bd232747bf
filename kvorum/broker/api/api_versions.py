"""ApiVersions (18). Served: v0-5. A newer request gets a v0 answer with UNSUPPORTED_VERSION
(KIP-511).

v5 (KIP-1242): a client may say which cluster and node it takes this broker for, both or neither. If
it is wrong, the answer is REBOOTSTRAP_REQUIRED: the address belongs to another node by now.

Features: the levels that this broker supports, and the levels finalised in the metadata. The two
telemetry APIs are advertised only while there is a subscription: every client that sees them asks
for its subscription, and librdkafka logs a line about it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api, ServedVersions

API = Api(key=18, name="api_versions", min_version=0, max_version=5, first_flexible=3)
ACCESS = ()
"""Served before a client has logged in."""

RANGE_FROM_ZERO_SINCE = 4
EXPECTS_NODE_SINCE = 5
NO_NODE = -1
TELEMETRY_KEYS = (71, 72)
"""GetTelemetrySubscriptions and PushTelemetry."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_served: ServedVersions = ServedVersions([API])


def set_served(served: ServedVersions) -> None:
    """Set the table to advertise; called once, by the module that knows all APIs."""
    global _served
    _served = served


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    if context.api_version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            return _refused(ErrorCode.INVALID_REQUEST)
        if context.api_version >= EXPECTS_NODE_SINCE:
            refusal = _wrong_place(context, request.cluster_id, request.node_id)
            if refusal is not None:
                return _refused(refusal)
        context.slot.connection.software = names
    image = context.services.image()
    hidden = () if context.services.telemetry.is_wanted(image.configs) else TELEMETRY_KEYS
    features = sorted(image.features.items())
    return {
        "error_code": ErrorCode.NONE,
        "api_keys": _api_keys(context.services.served_to_tools or _served, hidden),
        "supported_features": [
            {"name": f.name, "min_version": f.min_level, "max_version": f.max_level}
            for f in context.services.supported_features
            # Clients of v3 take a range that starts at 0 for malformed (KIP-1022).
            if f.min_level > 0 or context.api_version >= RANGE_FROM_ZERO_SINCE
        ],
        "finalized_features_epoch": image.end_offset - 1 if features else -1,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in features
        ],
    }


def _wrong_place(context: RequestContext, cluster_id: str | None, node_id: int) -> ErrorCode | None:
    """The error for a client that expects another cluster or node; None for any other client."""
    if cluster_id is None and node_id == NO_NODE:
        return None
    if cluster_id is None or node_id == NO_NODE:
        return ErrorCode.INVALID_REQUEST
    services = context.services
    is_right = (cluster_id, node_id) == (services.cluster_id, services.broker_id)
    return None if is_right else ErrorCode.REBOOTSTRAP_REQUIRED


def _refused(error: ErrorCode) -> dict[str, Any]:
    return {"error_code": error, "api_keys": ()}


def unsupported_answer() -> dict[str, Any]:
    """The v0 answer to a request of a version that is too new: it lists ApiVersions alone
    (KIP-511)."""
    own = {"api_key": API.key, "min_version": API.min_version, "max_version": API.max_version}
    return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": [own]}


def _api_keys(served: ServedVersions, hidden: Collection[int]) -> list[dict[str, int]]:
    return [
        {"api_key": key, "min_version": least, "max_version": most}
        for key, least, most in served.advertised()
        if key not in hidden
    ]
