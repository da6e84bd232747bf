"""The effective value of a config: Kafka's levels, nearest first.

The levels of a topic config are: the topic's own value; then those of the broker property behind
it: set on this broker, set as the default of all brokers, in the broker's file, Kafka's default. A
broker's key lacks the first level.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from kvorum.metadata.configs.broker_keys import BROKER_CONFIGS
from kvorum.metadata.configs.model import ConfigKey, ConfigType, parse
from kvorum.metadata.configs.topic_keys import TOPIC_CONFIGS
from kvorum.metadata.image.image import RESOURCE_BROKER, ClusterImage

CLUSTER_DEFAULT = ""
"""Resource name for the default of all brokers."""

_NOTHING: Mapping[str, str] = {}
_NUMBER = ConfigKey(name="", type=ConfigType.LONG, default=None, documentation="")


class Source(enum.IntEnum):
    """The source of a value; Kafka's numbers."""

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
    """The value of a key at one level.

    unit: of the value, in units of the requested key: log.retention.hours gives a value for
        log.retention.ms in units of 3,600,000.
    """

    name: str
    value: str | None
    source: Source
    unit: int = 1

    @property
    def value_held(self) -> str | None:
        """The value in the unit of the requested key."""
        number = None if self.value is None or self.unit == 1 else parse(_NUMBER, self.value)
        return in_finer_units(number, self.unit) if isinstance(number, int) else self.value


@dataclass(frozen=True, slots=True)
class StaticValue:
    """A property as of the broker's start. is_given: it is in the broker's file, not a default."""

    value: str
    is_given: bool


def in_finer_units(number: int, unit: int) -> str:
    """`number` units as text, in the finer unit; -1 stays -1, no limit."""
    return str(number * unit) if number >= 0 else "-1"


def broker_configs(image: ClusterImage, name: str) -> Mapping[str, str]:
    """The values set for a broker (its id as text) or for all brokers (CLUSTER_DEFAULT)."""
    return image.configs.get((RESOURCE_BROKER, name), _NOTHING)


def broker_settings(
    key: ConfigKey,
    *,
    own: Mapping[str, str],
    shared: Mapping[str, str],
    static: Mapping[str, StaticValue],
) -> tuple[Setting, ...]:
    """All levels at which a broker's key has a value, nearest first.

    own: set for this broker. shared: set for all brokers. static: from its file, with defaults. At
        each level the finest unit comes first.
    """
    found = []
    if key.name in own:
        found.append(Setting(key.name, own[key.name], Source.DYNAMIC_BROKER))
    if key.name in shared:
        found.append(Setting(key.name, shared[key.name], Source.DYNAMIC_DEFAULT_BROKER))
    names = ((key.name, 1), *key.coarser)
    for name, unit in names:
        start = static.get(name)
        if start is not None and start.is_given:
            found.append(Setting(name, start.value, Source.STATIC_BROKER, unit))
    # As in Kafka, where only the coarsest unit has a default.
    name, unit = names[-1]
    default = key.default if unit == 1 else BROKER_CONFIGS[name].default
    if default is not None:
        found.append(Setting(name, default, Source.DEFAULT, unit))
    if key.default is None and not any(level.name == key.name for level in found):
        return ()  # as in Kafka: log.retention.minutes does not show log.retention.hours
    return tuple(found)


def topic_config_value(image: ClusterImage, topic: str, name: str) -> str | None:
    """A topic's config as a controller sees it, without the brokers' files.

    The topic's own value, else the default set for all brokers, else Kafka's default. None for a
    key that is neither in the table nor set.
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
