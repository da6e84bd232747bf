"""Configs as DescribeConfigs and CreateTopics answer them: value, source, synonyms, type.

As in Kafka, values are shown as they are parsed, and brokers' synonyms as they were typed.
Entries that a topic has not overridden are the same for all topics. They are built once and kept
until a broker's config changes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from kvorum.metadata.configs.config_keys import (
    BROKER_CONFIGS,
    CONFIGS_OF,
    TOPIC_CONFIGS,
    broker_key,
)
from kvorum.metadata.configs.effective import (
    CLUSTER_DEFAULT,
    ConfigSource,
    Setting,
    StaticValue,
    broker_configs,
    broker_settings,
    shown_settings,
)
from kvorum.metadata.configs.model import ConfigKey, ConfigType, Update, is_hidden
from kvorum.metadata.image.image import RESOURCE_GROUP, ClusterImage

Entry = dict[str, Any]
_Configs = Mapping[str, str]


class ConfigEntries:
    """The config entries that one broker answers with.

    properties: all properties that the broker was started with.
    image: as clients are shown it.
    """

    def __init__(
        self,
        broker_id: int,
        properties: Mapping[str, StaticValue],
        image: Callable[[], ClusterImage],
    ) -> None:
        self._broker_id = broker_id
        self._properties = properties
        self._image = image
        self._defaults: dict[bool, tuple[tuple[_Configs, _Configs], dict[str, Entry]]] = {}
        """The configs of brokers, and what a topic without overrides then has."""

    def of_topic(
        self, topic: str, *, with_documentation: bool, is_typed: bool = False
    ) -> list[Entry]:
        """Every config of a topic as this broker applies it, by name.

        is_typed: the topic's own values as they were typed, as in Kafka's answer to CreateTopics.
        """
        shared = self._topic_defaults(with_documentation)
        overrides = self._image().topic_configs(topic)
        if not overrides:
            return list(shared.values())
        entries = dict(shared)
        for name, value in overrides.items():
            key = TOPIC_CONFIGS.get(name)
            below = () if key is None else self._settings_behind(key)
            own = _own_setting(name, key, value, ConfigSource.DYNAMIC_TOPIC)
            entries[name] = _entry(name, key, below, own=own, with_documentation=with_documentation)
            if is_typed and not entries[name]["is_sensitive"]:
                entries[name]["value"] = value
        return [entries[name] for name in sorted(entries)]

    def of_broker(self, *, with_documentation: bool) -> list[Entry]:
        """Every config of this broker, by name."""
        image = self._image()
        own = broker_configs(image, str(self._broker_id))
        shared = broker_configs(image, CLUSTER_DEFAULT)
        entries = []
        names = {*BROKER_CONFIGS, *_taken_while_running(), *self._properties, *own, *shared}
        for name in sorted(names):
            key = broker_key(name)
            levels = self._broker_level(name, key)
            entries.append(
                _entry(name, key, levels, is_brokers=True, with_documentation=with_documentation)
            )
        return entries

    def of_all_brokers(self, *, with_documentation: bool) -> list[Entry]:
        """The dynamic configs set for all brokers; as in Kafka, that resource shows no other."""
        shared = broker_configs(self._image(), CLUSTER_DEFAULT)
        entries = []
        for name in sorted(shared):
            levels = (Setting(name, shared[name], ConfigSource.DYNAMIC_DEFAULT_BROKER),)
            key = broker_key(name)
            entry = _entry(
                name, key, levels, is_brokers=True, with_documentation=with_documentation
            )
            if not entry["is_sensitive"]:
                entry["value"] = shared[name]  # as it was typed, as in Kafka
            entries.append(entry)
        return entries

    def of_named(self, kind: int, name: str, *, with_documentation: bool) -> list[Entry]:
        """Every config of a group or of a client-metrics subscription; neither need exist."""
        source = ConfigSource.GROUP if kind == RESOURCE_GROUP else ConfigSource.CLIENT_METRICS
        table = CONFIGS_OF[kind]
        own: Mapping[str, str] = self._image().configs.get((kind, name), {})
        entries = []
        shown = (key.name for key in table.values() if not key.is_internal)
        for key_name in sorted({*shown, *own}):
            key = table.get(key_name)
            below = () if key is None else self._settings_behind(key)
            set_here = None
            if key_name in own:
                set_here = _own_setting(key_name, key, own[key_name], source)
            entries.append(
                _entry(key_name, key, below, own=set_here, with_documentation=with_documentation)
            )
        return entries

    def _topic_defaults(self, with_documentation: bool) -> Mapping[str, Entry]:
        """Entries of a topic without overrides."""
        image = self._image()
        basis = (
            broker_configs(image, str(self._broker_id)),
            broker_configs(image, CLUSTER_DEFAULT),
        )
        kept = self._defaults.get(with_documentation)
        # Compare by identity: images share maps that did not change.
        if kept is not None and kept[0][0] is basis[0] and kept[0][1] is basis[1]:
            return kept[1]
        entries = {
            name: _entry(
                name, key, self._settings_behind(key), with_documentation=with_documentation
            )
            for name, key in TOPIC_CONFIGS.items()
        }
        self._defaults[with_documentation] = (basis, entries)
        return entries

    def _settings_behind(self, key: ConfigKey) -> tuple[Setting, ...]:
        """The broker settings that a topic's config falls back to; empty if to none."""
        if not key.broker_name:
            return ()
        behind = broker_key(key.broker_name)
        found = self._broker_level(key.broker_name, behind)
        default = key.default if behind is None else behind.default
        if not found and default is not None:
            return (Setting(key.broker_name, default, ConfigSource.DEFAULT),)
        return found

    def _broker_level(self, name: str, key: ConfigKey | None) -> tuple[Setting, ...]:
        image = self._image()
        own = broker_configs(image, str(self._broker_id))
        shared = broker_configs(image, CLUSTER_DEFAULT)
        if key is not None:
            return broker_settings(key, own=own, shared=shared, static=self._properties)
        found = []
        if name in own:
            found.append(Setting(name, own[name], ConfigSource.DYNAMIC_BROKER))
        if name in shared:
            found.append(Setting(name, shared[name], ConfigSource.DYNAMIC_DEFAULT_BROKER))
        if name in self._properties:
            found.append(Setting(name, self._properties[name].value, ConfigSource.STATIC_BROKER))
        return tuple(found)


@functools.cache
def _taken_while_running() -> tuple[str, ...]:
    """Kafka's configs without an effect here that may be set while a broker runs, or are secret:
    tools ask for these."""
    # Imported only here, as in `broker_key`.
    from kvorum.metadata.configs.kafka_keys import kafka_keys

    return tuple(
        name
        for name, key in kafka_keys().items()
        if key.update is not Update.READ_ONLY or key.is_sensitive
    )


def _own_setting(name: str, key: ConfigKey | None, value: str, source: ConfigSource) -> Setting:
    """The value that a topic, a group or a subscription has itself."""
    return Setting(name, value if key is None else key.canonical(value), source)


def _entry(
    name: str,
    key: ConfigKey | None,
    below: tuple[Setting, ...],
    *,
    own: Setting | None = None,
    is_brokers: bool = False,
    with_documentation: bool,
) -> Entry:
    """One entry of the answer.

    own: what is set for the resource itself.
    below: the levels of the broker's key, nearest first.
    is_brokers: the resource is a broker, or all brokers.
    """
    set_here = () if own is None else (own,)
    shown = shown_settings(name if is_brokers or key is None else key.broker_name, below)
    levels = (*set_here, *shown)
    held = levels if is_brokers else (*set_here, *below)
    value = None if key is None else key.default
    if held:
        value = held[0].value_held
    if value is not None and key is not None:
        value = key.canonical(value)
    is_sensitive = is_hidden(key)
    is_read_only = key is None or key.is_fixed
    if key is not None and is_brokers and key.update is Update.READ_ONLY:
        is_read_only = True
    return {
        "name": name,
        "value": None if is_sensitive else value,
        "read_only": is_read_only,
        "config_source": levels[0].source if levels else ConfigSource.DEFAULT,
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
