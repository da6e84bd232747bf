"""The properties that bound the configs of single groups: `group.consumer.min.*` and their like.

Both roles have them in their files. A controller refuses a config of a group that lies outside its
bounds. A broker moves one that lies outside its own bounds to the nearest value within: the config
may be older than the bounds, or the two files differ. A broker whose own defaults lie outside does
not start.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from kvorum.metadata.configs.model import ConfigKey, ConfigType


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBounds:
    """Kafka's names and defaults, with underscores for dots."""

    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_min_assignment_interval_ms: int = 0
    group_consumer_max_assignment_interval_ms: int = 15_000
    group_share_min_session_timeout_ms: int = 45_000
    group_share_max_session_timeout_ms: int = 60_000
    group_share_min_heartbeat_interval_ms: int = 5_000
    group_share_max_heartbeat_interval_ms: int = 15_000
    group_share_min_assignment_interval_ms: int = 0
    group_share_max_assignment_interval_ms: int = 15_000
    group_share_min_record_lock_duration_ms: int = 15_000
    group_share_max_record_lock_duration_ms: int = 60_000
    group_share_min_delivery_count_limit: int = 2
    group_share_max_delivery_count_limit: int = 10
    group_share_min_partition_max_record_locks: int = 100
    group_share_max_partition_max_record_locks: int = 4_000
    group_streams_min_session_timeout_ms: int = 45_000
    group_streams_max_session_timeout_ms: int = 60_000
    group_streams_min_heartbeat_interval_ms: int = 5_000
    group_streams_max_heartbeat_interval_ms: int = 15_000
    group_streams_min_assignment_interval_ms: int = 0
    group_streams_max_assignment_interval_ms: int = 15_000
    group_streams_max_standby_replicas: int = 2
    group_streams_max_warmup_replicas: int = 20
    group_streams_min_task_offset_interval_ms: int = 15_000

    def limits(self, name: str) -> tuple[int | None, int | None]:
        """The least and the greatest value of the group config `name`; None for no limit."""
        least: int | None
        most: int | None
        least, most = (getattr(self, field, None) for field in _fields_of(name))
        return least, most

    def default_problem(self, name: str, value: int) -> str | None:
        """A sentence about a broker's default outside its bounds for the group config `name`, or
        None."""
        for field, limit, word in zip(
            _fields_of(name), self.limits(name), ("below", "above"), strict=True
        ):
            if limit is not None and (value < limit if word == "below" else value > limit):
                bound = field.replace("_", ".")
                return f"group.{name}={value} must not be {word} {bound}={limit}"
        return None

    def within(self, name: str, value: int) -> int:
        """The value that a broker obeys for the group config `name`."""
        least, most = self.limits(name)
        value = value if most is None else min(value, most)
        return value if least is None else max(value, least)

    def bounds_problem(self) -> str | None:
        """A sentence about a least value above the greatest one, or None."""
        for field in dataclasses.fields(GroupBounds):
            other = field.name.replace("_min_", "_max_", 1)
            if other == field.name:
                continue
            least, most = getattr(self, field.name), getattr(self, other, None)
            if most is not None and least > most:
                names = (field.name.replace("_", "."), other.replace("_", "."))
                return f"{names[0]}={least} must not be above {names[1]}={most}"
        return None


def _fields_of(name: str) -> tuple[str, str]:
    """The names that the bounds of the group config `name` would have as fields."""
    if name in ("streams.num.standby.replicas", "streams.num.warmup.replicas"):
        return "", "group_streams_max_" + name.removeprefix("streams.num.").replace(".", "_")
    kind, _, rest = name.replace(".", "_").partition("_")
    return f"group_{kind}_min_{rest}", f"group_{kind}_max_{rest}"


USUAL_BOUNDS = GroupBounds()

_LEAST = {
    "group.share.min.delivery.count.limit": (2, 5),
    "group.share.max.delivery.count.limit": (5, 25),
    "group.share.min.partition.max.record.locks": (100, 2_000),
    "group.share.max.partition.max.record.locks": (2_000, 10_000),
    "group.share.min.record.lock.duration.ms": (1_000, 30_000),
    "group.share.max.record.lock.duration.ms": (30_000, 3_600_000),
    "group.streams.max.standby.replicas": (0, None),
    "group.streams.max.warmup.replicas": (0, None),
}
"""Kafka's bounds of these bounds; the others are at least 1, and intervals of assignments 0."""


def _key(name: str, default: int) -> ConfigKey:
    least = 0 if name.endswith("assignment.interval.ms") else 1
    low, high = _LEAST.get(name, (least, None))
    words = "greatest" if ".max." in name.replace("partition.max", "") else "least"
    return ConfigKey(
        name=name,
        type=ConfigType.INT,
        default=str(default),
        low=low,
        high=high,
        documentation=f"The {words} value that a group's own config may have.",
    )


BOUND_CONFIGS: tuple[ConfigKey, ...] = tuple(
    _key(name.replace("_", "."), default)
    for name, default in dataclasses.asdict(USUAL_BOUNDS).items()
)
"""The keys of these properties."""
