"""Ranges of offsets: split for Spark's tasks, and cut to the limits of a trigger. Pure."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kvorum.analytics.kafka_source.offsets import Offsets, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The offsets of one partition from `start_offset` up to `end_offset` (exclusive)."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int

    @property
    def size(self) -> int:
        """Offsets, at least as many as there are records: markers and compaction leave gaps."""
        return self.end_offset - self.start_offset


def ranges_between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """The ranges of the partitions in both that are not empty, sorted by topic and partition."""
    return [
        OffsetRange(
            topic=topic,
            partition=partition,
            start_offset=start[topic, partition],
            end_offset=end[topic, partition],
        )
        for topic, partition in sorted(end)
        if start.get((topic, partition), end[topic, partition]) < end[topic, partition]
    ]


def split(
    ranges: Iterable[OffsetRange],
    *,
    partitions_min: int | None = None,
    records_per_partition_max: int | None = None,
) -> list[OffsetRange]:
    """Split ranges so that each offset is in exactly one of them.

    No range has more than `records_per_partition_max` offsets. There are at least `partitions_min`
    ranges if there are so many offsets; the range with the largest parts is split first.
    """
    whole = [one for one in ranges if one.size > 0]
    parts = [_parts_least(one.size, records_per_partition_max) for one in whole]
    _raise_to(partitions_min or 0, [one.size for one in whole], parts)
    return [part for one, count in zip(whole, parts, strict=True) for part in _cut(one, count)]


def _parts_least(size: int, records_max: int | None) -> int:
    return 1 if records_max is None else -(-size // records_max)


def _raise_to(total: int, sizes: Sequence[int], parts: list[int]) -> None:
    """Raise `parts` one by one, where a part is largest, until there are `total` of them."""
    missing = total - sum(parts)
    # Integers, not quotients: two sizes above 2**53 may have the same float.
    largest = [
        (_rank(size, count), index)
        for index, (size, count) in enumerate(zip(sizes, parts, strict=True))
    ]
    heapq.heapify(largest)
    while missing > 0 and largest:
        _, index = heapq.heappop(largest)
        if parts[index] == sizes[index]:
            continue
        parts[index] += 1
        missing -= 1
        heapq.heappush(largest, (_rank(sizes[index], parts[index]), index))


def _rank(size: int, count: int) -> int:
    """The size of the largest part, negative: a heap has its smallest item first."""
    return size // -count


def _cut(one: OffsetRange, count: int) -> list[OffsetRange]:
    edges = [one.start_offset + one.size * number // count for number in range(count + 1)]
    return [
        OffsetRange(topic=one.topic, partition=one.partition, start_offset=low, end_offset=high)
        for low, high in itertools.pairwise(edges)
    ]


def limit(start: Offsets, end: Offsets, offsets_max: int) -> dict[TopicPartition, int]:
    """The end of a micro-batch of at most `offsets_max` offsets, shared out by what each partition
    has.

    A partition with records gets at least one offset if there are enough for all, so that a busy
    partition cannot hold up a quiet one. Partitions without records keep their end.
    """
    pending = {(one.topic, one.partition): one.size for one in ranges_between(start, end)}
    if sum(pending.values()) <= offsets_max:
        return dict(end)
    shares = _shares(pending, offsets_max)
    return {
        partition: start[partition] + shares[partition] if partition in shares else offset
        for partition, offset in end.items()
    }


def _shares(pending: Mapping[TopicPartition, int], offsets_max: int) -> dict[TopicPartition, int]:
    """`offsets_max` shared out in proportion; the sum is exact. It is less than all pending."""
    by_size = sorted(pending, key=lambda partition: (-pending[partition], partition))
    if offsets_max <= len(pending):
        chosen = set(by_size[:offsets_max])
        return {partition: int(partition in chosen) for partition in pending}
    # One for each, then the rest by what is left of each.
    spare = offsets_max - len(pending)
    left = sum(pending.values()) - len(pending)
    shares = {key: 1 + (size - 1) * spare // left for key, size in pending.items()}
    remainders = sorted(pending, key=lambda key: (-((pending[key] - 1) * spare % left), key))
    for partition in remainders[: offsets_max - sum(shares.values())]:
        shares[partition] += 1
    return shares


def pending_offsets(start: Offsets, end: Offsets) -> int:
    """Offsets from `start` to `end`, over all partitions."""
    return sum(one.size for one in ranges_between(start, end))
