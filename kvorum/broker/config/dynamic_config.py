"""A broker's static configs, overridden by dynamic configs in the metadata (KIP-226). Pure.

A config of this broker overrides the cluster default, which overrides the broker's file. Only keys
that the table marks as dynamic count. All others are read at the start alone, so a change of them
must not show. Certificates are read elsewhere (`kvorum/launch`).
"""

from __future__ import annotations

import dataclasses

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.metadata.configs.config_keys import (
    BROKER_CONFIGS,
    ignored_config,
    is_certificate_key,
    limited_listener,
)
from kvorum.metadata.configs.effective import CLUSTER_DEFAULT, StaticValue, broker_configs
from kvorum.metadata.configs.model import Update, parse
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.text import whole_number


def with_dynamic(static: BrokerConfig, image: ClusterImage, broker_id: int) -> BrokerConfig:
    """The static configs of this broker with its dynamic configs on top. static: as read from its
    file."""
    changes: dict[str, int | float | bool | str] = {}
    for resource_name, allowed in (
        (CLUSTER_DEFAULT, (Update.DYNAMIC, Update.CLUSTER)),
        (str(broker_id), (Update.DYNAMIC, Update.PER_BROKER)),
    ):
        for name, value in broker_configs(image, resource_name).items():
            key = BROKER_CONFIGS.get(name)
            # A newer version set an unknown key or a value that does not parse. Its meaning is
            # unknown here, so the level below applies.
            if key is not None and key.update in allowed and not is_certificate_key(name):
                parsed = parse(key, value)
                if parsed is not None:
                    changes[name.replace(".", "_")] = parsed
    return dataclasses.replace(static, **changes) if changes else static  # type: ignore[arg-type]


def listener_limits(image: ClusterImage, broker_id: int) -> dict[str, int]:
    """The dynamic `max.connections` of this broker's listeners, by name."""
    limits = {}
    for resource_name in (CLUSTER_DEFAULT, str(broker_id)):
        for name, value in broker_configs(image, resource_name).items():
            listener = limited_listener(name)
            number = whole_number(value.strip())
            if listener is not None and number is not None:
                limits[listener] = number
    return limits


def ignored_configs(image: ClusterImage, broker_id: int) -> dict[str, str]:
    """The dynamic configs that change nothing on this broker: name -> line for the log."""
    values = {**broker_configs(image, CLUSTER_DEFAULT), **broker_configs(image, str(broker_id))}
    lines = ((name, ignored_config(name, value)) for name, value in sorted(values.items()))
    return {name: line for name, line in lines if line is not None}


def static_values(config: BrokerConfig) -> dict[str, StaticValue]:
    """A BrokerConfig as properties; a value that differs from its default counts as given in the
    file."""
    return {
        field.name.replace("_", "."): StaticValue(text_of(value), value != field.default)
        for field in dataclasses.fields(config)
        for value in (getattr(config, field.name),)
    }


def text_of(value: object) -> str:
    """A property's value as Kafka prints it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
