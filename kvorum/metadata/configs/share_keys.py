"""A broker's properties of share groups (KIP-932): Kafka's names, defaults and bounds."""

from __future__ import annotations

from kvorum.metadata.configs.model import ConfigKey, ConfigType

_INT, _SHORT = ConfigType.INT, ConfigType.SHORT

_ROWS: tuple[tuple[str, ConfigType, int, int, int | None, str], ...] = (
    ("group.share.session.timeout.ms", _INT, 45_000, 1, None,
     "Silence after which a member of a share group is lost."),
    ("group.share.heartbeat.interval.ms", _INT, 5_000, 1, None,
     "Time between two heartbeats, as members of share groups are told."),
    ("group.share.max.size", _INT, 200, 1, 1_000, "Members that a share group may have."),
    ("group.share.assignment.interval.ms", _INT, 1_000, 0, None,
     "Least time between two targets of a share group."),
    ("group.share.initialize.retry.interval.ms", _INT, 30_000, 1, None,
     "Time after which states of share-partitions that were not made are asked for again."),
    ("group.share.record.lock.duration.ms", _INT, 30_000, 1_000, 3_600_000,
     "How long a member of a share group holds a record."),
    ("group.share.delivery.count.limit", _INT, 5, 2, 10,
     "Deliveries after which a share group's record is archived."),
    ("group.share.partition.max.record.locks", _INT, 2_000, 100, 10_000,
     "Records that may be in flight in a share-partition."),
    ("group.share.max.share.sessions", _INT, 2_000, 1, None,
     "Share sessions that a broker keeps."),
    ("share.coordinator.state.topic.num.partitions", _INT, 50, 1, None,
     "Partitions of __share_group_state."),
    ("share.coordinator.state.topic.replication.factor", _SHORT, 3, 1, None, "Its replicas."),
    ("share.coordinator.state.topic.min.isr", _SHORT, 2, 1, None, "Its min.insync.replicas."),
    ("share.coordinator.state.topic.segment.bytes", _INT, 104_857_600, 1, None,
     "Size of its segments."),
    ("share.coordinator.state.topic.prune.interval.ms", _INT, 300_000, 1, None,
     "Time between two looks for records of __share_group_state that no loader needs."),
    ("share.coordinator.snapshot.update.records.per.snapshot", _INT, 500, 0, 500,
     "Updates of a share-partition after which its whole state is written."),
    ("share.coordinator.cold.partition.snapshot.interval.ms", _INT, 300_000, 1, None,
     "Rest after which the whole state of a share-partition is written."),
)  # fmt: skip
"""Name, type, default, least and greatest value, documentation."""

SHARE_CONFIGS: tuple[ConfigKey, ...] = tuple(
    ConfigKey(
        name=name, type=kind, default=str(default), low=low, high=high, documentation=documentation
    )
    for name, kind, default, low, high, documentation in _ROWS
)
