"""Configs of groups (KIP-848, KIP-932, KIP-1071), as in Apache Kafka 4.3.

Kvorum obeys `consumer.session.timeout.ms` and `consumer.heartbeat.interval.ms`. The others are
stored and shown, without an effect. The bounds are the defaults of Kafka's broker properties
`group.*.min.*` and `group.*.max.*`, which Kvorum accepts and ignores.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kvorum.metadata.configs.model import ConfigKey, ConfigType, parse
from kvorum.runtime.errors import ErrorCode, Rejected

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
AUTO_OFFSET_RESET = "share.auto.offset.reset"

_RESET = re.compile(
    r"earliest|latest|by_duration:P(?=[0-9T])([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?"
    r"([0-9]+(\.[0-9]{1,9})?S)?)?",
    re.ASCII,
)
"""A non-negative ISO 8601 duration, in days and smaller units."""

_NUMBERS = (
    (SESSION_TIMEOUT, 45_000, 45_000, 60_000, "Silence after which a member of the group is out."),
    (HEARTBEAT_INTERVAL, 5_000, 5_000, 15_000, "Between two heartbeats of a member of the group."),
    ("consumer.assignment.interval.ms", 1_000, 0, 15_000, "Not obeyed: between two assignments."),
    ("share.session.timeout.ms", 45_000, 45_000, 60_000, "Not obeyed: of a share group's member."),
    ("share.heartbeat.interval.ms", 5_000, 5_000, 15_000, "Not obeyed: of a share group's member."),
    ("share.assignment.interval.ms", 1_000, 0, 15_000, "Not obeyed: between two assignments."),
    ("share.record.lock.duration.ms", 30_000, 15_000, 60_000, "Not obeyed: of an acquired record."),
    ("share.delivery.count.limit", 5, 2, 10, "Not obeyed: attempts to deliver a record."),
    ("share.partition.max.record.locks", 2_000, 100, 10_000, "Not obeyed: of a share-partition."),
    ("streams.session.timeout.ms", 45_000, 45_000, 60_000, "Not obeyed: of a Streams member."),
    ("streams.heartbeat.interval.ms", 5_000, 5_000, 15_000, "Not obeyed: of a Streams member."),
    ("streams.assignment.interval.ms", 1_000, 0, 15_000, "Not obeyed: between two assignments."),
    ("streams.initial.rebalance.delay.ms", 3_000, 0, None, "Not obeyed: of an empty group."),
    ("streams.num.standby.replicas", 0, 0, 2, "Not obeyed: standby replicas of a task."),
)
"""Name, default, minimum, maximum, documentation. The broker property with the same meaning has the
prefix `group.`."""

_WORDS = (
    ConfigKey(
        name=AUTO_OFFSET_RESET,
        type=ConfigType.STRING,
        default="latest",
        broker_name="share.auto.offset.reset",
        documentation="Not obeyed: where a share-partition begins: earliest, latest or "
        "by_duration:<ISO 8601>.",
    ),
    ConfigKey(
        name="share.isolation.level",
        type=ConfigType.STRING,
        default="read_uncommitted",
        values=("read_committed", "read_uncommitted"),
        broker_name="share.isolation.level",
        documentation="Not obeyed: of a share group's reads.",
    ),
    ConfigKey(
        name="share.renew.acknowledge.enable",
        type=ConfigType.BOOLEAN,
        default="true",
        broker_name="share.renew.acknowledge.enable",
        documentation="Not obeyed: whether a share group's member may renew a lock.",
    ),
)

GROUP_CONFIGS: dict[str, ConfigKey] = {
    key.name: key
    for key in sorted(
        (
            *(
                ConfigKey(
                    name=name,
                    type=ConfigType.INT,
                    default=str(default),
                    low=low,
                    high=high,
                    broker_name=f"group.{name}",
                    documentation=documentation,
                )
                for name, default, low, high, documentation in _NUMBERS
            ),
            *_WORDS,
        ),
        key=lambda key: key.name,
    )
}


def group_config_problem(name: str, value: str) -> Rejected | None:
    """The refusal of this config of a group, None if it may be set."""
    key = GROUP_CONFIGS.get(name)
    if key is None:
        return Rejected(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
    problem = key.problem(value)
    if problem is None and name == AUTO_OFFSET_RESET and not _RESET.fullmatch(value):
        problem = f"{name}={value!r} must be earliest, latest or by_duration:<ISO 8601 duration>"
    return None if problem is None else Rejected(ErrorCode.INVALID_CONFIG, problem)


def number_of(configs: Mapping[str, str], name: str) -> int | None:
    """The number to which a group's configs set `name`; None if there is no valid one."""
    value = configs.get(name)
    if value is None:
        return None
    # A newer version may have accepted a value that is invalid here; it counts as not set.
    number = parse(GROUP_CONFIGS[name], value)
    return number if isinstance(number, int) else None
