"""PushTelemetry (72). Served: v0 (KIP-714). The pushed values are on the broker's metrics page.

Errors: INVALID_REQUEST (a reserved instance id, or a push after the terminating one),
UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD (it does not parse), THROTTLING_QUOTA_EXCEEDED (before
the interval is over), UNKNOWN_SUBSCRIPTION_ID, TELEMETRY_TOO_LARGE.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.get_telemetry_subscriptions import facts_of
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.kio_codec import uuid_bytes
from kvorum.wire.versions import Api

API = Api(key=72, name="push_telemetry", min_version=0, max_version=0, first_flexible=0)
ACCESS = ()
"""None, as in Kafka: a client reports about itself."""


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    services = context.services
    now_ms = services.now_ms()
    instance = services.telemetry.push(
        uuid_bytes(request.client_instance_id),
        facts_of(context),
        services.image().configs,
        request,
        now_ms,
    )
    if isinstance(instance, ErrorCode):
        return {"error_code": instance}
    error = ErrorCode.NONE
    if request.metrics:
        services.client_figures.forget(lambda known: services.telemetry.is_known(known, now_ms))
        error = services.client_figures.take(instance, request.compression_type, request.metrics)
        instance.last_error = error
    return {"error_code": error}
