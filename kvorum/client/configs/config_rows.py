"""Configs and quotas in the form of the commands: requests for changes, and rows of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvorum.client.failures import Row
from kvorum.metadata.configs.effective import ConfigSource as Source
from kvorum.metadata.configs.loggers import RESOURCE_BROKER_LOGGER
from kvorum.metadata.configs.loggers import SOURCE as LOGGER_SOURCE
from kvorum.metadata.configs.model import ConfigType
from kvorum.metadata.configs.quotas import (
    MATCH_ANY,
    MATCH_DEFAULT,
    MATCH_EXACT,
    QuotaFilter,
    entity_text,
)
from kvorum.metadata.image.image import RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC
from kvorum.metadata.image.records import QuotaEntity
from kvorum.metadata.requests.config_requests import (
    AlterClientQuotas,
    AlterConfigs,
    ConfigAlteration,
    ConfigOperation,
    Operation,
    QuotaAlteration,
    QuotaOperation,
)

BROKER_LOGGER = "broker-logger"
GROUP = "group"
RESOURCE_TYPES = {
    "topic": RESOURCE_TOPIC,
    "broker": RESOURCE_BROKER,
    BROKER_LOGGER: RESOURCE_BROKER_LOGGER,
    GROUP: RESOURCE_GROUP,
}

Change = tuple[str, str, str | None]
"""(set, delete, append or subtract; key; value)."""


def alteration(kind: str, name: str, changes: Sequence[Change], *, dry_run: bool) -> AlterConfigs:
    """The IncrementalAlterConfigs request for these changes."""
    return AlterConfigs(
        resources=(
            ConfigAlteration(
                resource_type=RESOURCE_TYPES[kind],
                resource_name=name,
                operations=tuple(
                    ConfigOperation(name=key, kind=Operation[op.upper()], value=value)
                    for op, key, value in changes
                ),
            ),
        ),
        validate_only=dry_run,
    )


def quota_alteration(
    entity: QuotaEntity, quotas: Sequence[tuple[str, float | None]], *, dry_run: bool
) -> AlterClientQuotas:
    """The AlterClientQuotas request for these changes."""
    operations = tuple(QuotaOperation(key=key, value=value) for key, value in quotas)
    entry = QuotaAlteration(entity=entity, operations=operations)
    return AlterClientQuotas(entries=(entry,), validate_only=dry_run)


def filter_of(entity: QuotaEntity, types: Sequence[str]) -> tuple[QuotaFilter, ...]:
    """The filter that finds this entity; a type without a name matches any name."""
    exact = tuple(
        QuotaFilter(
            entity_type=kind, match_type=MATCH_DEFAULT if name is None else MATCH_EXACT, match=name
        )
        for kind, name in entity
    )
    return exact + tuple(QuotaFilter(entity_type=t, match_type=MATCH_ANY) for t in types)


def label(kind: str, name: str) -> str:
    """`topic=orders`, `broker=<default>`."""
    return f"{kind}={name or '<default>'}"


def config_row(
    kind: str,
    name: str,
    key: str,
    value: str | None,
    source: int,
    *,
    type_number: int = 0,
    read_only: bool = False,
    is_sensitive: bool = False,
    synonyms: Sequence[tuple[str, str | None, int]] = (),
) -> Row:
    return {
        "entity": label(kind, name),
        "name": key,
        "value": value,
        "source": _source_name(source),
        "type": ConfigType(type_number).name,
        "read_only": read_only,
        "is_sensitive": is_sensitive,
        "synonyms": [
            {"name": n, "value": v, "source": _source_name(number)} for n, v, number in synonyms
        ],
    }


def quota_rows(entity: QuotaEntity, quotas: Any) -> list[Row]:
    return [
        {"entity": entity_text(entity), "name": key, "value": quotas[key]} for key in sorted(quotas)
    ]


def _source_name(number: int) -> str:
    if number == LOGGER_SOURCE:
        return "DYNAMIC_BROKER_LOGGER_CONFIG"
    # A newer Apache Kafka may have sources that this build has no name for.
    known = number in set(Source)
    return f"{Source(number).name}_CONFIG" if known else str(number)
