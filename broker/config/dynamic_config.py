"""A broker's own settings with what is set in the metadata on top (KIP-226). Pure.

Set for this broker goes before set for all, and that before the broker's file. Only keys that the
table calls dynamic count: the others are read at the start, and a change would be a lie.
"""

from __future__ import annotations

import dataclasses

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.metadata.configs.config_keys import BROKER_CONFIGS, ignored_config
from kvorum.metadata.configs.effective import CLUSTER_DEFAULT, StaticValue, broker_configs
from kvorum.metadata.configs.model import Update, parse
from kvorum.metadata.image.image import ClusterImage


def with_dynamic(static: BrokerConfig, image: ClusterImage, broker_id: int) -> BrokerConfig:
    """The settings of this broker with dynamic configs on top. static: the settings from its
    file."""
    changes: dict[str, int | float | bool | str] = {}
    for resource_name, allowed in (
        (CLUSTER_DEFAULT, (Update.DYNAMIC, Update.CLUSTER)),
        (str(broker_id), (Update.DYNAMIC,)),
    ):
        for name, value in broker_configs(image, resource_name).items():
            key = BROKER_CONFIGS.get(name)
            # An unknown key or a value that does not parse was set by a newer version: what it
            # means is not known here, and the level below holds.
            if key is not None and key.update in allowed:
                parsed = parse(key, value)
                if parsed is not None:
                    changes[name.replace(".", "_")] = parsed
    return dataclasses.replace(static, **changes) if changes else static  # type: ignore[arg-type]


def ignored_configs(image: ClusterImage, broker_id: int) -> dict[str, str]:
    """The configs of this broker, and of all, that change nothing: name to a line for the log."""
    values = {**broker_configs(image, CLUSTER_DEFAULT), **broker_configs(image, str(broker_id))}
    lines = ((name, ignored_config(name, value)) for name, value in sorted(values.items()))
    return {name: line for name, line in lines if line is not None}


def static_values(config: BrokerConfig) -> dict[str, StaticValue]:
    """A BrokerConfig as properties; what differs from the default counts as given."""
    return {
        field.name.replace("_", "."): StaticValue(text_of(value), value != field.default)
        for field in dataclasses.fields(config)
        for value in (getattr(config, field.name),)
    }


def text_of(value: object) -> str:
    """A property's value as Kafka prints it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
