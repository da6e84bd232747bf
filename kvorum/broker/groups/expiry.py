"""The expiry of committed offsets (KIP-211). Pure.

  group of consumers, empty      retention after it became empty (after the commit, if later)
  group of consumers, stable     retention after the commit, for topics without a subscriber
  of the consumer protocol       retention after the commit, for topics without a subscriber
  Streams group                  the same
  other group with members       never
  no group, only offsets         retention after the commit

An offset with an expiry of its own (OffsetCommit v2-4) expires at that time, in the same states.
"""

from __future__ import annotations

from kvorum.broker.groups.book import AnyGroup
from kvorum.broker.groups.classic.states import ClassicGroupState
from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.offsets import OffsetBook, PartitionKey
from kvorum.broker.groups.steps.records import NO_TIMESTAMP, OffsetValue
from kvorum.broker.groups.streams.group import StreamsGroup


def expired_offsets(
    group: AnyGroup, book: OffsetBook, wall_ms: int, retention_ms: int
) -> list[PartitionKey]:
    """The keys (topic, partition) of expired offsets, except those that an open transaction may
    change."""
    if not _may_expire(group):
        return []
    has_members = bool(group.members)
    return [
        (topic, partition)
        for topic, partitions in book.committed.items()
        if not (has_members and group.is_subscribed_to(topic))
        for partition, stored in partitions.items()
        if _is_over(group, stored.value, wall_ms, retention_ms)
        and not book.is_pending(topic, partition)
    ]


def _may_expire(group: AnyGroup) -> bool:
    if isinstance(group, (ConsumerGroup, StreamsGroup)):
        return True
    if group.protocol_type is None or group.is_empty:
        return True
    is_known = group.is_consumer_group and group.subscribed_topics is not None
    return is_known and group.state == ClassicGroupState.STABLE


def _is_over(group: AnyGroup, value: OffsetValue, wall_ms: int, retention_ms: int) -> bool:
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        return wall_ms >= value.expire_timestamp_ms
    base_ms = value.commit_timestamp_ms
    if isinstance(group, (ConsumerGroup, StreamsGroup)):
        return wall_ms - base_ms >= retention_ms
    if group.protocol_type is not None and group.is_empty:
        base_ms = max(base_ms, group.current_state_timestamp_ms)
    return wall_ms - base_ms >= retention_ms
