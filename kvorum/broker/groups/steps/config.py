"""The broker configs for groups, under Kafka's names in snake case."""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.broker.groups.steps.migration_policy import MigrationPolicy
from kvorum.metadata.configs.group_bounds import GroupBounds

_MS_PER_MINUTE = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig(GroupBounds):
    """The configs that all group shards of a broker use, with the bounds of those of single groups.

    group_initial_rebalance_delay_ms: time that an empty group waits for more members.
    group_min_session_timeout_ms, group_max_session_timeout_ms: bounds of a member's session
        timeout.
    group_max_size: members of one group.
    offset_metadata_max_bytes: for one committed offset.
    offsets_retention_minutes: time that offsets are kept after their group's last member left (or,
        without a group, after the commit).
    offsets_retention_check_interval_ms: interval of that check.
    message_max_bytes: limit of the record of a whole group. group_consumer_*: for groups of the
        consumer protocol.
    group_consumer_assignors: names, the default first.
    group_consumer_migration_policy: the direction in which groups with members may change protocol.
    group_share_*: for share groups.
    group_streams_*: for Streams groups.
    group_share_initialize_retry_interval_ms: after which states of share-partitions that were not
        made are asked for again.
    """

    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    message_max_bytes: int = 1_048_588
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_assignment_interval_ms: int = 0
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    group_share_session_timeout_ms: int = 45_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_max_size: int = 200
    group_share_assignment_interval_ms: int = 1_000
    group_share_initialize_retry_interval_ms: int = 30_000
    group_streams_session_timeout_ms: int = 45_000
    group_streams_heartbeat_interval_ms: int = 5_000
    group_streams_max_size: int = 2**31 - 1
    group_streams_initial_rebalance_delay_ms: int = 3_000
    group_streams_assignment_interval_ms: int = 1_000
    group_streams_num_standby_replicas: int = 0
    group_streams_task_offset_interval_ms: int = 60_000
    group_streams_acceptable_recovery_lag: int = 10_000
    group_streams_rack_aware_assignment_tags: str = ""

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * _MS_PER_MINUTE


NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""Session timeout of a member that has not had its first JoinGroup answer and so cannot send
heartbeats. Without this limit, a client that gives up and joins again would leave a dead member in
the group each time (Kafka's constant)."""

PENDING_MEMBERS_MAX = 10_000
"""Limit of unused member ids in one group; each one has a timer."""

PRODUCERS_MAX = 100_000
"""Transactional producers whose epochs one shard remembers; the oldest is forgotten first."""

STRING_BYTES_MAX = 32_767
"""Limit of a string in a key or in group metadata, whose length is an int16."""

NAME_BYTES_MAX = STRING_BYTES_MAX - 64
"""Limit of a name that becomes part of a member id, which adds a dash and a uuid."""
