"""DescribeConfigs (32). Served: v1-4.

Resources: topics (2), this broker (4), the cluster default (4 with an empty name), client-metrics
subscriptions (16), groups (32), and the levels of this broker's loggers (8, KIP-412). Keys of
topics and brokers that Kvorum does not apply are shown with their defaults and as read-only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kvorum.broker.api.config_alteration import refusal_of_configs
from kvorum.broker.api.context import RequestContext
from kvorum.broker.config.config_entries import Entry
from kvorum.broker.metadata_answers.topic_names import name_refusal
from kvorum.metadata.configs.loggers import RESOURCE_BROKER_LOGGER, logger_entries
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.image.image import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.versions import Api

API = Api(key=32, name="describe_configs", min_version=1, max_version=4, first_flexible=4)
ACCESS = (
    (AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC),
    (AclOperation.DESCRIBE_CONFIGS, ResourceType.GROUP),
    (AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),
)
"""The last for brokers, their loggers and client metrics."""


_NAMELESS = {
    RESOURCE_CLIENT_METRICS: "Client metrics subscription name must not be empty",
    RESOURCE_GROUP: "Group name must not be empty",
}


class _Asked(NamedTuple):
    """One resource of the request. keys: the requested configs, empty for all."""

    kind: int
    name: str
    keys: set[str]


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    # This field exists from v3 on.
    with_documentation = getattr(request, "include_documentation", False)
    return {
        "results": [
            _answer(
                asked,
                _describe(context, asked, with_documentation),
                with_synonyms=request.include_synonyms,
            )
            for asked in _each_once(request.resources)
        ]
    }


def _each_once(resources: Iterable[Any]) -> Iterable[_Asked]:
    """Each resource once, with all keys requested for it: a repeated name costs a few bytes in the
    request, and thousands in the answer."""
    found: dict[tuple[int, str], set[str]] = {}
    for item in resources:
        # Null and empty both mean all keys.
        keys = set(item.configuration_keys or ())
        known = found.setdefault((item.resource_type, item.resource_name), keys)
        if keys and known:
            known |= keys
        else:
            known.clear()
    return [_Asked(kind, name, keys) for (kind, name), keys in found.items()]


def _describe(
    context: RequestContext, asked: _Asked, with_documentation: bool
) -> list[Entry] | Rejected:
    services = context.services
    kind, name = asked.kind, asked.name
    refused = refusal_of_configs(context, AclOperation.DESCRIBE_CONFIGS, kind, name)
    if refused is not None:
        return refused
    if kind == RESOURCE_TOPIC:
        reason = name_refusal(name)
        if reason is not None:
            return Rejected(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        if services.image().topic(name) is None:
            return Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name!r}")
        return services.config_entries.of_topic(name, with_documentation=with_documentation)
    if kind == RESOURCE_BROKER:
        if not name:
            return services.config_entries.of_all_brokers(with_documentation=with_documentation)
        if name != str(services.broker_id):
            return Rejected(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {services.broker_id} or empty string, but "
                f"received {name!r}; ask that broker itself",
            )
        return services.config_entries.of_broker(with_documentation=with_documentation)
    if kind == RESOURCE_BROKER_LOGGER:
        if name != str(services.broker_id):
            return Rejected(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {services.broker_id} but received {name!r}; ask "
                "that broker itself",
            )
        return logger_entries()
    if kind not in _NAMELESS:
        return Rejected(ErrorCode.INVALID_REQUEST, f"resource type {kind} is not served")
    if not name:
        return Rejected(ErrorCode.INVALID_REQUEST, _NAMELESS[kind])
    return services.config_entries.of_named(kind, name, with_documentation=with_documentation)


def _answer(asked: _Asked, found: list[Entry] | Rejected, *, with_synonyms: bool) -> dict[str, Any]:
    error, message, entries = ErrorCode.NONE, None, []
    if isinstance(found, Rejected):
        error, message = found.code, found.message
    else:
        entries = found
    if asked.keys:
        entries = [entry for entry in entries if entry["name"] in asked.keys]
    if not with_synonyms:
        entries = [{**entry, "synonyms": ()} for entry in entries]
    return {
        "error_code": error,
        "error_message": message,
        "resource_type": asked.kind,
        "resource_name": asked.name,
        "configs": entries,
    }
