"""The factory of group shards for this broker's config."""

from __future__ import annotations

import random
from collections.abc import Callable

from kvorum.broker.config.broker_config import BrokerConfig, part_of
from kvorum.broker.coordinator.model import Shard
from kvorum.broker.groups.consumer.assignors import parse_assignors
from kvorum.broker.groups.shard import GroupShard
from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.broker.groups.steps.migration_policy import parse_policy
from kvorum.broker.metrics.share_counters import ShareMetrics


def group_shard_maker(
    config: BrokerConfig, rng: random.Random, metrics: ShareMetrics
) -> Callable[[int, int], Shard]:
    """A factory of shards. rng: seeds each shard's own generator. It must differ between brokers,
    and between two starts of one broker, since member ids must."""
    group_config = part_of(
        config,
        GroupConfig,
        group_consumer_assignors=parse_assignors(config.group_consumer_assignors),
        group_consumer_migration_policy=parse_policy(config.group_consumer_migration_policy),
    )

    def make(partition_id: int, leader_epoch: int) -> Shard:
        return GroupShard(group_config, random.Random(rng.getrandbits(128)), metrics)

    return make
