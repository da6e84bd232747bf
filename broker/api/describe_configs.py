"""DescribeConfigs (32). Served: v1-4, for topics (2) and for this broker (4).

Lists the keys that Kvorum knows (broker/topic_config, broker/config), not all of Kafka's.
Missing: broker loggers, client metrics, groups (error 42), documentation texts.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from broker.config import BrokerConfig
from broker.context import RequestContext
from broker.topic_config import TOPIC_KEYS, TopicKey, default_text
from metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from runtime.errors import ErrorCode
from wire.versions import Api

API = Api(key=32, name="describe_configs", min_version=1, max_version=4, first_flexible=4)

SOURCE_TOPIC = 1
SOURCE_STATIC_BROKER = 4
SOURCE_DEFAULT = 5
TYPE_BOOLEAN, TYPE_STRING, TYPE_INT, TYPE_LONG = 1, 2, 3, 5


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    with_synonyms = request.include_synonyms
    return {"results": [_describe(context, item, with_synonyms) for item in request.resources]}


def topic_entries(context: RequestContext, topic: str) -> list[dict[str, Any]]:
    """Every known config of a topic as this broker applies it."""
    overrides = context.services.image().topic_configs(topic)
    return [_topic_entry(context.services.config, key, overrides) for key in TOPIC_KEYS]


def _describe(context: RequestContext, item: Any, with_synonyms: bool) -> dict[str, Any]:
    error, message, entries = ErrorCode.NONE, None, []
    kind, name = item.resource_type, item.resource_name
    if kind == RESOURCE_TOPIC:
        if context.services.image().topic(name) is None:
            error, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name!r}"
        else:
            entries = topic_entries(context, name)
    elif kind == RESOURCE_BROKER:
        if name not in ("", str(context.services.broker_id)):
            error = ErrorCode.INVALID_REQUEST
            message = f"this is broker {context.services.broker_id}, not {name!r}"
        elif name:
            entries = _broker_entries(context.services.config)
    else:
        error, message = ErrorCode.INVALID_REQUEST, f"resource type {kind} is not served"
    wanted = item.configuration_keys
    if wanted:
        entries = [entry for entry in entries if entry["name"] in wanted]
    if not with_synonyms:
        entries = [{**entry, "synonyms": ()} for entry in entries]
    return {
        "error_code": error,
        "error_message": message,
        "resource_type": kind,
        "resource_name": name,
        "configs": entries,
    }


def _topic_entry(config: BrokerConfig, key: TopicKey, overrides: Any) -> dict[str, Any]:
    default = default_text(config, key)
    value = overrides.get(key.name)
    synonyms = [{"name": key.broker_name, "value": default, "source": SOURCE_DEFAULT}]
    if value is not None:
        synonyms.insert(0, {"name": key.name, "value": value, "source": SOURCE_TOPIC})
    return {
        "name": key.name,
        "value": default if value is None else value,
        "read_only": False,
        "config_source": SOURCE_DEFAULT if value is None else SOURCE_TOPIC,
        "is_sensitive": False,
        "synonyms": synonyms,
        "config_type": TYPE_LONG if key.kind == "int" else TYPE_STRING,
        "documentation": None,
    }


def _broker_entries(config: BrokerConfig) -> list[dict[str, Any]]:
    entries = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        name = field.name.replace("_", ".")
        is_default = value == field.default
        source = SOURCE_DEFAULT if is_default else SOURCE_STATIC_BROKER
        text = str(value).lower() if isinstance(value, bool) else str(value)
        kind = TYPE_STRING
        if isinstance(value, int):
            kind = TYPE_BOOLEAN if isinstance(value, bool) else TYPE_LONG
        entries.append(
            {
                "name": name,
                "value": text,
                "read_only": True,
                "config_source": source,
                "is_sensitive": False,
                "synonyms": [{"name": name, "value": text, "source": source}],
                "config_type": kind,
                "documentation": None,
            }
        )
    return entries
