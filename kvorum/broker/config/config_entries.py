"""Configs as DescribeConfigs and CreateTopics answer them: value, source, synonyms, type.

Entries that a topic has not overridden are the same for all topics. They are built once and kept
until a broker's config changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from kvorum.metadata.configs.config_keys import (
    BROKER_CONFIGS,
    CONFIGS_OF,
    TOPIC_CONFIGS,
    broker_key,
)
from kvorum.metadata.configs.effective import (
    CLUSTER_DEFAULT,
    Setting,
    Source,
    StaticValue,
    broker_configs,
    broker_settings,
)
from kvorum.metadata.configs.model import ConfigKey, ConfigType, Update, is_hidden
from kvorum.metadata.image.image import RESOURCE_GROUP, ClusterImage

Entry = dict[str, Any]


class DescribedBroker(Protocol):
    """The parts of a broker that its configs are computed from."""

    @property
    def broker_id(self) -> int: ...

    @property
    def properties(self) -> Mapping[str, StaticValue]:
        """All properties that the broker was started with."""
        ...

    @property
    def caches(self) -> dict[str, Any]: ...

    def image(self) -> ClusterImage: ...


def topic_entries(broker: DescribedBroker, topic: str, *, with_documentation: bool) -> list[Entry]:
    """Every config of a topic as this broker applies it, by name."""
    shared = _topic_defaults(broker, with_documentation)
    overrides = broker.image().topic_configs(topic)
    if not overrides:
        return list(shared.values())
    entries = dict(shared)
    for name, value in overrides.items():
        key = TOPIC_CONFIGS.get(name)
        below = () if key is None else _settings_behind(broker, key)
        settings = (Setting(name, value, Source.DYNAMIC_TOPIC), *below)
        entries[name] = _entry(name, key, settings, with_documentation=with_documentation)
    return [entries[name] for name in sorted(entries)]


def broker_entries(broker: DescribedBroker, *, with_documentation: bool) -> list[Entry]:
    """Every config of this broker, by name."""
    image = broker.image()
    own = broker_configs(image, str(broker.broker_id))
    shared = broker_configs(image, CLUSTER_DEFAULT)
    entries = []
    for name in sorted({*BROKER_CONFIGS, *broker.properties, *own, *shared}):
        key = broker_key(name)
        settings = _broker_level(broker, name, key)
        entries.append(_entry(name, key, settings, with_documentation=with_documentation))
    return entries


def cluster_default_entries(broker: DescribedBroker, *, with_documentation: bool) -> list[Entry]:
    """The dynamic configs set for all brokers; as in Kafka, this resource shows nothing else."""
    shared = broker_configs(broker.image(), CLUSTER_DEFAULT)
    return [
        _entry(
            name,
            broker_key(name),
            (Setting(name, shared[name], Source.DYNAMIC_DEFAULT_BROKER),),
            with_documentation=with_documentation,
        )
        for name in sorted(shared)
    ]


def named_entries(
    broker: DescribedBroker, kind: int, name: str, *, with_documentation: bool
) -> list[Entry]:
    """Every config of a group or of a client-metrics subscription; neither need exist."""
    source = Source.GROUP if kind == RESOURCE_GROUP else Source.CLIENT_METRICS
    table = CONFIGS_OF[kind]
    own: Mapping[str, str] = broker.image().configs.get((kind, name), {})
    entries = []
    for key_name in sorted({*table, *own}):
        key = table.get(key_name)
        below = () if key is None else _settings_behind(broker, key)
        set_here = (Setting(key_name, own[key_name], source),) if key_name in own else ()
        entries.append(
            _entry(key_name, key, (*set_here, *below), with_documentation=with_documentation)
        )
    return entries


def _topic_defaults(broker: DescribedBroker, with_documentation: bool) -> Mapping[str, Entry]:
    """Entries of a topic without overrides."""
    image = broker.image()
    basis = (
        broker_configs(image, str(broker.broker_id)),
        broker_configs(image, CLUSTER_DEFAULT),
    )
    cache = broker.caches.setdefault("topic_defaults", {})
    kept = cache.get(with_documentation)
    # Compare by identity: images share maps that did not change.
    if kept is not None and kept[0][0] is basis[0] and kept[0][1] is basis[1]:
        entries: dict[str, Entry] = kept[1]
        return entries
    entries = {
        name: _entry(
            name, key, _settings_behind(broker, key), with_documentation=with_documentation
        )
        for name, key in TOPIC_CONFIGS.items()
    }
    cache[with_documentation] = (basis, entries)
    return entries


def _settings_behind(broker: DescribedBroker, key: ConfigKey) -> tuple[Setting, ...]:
    """The broker settings that a topic's config falls back to; empty if it falls back to none."""
    if not key.broker_name:
        return ()
    found = _broker_level(broker, key.broker_name, BROKER_CONFIGS.get(key.broker_name))
    if not found and key.default is not None:
        return (Setting(key.broker_name, key.default, Source.DEFAULT),)
    return found


def _broker_level(broker: DescribedBroker, name: str, key: ConfigKey | None) -> tuple[Setting, ...]:
    image = broker.image()
    own = broker_configs(image, str(broker.broker_id))
    shared = broker_configs(image, CLUSTER_DEFAULT)
    if key is not None:
        return broker_settings(key, own=own, shared=shared, static=broker.properties)
    found = []
    if name in own:
        found.append(Setting(name, own[name], Source.DYNAMIC_BROKER))
    if name in shared:
        found.append(Setting(name, shared[name], Source.DYNAMIC_DEFAULT_BROKER))
    if name in broker.properties:
        found.append(Setting(name, broker.properties[name].value, Source.STATIC_BROKER))
    return tuple(found)


def _entry(
    name: str,
    key: ConfigKey | None,
    settings: Iterable[Setting],
    *,
    with_documentation: bool,
) -> Entry:
    """One entry of the answer. settings: nearest first."""
    levels = tuple(settings)
    value = None if key is None else key.default
    if levels:
        value = levels[0].value_held
    is_sensitive = is_hidden(key)
    is_read_only = key is None or key.is_fixed
    if key is not None and not key.broker_name and key.update is Update.READ_ONLY:
        is_read_only = True
    return {
        "name": name,
        "value": None if is_sensitive else value,
        "read_only": is_read_only,
        "config_source": levels[0].source if levels else Source.DEFAULT,
        "is_sensitive": is_sensitive,
        "synonyms": [
            {
                "name": level.name,
                "value": None if is_sensitive else level.value,
                "source": level.source,
            }
            for level in levels
        ],
        "config_type": ConfigType.UNKNOWN if key is None else key.type,
        "documentation": key.documentation if key is not None and with_documentation else None,
    }
