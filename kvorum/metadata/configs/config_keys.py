"""The checks for setting a config, on the tables in `metadata.configs`; all callers come here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from kvorum.metadata.configs.broker_keys import BROKER_CONFIGS
from kvorum.metadata.configs.client_metrics_keys import (
    CLIENT_METRICS_CONFIGS,
    client_metrics_problem,
)
from kvorum.metadata.configs.earlier_keys import is_earlier_key
from kvorum.metadata.configs.effective import CLUSTER_DEFAULT
from kvorum.metadata.configs.group_bounds import GroupBounds
from kvorum.metadata.configs.group_keys import GROUP_CONFIGS, group_config_problem
from kvorum.metadata.configs.model import ConfigKey, Update, list_items, parse
from kvorum.metadata.configs.security_keys import CERTIFICATE_KEYS
from kvorum.metadata.configs.topic_keys import TOPIC_CONFIGS
from kvorum.metadata.image.image import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from kvorum.runtime.errors import ErrorCode, Rejected

VALUE_LENGTH_MAX = 32_767
"""Maximum length of a config's value in characters, as in Kafka."""

CONFIGS_OF: dict[int, dict[str, ConfigKey]] = {
    RESOURCE_TOPIC: TOPIC_CONFIGS,
    RESOURCE_BROKER: BROKER_CONFIGS,
    RESOURCE_CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
    RESOURCE_GROUP: GROUP_CONFIGS,
}
"""The table of keys for each type of resource that has configs."""

__all__ = [
    "BROKER_CONFIGS",
    "CERTIFICATE_KEYS",
    "CONFIGS_OF",
    "TOPIC_CONFIGS",
    "broker_config_problem",
    "broker_key",
    "broker_value_problem",
    "ignored_config",
    "is_certificate_key",
    "limited_listener",
    "other_config_problem",
    "topic_config_problem",
    "topic_configs_conflict",
]

_LISTENER = "listener.name."
_MECHANISMS = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer")
_REAUTH = "connections.max.reauth.ms"
_JAAS = "sasl.jaas.config"
MAX_CONNECTIONS = "max.connections"
_MIN_LAG = "min.compaction.lag.ms"
_MAX_LAG = "max.compaction.lag.ms"


def topic_config_problem(name: str, value: str) -> Rejected | None:
    """The refusal of this topic config, None if it may be set."""
    key = TOPIC_CONFIGS.get(name)
    if key is None:
        return Rejected(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    problem = _too_long(name, value) or key.problem(value)
    return None if problem is None else Rejected(ErrorCode.INVALID_CONFIG, problem)


def topic_configs_conflict(configs: Mapping[str, str]) -> Rejected | None:
    """The refusal of valid configs of one topic that conflict with each other, or None."""
    low, high = (
        parse(key, configs.get(key.name, key.default or ""))
        for key in (TOPIC_CONFIGS[_MIN_LAG], TOPIC_CONFIGS[_MAX_LAG])
    )
    # A value that another version accepted may be invalid here; it counts as not set.
    if not isinstance(low, int) or not isinstance(high, int) or low <= high:
        return None
    return Rejected(
        ErrorCode.INVALID_CONFIG,
        f"conflict topic config setting {_MIN_LAG} ({low}) > {_MAX_LAG} ({high})",
    )


def broker_key(name: str) -> ConfigKey | None:
    """A broker's key, obeyed or not; None for a name that Kafka does not know either.

    Such a name may belong to a plug-in or another version, or may be a mistake.
    """
    key = BROKER_CONFIGS.get(name)
    if key is not None:
        return key
    if name.startswith(_LISTENER):
        return _listener_key(name)
    # Imported only here: the table is long, and most brokers never meet such a name.
    from kvorum.metadata.configs.kafka_keys import kafka_keys

    return kafka_keys().get(name)


def _listener_key(name: str) -> ConfigKey | None:
    """The key of a single listener, `listener.name.clients.ssl.client.auth`, or of a mechanism
    there, `listener.name.clients.plain.sasl.jaas.config`. `max.connections` of one may be changed
    while the broker runs, as in Kafka."""
    parts = name.removeprefix(_LISTENER).split(".")[1:]
    if parts and parts[0] in _MECHANISMS:
        parts = parts[1:]
        if ".".join(parts) != _REAUTH and parts[:1] != ["sasl"]:
            return None
    own = ".".join(parts)
    if own == MAX_CONNECTIONS:
        return dataclasses.replace(BROKER_CONFIGS[own], name=name, default=None, low=1)
    if own != _REAUTH and parts[:1] not in (["ssl"], ["sasl"]):
        return None
    key = broker_key(own)
    if key is None or own in CERTIFICATE_KEYS:
        return None if key is None else dataclasses.replace(key, name=name)
    if own in BROKER_CONFIGS or own == _JAAS:
        return dataclasses.replace(key, name=name, update=Update.READ_ONLY, ignored="")
    return dataclasses.replace(key, name=name)


def limited_listener(name: str) -> str | None:
    """The listener whose `max.connections` this config is, in capital letters; None for others."""
    if not name.startswith(_LISTENER) or not name.endswith(f".{MAX_CONNECTIONS}"):
        return None
    return name[len(_LISTENER) : -len(MAX_CONNECTIONS) - 1].upper()


def is_certificate_key(name: str) -> bool:
    """True for a config by which a running broker changes its certificates, of all its listeners or
    of one."""
    own = ".".join(name.split(".")[3:]) if name.startswith(_LISTENER) else name
    return own in CERTIFICATE_KEYS


def ignored_config(name: str, value: str) -> str | None:
    """A line for the log that says why a broker's config has no effect; None if it has one."""
    key = broker_key(name)
    if key is None:
        of = "Kafka 4.4 has it no more" if is_earlier_key(name) else "neither Kafka's nor Kvorum's"
        return f"{name} is kept and changes nothing: {of}"
    if not key.ignored:
        return None
    shown = "<hidden>" if key.is_sensitive else value
    return f"{name}={shown} is kept and changes nothing: {key.ignored}"


def broker_value_problem(name: str, value: str) -> str | None:
    """A sentence if a broker's config cannot have this value, in its file or later; else None.

    An unknown name may have any value, as in Kafka.
    """
    key = broker_key(name)
    return _too_long(name, value) or (None if key is None else key.problem(value))


def broker_config_problem(name: str, value: str, resource_name: str) -> Rejected | None:
    """The refusal of this config for a broker, or for all (resource name ""), or None.

    Kafka's error code for broker configs is INVALID_REQUEST, for topic configs INVALID_CONFIG
    (KAFKA-13609).
    """
    key = broker_key(name)
    update = Update.DYNAMIC if key is None else key.update
    problem: str | None
    if update is Update.READ_ONLY:
        problem = (
            f"{name} is read-only: a broker reads it at its start; set it in the broker's file "
            "and restart the broker"
        )
    elif update is Update.CLUSTER and resource_name != CLUSTER_DEFAULT:
        problem = (
            f"{name} cannot be set for broker {resource_name} alone, as the controllers obey it; "
            "set it as the default of all brokers or on a topic"
        )
    elif update is Update.PER_BROKER and resource_name == CLUSTER_DEFAULT:
        problem = f"{name} cannot be set as the default of all brokers; name a broker"
    else:
        problem = broker_value_problem(name, value) or _repetition(key, value)
    return None if problem is None else Rejected(ErrorCode.INVALID_REQUEST, problem)


def _repetition(key: ConfigKey | None, value: str) -> str | None:
    """A sentence about a word that stands twice in a list of known words. As in Kafka, a broker's
    file and a topic's config may repeat one."""
    if key is None or not key.is_list or not key.values:
        return None
    items = list_items(value)
    repeated = len(set(items)) < len(items)
    return f"{key.name}={value!r} must not name a value twice" if repeated else None


def other_config_problem(
    resource_type: int, name: str, value: str, bounds: GroupBounds
) -> Rejected | None:
    """The refusal of this config of a group or a client-metrics subscription, or None.

    bounds: of groups' configs.
    """
    problem = _too_long(name, value)
    if problem is not None:
        return Rejected(ErrorCode.INVALID_CONFIG, problem)
    if resource_type == RESOURCE_CLIENT_METRICS:
        return client_metrics_problem(name, value)
    return group_config_problem(name, value, bounds)


def _too_long(name: str, value: str) -> str | None:
    if len(value) <= VALUE_LENGTH_MAX:
        return None
    return f"{name} has a value of {len(value)} characters, more than {VALUE_LENGTH_MAX}"
