"""GetTelemetrySubscriptions (71). Served: v0 (KIP-714). Clients are asked for totals of sums, not
deltas.

Errors: THROTTLING_QUOTA_EXCEEDED before the interval is over.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.metrics.client_telemetry import (
    COMPRESSION_TYPES,
    TELEMETRY_BYTES_MAX,
    ClientFacts,
)
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.ids import UUID_ZERO, new_uuid
from kvorum.wire.kio_codec import uuid_bytes
from kvorum.wire.versions import Api

API = Api(
    key=71, name="get_telemetry_subscriptions", min_version=0, max_version=0, first_flexible=0
)
ACCESS = ()
"""None, as in Kafka: a client reports about itself."""


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    services = context.services
    instance_id = uuid_bytes(request.client_instance_id)
    if instance_id == UUID_ZERO:
        instance_id = new_uuid(services.replicas.rng)
    answer = services.telemetry.ask(
        instance_id, facts_of(context), services.image().configs, services.now_ms()
    )
    if isinstance(answer, ErrorCode):
        return {
            "error_code": answer,
            "client_instance_id": UUID_ZERO,
            "subscription_id": 0,
            "push_interval": 0,
            "telemetry_max_bytes": 0,
            "delta_temporality": False,
            "accepted_compression_types": (),
            "requested_metrics": (),
        }
    return {
        "error_code": ErrorCode.NONE,
        "client_instance_id": instance_id,
        "subscription_id": answer.subscription_id,
        "accepted_compression_types": COMPRESSION_TYPES,
        "push_interval": answer.interval_ms,
        "telemetry_max_bytes": TELEMETRY_BYTES_MAX,
        "delta_temporality": False,
        "requested_metrics": answer.metrics,
    }


def facts_of(context: RequestContext) -> ClientFacts:
    """The facts by which a subscription may match the client of this request."""
    connection = context.slot.connection
    host, _, port = connection.peer.rpartition(":")
    return ClientFacts(context.client_id or "", *connection.software, host, port)
