"""A broker's properties of Streams groups (KIP-1071): Kafka's names, defaults and bounds."""

from __future__ import annotations

from kvorum.metadata.configs.model import INT32_MAX, ConfigKey, ConfigType

_INT, _LONG, _LIST = ConfigType.INT, ConfigType.LONG, ConfigType.LIST

_ROWS: tuple[tuple[str, ConfigType, str, int | None, str], ...] = (
    ("group.streams.session.timeout.ms", _INT, "45000", 1,
     "Silence after which a member of a Streams group is lost."),
    ("group.streams.heartbeat.interval.ms", _INT, "5000", 1,
     "Time between two heartbeats, as members of Streams groups are told."),
    ("group.streams.max.size", _INT, str(INT32_MAX), 1, "Members that a Streams group may have."),
    ("group.streams.initial.rebalance.delay.ms", _INT, "3000", 0,
     "Time that an empty Streams group waits for more members."),
    ("group.streams.assignment.interval.ms", _INT, "1000", 0,
     "Least time between two targets of a Streams group."),
    ("group.streams.num.standby.replicas", _INT, "0", 0, "Standbys of each task with a state."),
    ("group.streams.task.offset.interval.ms", _INT, "60000", 1,
     "Time between two reports of the offsets of tasks' states."),
    ("group.streams.acceptable.recovery.lag", _LONG, "10000", 0,
     "Lag of a state's copy that counts as caught up, as members are told."),
    ("group.streams.rack.aware.assignment.tags", _LIST, "", None,
     "Keys of client tags that each member of a Streams group must have."),
)  # fmt: skip
"""Name, type, default, least value, documentation."""

STREAMS_CONFIGS: tuple[ConfigKey, ...] = tuple(
    ConfigKey(name=name, type=kind, default=default, low=low, documentation=documentation)
    for name, kind, default, low, documentation in _ROWS
)
