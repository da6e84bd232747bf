"""The lessons, in their order."""

from __future__ import annotations

from kvorum.tour.lesson import Lesson
from kvorum.tour.lessons import (
    acks,
    batch_bytes,
    batching,
    compaction,
    deliveries,
    elections,
    high_watermark,
    hot_key,
    leader_epochs,
    lost_majority,
    min_insync_replicas,
    parked_fetches,
    partition_count,
    partition_folder,
    quotas,
    rebalances,
    retention,
    sequential_writes,
    share_group,
    topic_records,
    transactions,
)

LESSONS: tuple[Lesson, ...] = tuple(
    module.LESSON
    for module in (
        partition_folder,
        batch_bytes,
        sequential_writes,
        batching,
        high_watermark,
        acks,
        min_insync_replicas,
        leader_epochs,
        elections,
        topic_records,
        partition_count,
        rebalances,
        deliveries,
        transactions,
        compaction,
        retention,
        parked_fetches,
        quotas,
        hot_key,
        lost_majority,
        share_group,
    )
)
