"""Configs of groups (KIP-848, KIP-932, KIP-1071), as in Apache Kafka 4.4.

The bounds of numbers are the properties `group.*.min.*` and `group.*.max.*` (`group_bounds`); those
in the table hold where there are no such properties.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from kvorum.metadata.configs.group_bounds import GroupBounds
from kvorum.metadata.configs.model import ConfigKey, ConfigType, list_items, parse
from kvorum.runtime.errors import ErrorCode, Rejected

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"
SHARE_SESSION_TIMEOUT = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL = "share.heartbeat.interval.ms"
SHARE_ASSIGNMENT_INTERVAL = "share.assignment.interval.ms"
STREAMS_SESSION_TIMEOUT = "streams.session.timeout.ms"
STREAMS_HEARTBEAT_INTERVAL = "streams.heartbeat.interval.ms"
STREAMS_ASSIGNMENT_INTERVAL = "streams.assignment.interval.ms"
STREAMS_INITIAL_DELAY = "streams.initial.rebalance.delay.ms"
STREAMS_STANDBY_REPLICAS = "streams.num.standby.replicas"
STREAMS_TASK_OFFSET_INTERVAL = "streams.task.offset.interval.ms"
STREAMS_RECOVERY_LAG = "streams.acceptable.recovery.lag"
STREAMS_RACK_TAGS = "streams.rack.aware.assignment.tags"
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
    (ASSIGNMENT_INTERVAL, 0, 0, 15_000, "Least time between two targets of the group."),
    (SHARE_SESSION_TIMEOUT, 45_000, 45_000, 60_000, "Silence after which a share member is out."),
    (SHARE_HEARTBEAT_INTERVAL, 5_000, 5_000, 15_000, "Between two heartbeats of a share member."),
    (SHARE_ASSIGNMENT_INTERVAL, 1_000, 0, 15_000, "Least time between two targets."),
    (SHARE_LOCK_DURATION, 30_000, 15_000, 60_000, "How long a share member holds a record."),
    (SHARE_DELIVERY_LIMIT, 5, 2, 10, "Deliveries after which a record is archived."),
    (SHARE_RECORD_LOCKS, 2_000, 100, 4_000, "Records in flight of a share-partition."),
    (STREAMS_SESSION_TIMEOUT, 45_000, 45_000, 60_000, "Silence after which a member is out."),
    (STREAMS_HEARTBEAT_INTERVAL, 5_000, 5_000, 15_000, "Between two heartbeats of a member."),
    (STREAMS_ASSIGNMENT_INTERVAL, 1_000, 0, 15_000, "Least time between two targets."),
    (STREAMS_INITIAL_DELAY, 3_000, 0, None, "How long an empty group waits for more members."),
    (STREAMS_STANDBY_REPLICAS, 0, 0, 2, "Standbys of each task with a state."),
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
     "The assignor of a Streams group."),
    (STREAMS_RACK_TAGS, _LIST, "", (), "group.streams.rack.aware.assignment.tags",
     "Keys of client tags that each member must have."),
)  # fmt: skip
"""Name, type, default, values, name of the broker property ("" for the same one), documentation."""

_INTERNAL_NUMBERS = (
    (STREAMS_TASK_OFFSET_INTERVAL, ConfigType.INT, 60_000, 15_000, None,
     "Time between two reports of the offsets of tasks' states."),
    (STREAMS_RECOVERY_LAG, ConfigType.LONG, 10_000, 0, None,
     "Lag of a state's copy that counts as caught up, as members are told."),
    ("streams.num.warmup.replicas", ConfigType.INT, 2, 0, 20,
     "Without effect, as in Kafka 4.4: the assignor makes no warm-up tasks."),
)  # fmt: skip
"""As _NUMBERS, with the type; Kafka shows them only where they are set."""

_OFFLOADS = tuple(f"{kind}.assignor.offload.enable" for kind in ("consumer", "share", "streams"))
"""Internal as well, and without effect: a coordinator assigns in its own thread."""

_HEARTBEATS_AND_SESSIONS = (
    (HEARTBEAT_INTERVAL, SESSION_TIMEOUT),
    (SHARE_HEARTBEAT_INTERVAL, SHARE_SESSION_TIMEOUT),
    (STREAMS_HEARTBEAT_INTERVAL, STREAMS_SESSION_TIMEOUT),
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
            *(
                ConfigKey(
                    name=name,
                    type=kind,
                    default=str(default),
                    low=low,
                    high=high,
                    broker_name=f"group.{name}",
                    is_internal=True,
                    documentation=documentation,
                )
                for name, kind, default, low, high, documentation in _INTERNAL_NUMBERS
            ),
            *(
                ConfigKey(
                    name=name,
                    type=_BOOLEAN,
                    default="true",
                    broker_name=f"group.{name}",
                    is_internal=True,
                    documentation="Without effect: a coordinator assigns in its own thread.",
                )
                for name in _OFFLOADS
            ),
        ),
        key=lambda key: key.name,
    )
}


def group_config_problem(name: str, value: str, bounds: GroupBounds) -> Rejected | None:
    """The refusal of this config of a group, None if it may be set."""
    key = GROUP_CONFIGS.get(name)
    if key is None:
        return Rejected(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
    least, most = bounds.limits(name)
    key = dataclasses.replace(
        key, low=key.low if least is None else least, high=key.high if most is None else most
    )
    problem = key.problem(value)
    if problem is None and name == AUTO_OFFSET_RESET and not _RESET.fullmatch(value.strip()):
        problem = f"{name}={value!r} must be earliest, latest or by_duration:<ISO 8601 duration>"
    if problem is None and name == DEAD_LETTER_TOPIC and value.strip().startswith(_INTERNAL):
        problem = f"{name}={value!r} must not start with {_INTERNAL!r}; such topics are internal"
    if problem is None and name == STREAMS_RACK_TAGS and _repeats(value):
        problem = f"{name} must not contain duplicate tag keys."
    return None if problem is None else Rejected(ErrorCode.INVALID_CONFIG, problem)


def _repeats(value: str) -> bool:
    items = list_items(value)
    return len(set(items)) < len(items)


def broker_defaults_problem(config: GroupBounds) -> str | None:
    """A sentence about the first default of a broker that its bounds, or another default, exclude;
    None if there is none. As in Kafka, such a broker does not start.

    config: a broker's, with a field for each property `group.*`.
    """
    values: dict[str, int] = {
        name: getattr(config, f"group.{name}".replace(".", "_"))
        for name in (*(row[0] for row in _NUMBERS), STREAMS_TASK_OFFSET_INTERVAL)
    }
    for name, value in values.items():
        problem = config.default_problem(name, value)
        if problem is not None:
            return problem
    for heartbeat, session in _HEARTBEATS_AND_SESSIONS:
        if values[heartbeat] >= values[session]:
            return (
                f"group.{heartbeat}={values[heartbeat]} must be below "
                f"group.{session}={values[session]}"
            )
    return None


def number_of(configs: Mapping[str, str], name: str) -> int | None:
    """The number to which a group's configs set `name`; None if there is no valid one."""
    value = configs.get(name)
    if value is None:
        return None
    # A newer version may have accepted a value that is invalid here; it counts as not set.
    number = parse(GROUP_CONFIGS[name], value)
    return number if isinstance(number, int) else None
