"""Which value of a key holds: the levels of Kafka, nearest first.

A topic's own, then of the broker property behind it: set on this broker, set as the default of all
brokers, in the broker's file, Kafka's own default. A broker's key lacks the first level.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from metadata.configs.broker_keys import BROKER_CONFIGS
from metadata.configs.model import ConfigKey
from metadata.configs.topic_keys import TOPIC_CONFIGS
from metadata.image import RESOURCE_BROKER, ClusterImage

CLUSTER_DEFAULT = ""
"""Resource name of the default of all brokers."""

_NOTHING: Mapping[str, str] = {}


class Source(enum.IntEnum):
    """Where a value comes from; Kafka's numbers."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class Setting:
    """One level at which a key has a value."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class StaticValue:
    """A property as a broker's own start found it. is_given: in its file, not the default."""

    value: str
    is_given: bool


def broker_configs(image: ClusterImage, name: str) -> Mapping[str, str]:
    """What is set for a broker (its id as text) or for all (CLUSTER_DEFAULT)."""
    return image.configs.get((RESOURCE_BROKER, name), _NOTHING)


def broker_settings(
    key: ConfigKey,
    *,
    own: Mapping[str, str],
    shared: Mapping[str, str],
    static: Mapping[str, StaticValue],
) -> tuple[Setting, ...]:
    """All levels at which a broker's key has a value, nearest first.

    own: set for this broker; shared: for all; static: its file and defaults.
    """
    found = []
    if key.name in own:
        found.append(Setting(key.name, own[key.name], Source.DYNAMIC_BROKER))
    if key.name in shared:
        found.append(Setting(key.name, shared[key.name], Source.DYNAMIC_DEFAULT_BROKER))
    start = static.get(key.name)
    if start is not None and start.is_given:
        found.append(Setting(key.name, start.value, Source.STATIC_BROKER))
    if key.default is not None:
        found.append(Setting(key.name, key.default, Source.DEFAULT))
    return tuple(found)


def topic_config_value(image: ClusterImage, topic: str, name: str) -> str | None:
    """A topic's config as a controller sees it, who knows no broker's file.

    The topic's own value, else the default set for all brokers, else Kafka's. None for a key that
    is not in the table and not set.
    """
    value = image.topic_configs(topic).get(name)
    if value is not None:
        return value
    key = TOPIC_CONFIGS.get(name)
    if key is None:
        return None
    if key.broker_name in BROKER_CONFIGS:
        value = broker_configs(image, CLUSTER_DEFAULT).get(key.broker_name)
    return key.default if value is None else value
