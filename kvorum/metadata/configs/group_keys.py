"""Configs of groups (KIP-848, KIP-932, KIP-1071), as in Apache Kafka 4.4.

Kvorum obeys those whose documentation does not begin with "Not obeyed". The others are stored and
shown, without an effect. The bounds are the defaults of Kafka's broker properties
`group.*.min.*` and `group.*.max.*`, which Kvorum accepts and ignores.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kvorum.metadata.configs.model import ConfigKey, ConfigType, parse
from kvorum.runtime.errors import ErrorCode, Rejected

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
SHARE_SESSION_TIMEOUT = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL = "share.heartbeat.interval.ms"
SHARE_ASSIGNMENT_INTERVAL = "share.assignment.interval.ms"
SHARE_LOCK_DURATION = "share.record.lock.duration.ms"
SHARE_DELIVERY_LIMIT = "share.delivery.count.limit"
SHARE_RECORD_LOCKS = "share.partition.max.record.locks"
SHARE_RENEW = "share.renew.acknowledge.enable"
SHARE_ISOLATION = "share.isolation.level"
AUTO_OFFSET_RESET = "share.auto.offset.reset"
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
DEAD_LETTER_COPIES = "errors.deadletterqueue.copy.record.enable"
_INTERNAL = "__"

_STRING, _BOOLEAN, _LIST = ConfigType.STRING, ConfigType.BOOLEAN, ConfigType.LIST

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
    (SHARE_SESSION_TIMEOUT, 45_000, 45_000, 60_000, "Silence after which a share member is out."),
    (SHARE_HEARTBEAT_INTERVAL, 5_000, 5_000, 15_000, "Between two heartbeats of a share member."),
    (SHARE_ASSIGNMENT_INTERVAL, 1_000, 0, 15_000, "Least time between two targets."),
    (SHARE_LOCK_DURATION, 30_000, 15_000, 60_000, "How long a share member holds a record."),
    (SHARE_DELIVERY_LIMIT, 5, 2, 10, "Deliveries after which a record is archived."),
    (SHARE_RECORD_LOCKS, 2_000, 100, 10_000, "Records in flight of a share-partition."),
    ("streams.session.timeout.ms", 45_000, 45_000, 60_000, "Not obeyed: of a Streams member."),
    ("streams.heartbeat.interval.ms", 5_000, 5_000, 15_000, "Not obeyed: of a Streams member."),
    ("streams.assignment.interval.ms", 1_000, 0, 15_000, "Not obeyed: between two assignments."),
    ("streams.initial.rebalance.delay.ms", 3_000, 0, None, "Not obeyed: of an empty group."),
    ("streams.num.standby.replicas", 0, 0, 2, "Not obeyed: standby replicas of a task."),
)
"""Name, default, minimum, maximum, documentation. The broker property with the same meaning has the
prefix `group.`."""

_WORDS = (
    (AUTO_OFFSET_RESET, _STRING, "latest", (), "",
     "Where a share-partition begins: earliest, latest or by_duration:<ISO 8601>."),
    (SHARE_ISOLATION, _STRING, "read_uncommitted", ("read_committed", "read_uncommitted"),
     "", "Whether a share group reads records of open and aborted transactions."),
    (SHARE_RENEW, _BOOLEAN, "true", (), "",
     "Whether a share group's member may renew a lock."),
    (DEAD_LETTER_COPIES, _BOOLEAN, "false", (), "",
     "Whether a share group's dead letters have key and value."),
    (DEAD_LETTER_TOPIC, _STRING, "", (), "",
     "The topic of a share group's dead letters; blank: the group has none."),
    ("streams.assignor.name", _STRING, "sticky", ("sticky",), "group.streams.assignors",
     "Not obeyed: the assignor of a streams group."),
    ("streams.rack.aware.assignment.tags", _LIST, "", (),
     "group.streams.rack.aware.assignment.tags", "Not obeyed: tags that spread standby tasks."),
)  # fmt: skip
"""Name, type, default, values, name of the broker property ("" for the same one), documentation."""

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
            *(
                ConfigKey(
                    name=name,
                    type=kind,
                    default=default,
                    values=values,
                    broker_name=broker_name or name,
                    documentation=documentation,
                )
                for name, kind, default, values, broker_name, documentation in _WORDS
            ),
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
    if problem is None and name == AUTO_OFFSET_RESET and not _RESET.fullmatch(value.strip()):
        problem = f"{name}={value!r} must be earliest, latest or by_duration:<ISO 8601 duration>"
    if problem is None and name == DEAD_LETTER_TOPIC and value.strip().startswith(_INTERNAL):
        problem = f"{name}={value!r} must not start with {_INTERNAL!r}; such topics are internal"
    return None if problem is None else Rejected(ErrorCode.INVALID_CONFIG, problem)


def number_of(configs: Mapping[str, str], name: str) -> int | None:
    """The number to which a group's configs set `name`; None if there is no valid one."""
    value = configs.get(name)
    if value is None:
        return None
    # A newer version may have accepted a value that is invalid here; it counts as not set.
    number = parse(GROUP_CONFIGS[name], value)
    return number if isinstance(number, int) else None
