"""DescribeConfigs (32). Served: v1-4, for topics (2), for this broker (4) and, under the empty
name, for what is set for all brokers.

Keys that Kvorum does not obey yet are shown at their defaults and read-only. Missing: broker
loggers, client metrics, groups (error 42).
"""

from __future__ import annotations

from typing import Any

from broker.config_entries import (
    Entry,
    broker_entries,
    cluster_default_entries,
    topic_entries,
)
from broker.context import RequestContext
from broker.topic_names import name_refusal
from metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from runtime.errors import ErrorCode, Rejected
from wire.versions import Api

API = Api(key=32, name="describe_configs", min_version=1, max_version=4, first_flexible=4)


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    # Not asked for before v3.
    with_documentation = getattr(request, "include_documentation", False)
    return {
        "results": [
            _answer(
                item,
                _describe(context, item, with_documentation),
                with_synonyms=request.include_synonyms,
            )
            for item in request.resources
        ]
    }


def _describe(
    context: RequestContext, item: Any, with_documentation: bool
) -> list[Entry] | Rejected:
    services = context.services
    kind, name = item.resource_type, item.resource_name
    if kind == RESOURCE_TOPIC:
        reason = name_refusal(name)
        if reason is not None:
            return Rejected(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        if services.image().topic(name) is None:
            return Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name!r}")
        return topic_entries(services, name, with_documentation=with_documentation)
    if kind == RESOURCE_BROKER:
        if not name:
            return cluster_default_entries(services, with_documentation=with_documentation)
        if name != str(services.broker_id):
            return Rejected(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {services.broker_id} or empty string, but "
                f"received {name!r}; ask that broker itself",
            )
        return broker_entries(services, with_documentation=with_documentation)
    return Rejected(ErrorCode.INVALID_REQUEST, f"resource type {kind} is not served")


def _answer(item: Any, found: list[Entry] | Rejected, *, with_synonyms: bool) -> dict[str, Any]:
    error, message, entries = ErrorCode.NONE, None, []
    if isinstance(found, Rejected):
        error, message = found.code, found.message
    else:
        entries = found
    # Null and empty both mean all.
    wanted = item.configuration_keys
    if wanted:
        names = set(wanted)
        entries = [entry for entry in entries if entry["name"] in names]
    if not with_synonyms:
        entries = [{**entry, "synonyms": ()} for entry in entries]
    return {
        "error_code": error,
        "error_message": message,
        "resource_type": item.resource_type,
        "resource_name": item.resource_name,
        "configs": entries,
    }
