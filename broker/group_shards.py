"""Makes the shards of this broker's group coordinators out of its configuration."""

from __future__ import annotations

import random
from collections.abc import Callable

from broker.config import BrokerConfig
from broker.coordinator.model import Shard
from broker.groups.config import GroupConfig
from broker.groups.consumer.assignors import parse_assignors
from broker.groups.migration.policy import parse_policy
from broker.groups.shard import GroupShard


def group_shard_maker(config: BrokerConfig) -> Callable[[int, int], Shard]:
    """What makes the shards of this broker. Member ids must differ between coordinators and
    between two starts of one, so their randomness comes from the system."""
    group_config = GroupConfig(
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_max_size=config.group_max_size,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_minutes=config.offsets_retention_minutes,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        message_max_bytes=config.message_max_bytes,
        group_consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
        group_consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        group_consumer_max_size=config.group_consumer_max_size,
        group_consumer_assignors=parse_assignors(config.group_consumer_assignors),
        group_consumer_migration_policy=parse_policy(config.group_consumer_migration_policy),
    )

    def make(partition_id: int, leader_epoch: int) -> Shard:
        return GroupShard(group_config, random.Random(random.SystemRandom().getrandbits(128)))

    return make
