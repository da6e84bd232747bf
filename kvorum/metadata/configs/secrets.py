"""The values that no output may show: only this module decides, for configs, properties, records.

Logs, trees, exports, dumps, events, DescribeConfigs and the console show `[hidden]`, or nothing, in
the place of such a value.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from kvorum.metadata.configs.config_keys import CONFIGS_OF, broker_key
from kvorum.metadata.configs.model import is_hidden
from kvorum.metadata.image.image import RESOURCE_BROKER
from kvorum.metadata.image.records import HIDDEN, Record


def shown_config(resource_type: int, name: str, value: str | None) -> str | None:
    """The value of a config in the metadata, `[hidden]` for a password.

    A config that is not known may be anything, so it is hidden too, as DescribeConfigs does.
    """
    if resource_type == RESOURCE_BROKER:
        key = broker_key(name)
    else:
        key = CONFIGS_OF.get(resource_type, {}).get(name)
    return HIDDEN if value is not None and is_hidden(key) else value


def hidden_fields(thing: object) -> tuple[str, ...]:
    """The fields of a record, or of a part of the image, whose values are secrets."""
    fields: tuple[str, ...] = getattr(thing, "SECRETS", ())
    return fields


def record_to_dict(record: Record) -> dict[str, Any]:
    """The record's fields by name, uuids as bytes, secrets hidden; for printing and export."""
    fields = dataclasses.asdict(record)
    shown = fields | dict.fromkeys(hidden_fields(record), HIDDEN)
    if "resource_type" in fields and "value" in fields:
        shown["value"] = shown_config(fields["resource_type"], fields["name"], fields["value"])
    return shown


def is_password(name: str) -> bool:
    """True for a property of a node whose value is a password or a key, also for one of a single
    listener or mechanism: `listener.name.clients.plain.sasl.jaas.config`."""
    key = broker_key(name)
    if key is not None:
        return key.is_sensitive
    parts = name.split(".")
    ends = (broker_key(".".join(parts[at:])) for at in range(1, len(parts)))
    return any(end is not None and end.is_sensitive for end in ends)
