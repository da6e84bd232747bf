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
from kvorum.metadata.image.image import RESOURCE_BROKER, ClusterImage

CLUSTER_DEFAULT = ""
"""Resource name for the default of all brokers."""

_NOTHING: Mapping[str, str] = {}
_NUMBER = ConfigKey(name="", type=ConfigType.LONG, default=None, documentation="")


class ConfigSource(enum.IntEnum):
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
    source: ConfigSource
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
    """All levels at which a broker's key has a value, nearest first, in coarser units too.

    own: set for this broker.
    shared: set for all brokers.
    static: from its file, with defaults. At each level the finest unit comes first.
    """
    found = []
    if key.name in own:
        found.append(Setting(key.name, own[key.name], ConfigSource.DYNAMIC_BROKER))
    if key.name in shared:
        found.append(Setting(key.name, shared[key.name], ConfigSource.DYNAMIC_DEFAULT_BROKER))
    names = ((key.name, 1), *key.coarser)
    for name, unit in names:
        start = static.get(name)
        if start is not None and start.is_given:
            found.append(Setting(name, start.value, ConfigSource.STATIC_BROKER, unit))
    # As in Kafka, where only the coarsest unit has a default.
    name, unit = names[-1]
    default = key.default if name == key.name else BROKER_CONFIGS[name].default
    if default is not None:
        found.append(Setting(name, default, ConfigSource.DEFAULT, unit))
    return tuple(found)


def shown_settings(name: str, levels: tuple[Setting, ...]) -> tuple[Setting, ...]:
    """The levels that an answer shows for a broker's key. As in Kafka, coarser units show only
    beside the key itself: with log.retention.hours alone, log.retention.ms has no level."""
    return levels if any(level.name == name for level in levels) else ()
