"""The lessons, in their order."""

from __future__ import annotations

from kvorum.tour.lesson import Lesson
from kvorum.tour.lessons import (
    acks,
    batch_bytes,
    compaction,
    elections,
    high_watermark,
    hot_key,
    min_insync_replicas,
    partition_folder,
    quotas,
    retention,
    share_group,
    topic_records,
    transactions,
)

LESSONS: tuple[Lesson, ...] = tuple(
    module.LESSON
    for module in (
        partition_folder,
        batch_bytes,
        high_watermark,
        acks,
        min_insync_replicas,
        elections,
        topic_records,
        transactions,
        compaction,
        retention,
        quotas,
        hot_key,
        share_group,
    )
)
