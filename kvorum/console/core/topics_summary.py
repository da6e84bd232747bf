"""Counts of each topic and of the whole cluster, computed again only for topics that changed. Pure.

An image shares the unchanged topics with the image before it, so identity tells what changed: a
change of one partition costs one topic, and not the cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kvorum.metadata.controller.decide.eligible_brokers import min_isr_of
from kvorum.metadata.image.image import ClusterImage, PartitionImage, TopicImage

IS_INTERNAL = "__"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSummary:
    """A topic in numbers.

    under_min_isr: partitions whose ISR is below min.insync.replicas (or below their replicas, if
        they are fewer).
    leaders, replicas: partitions by broker id.
    """

    name: str
    partitions: int
    replication_factor: int
    min_isr: int
    offline: int
    under_min_isr: int
    under_replicated: int
    leaders: Mapping[int, int]
    replicas: Mapping[int, int]
    in_sync: Mapping[int, int]

    @property
    def is_healthy(self) -> bool:
        return not (self.offline or self.under_min_isr or self.under_replicated)


@dataclass(slots=True)
class _Kept:
    topic: TopicImage
    min_isr: int
    summary: TopicSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The cluster in numbers; by broker id where a mapping."""

    topics: int = 0
    partitions: int = 0
    offline: int = 0
    under_min_isr: int = 0
    under_replicated: int = 0
    leaders: Mapping[int, int] = field(default_factory=dict)
    replicas: Mapping[int, int] = field(default_factory=dict)
    in_sync: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summaries:
    """All topics of an image, by name, and their sums."""

    topics: Mapping[str, TopicSummary]
    totals: Totals


class TopicBook:
    """Makes the summaries of one image after another. One caller at a time."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._image: ClusterImage | None = None
        self._summaries = Summaries(topics={}, totals=Totals())

    def read(self, image: ClusterImage) -> Summaries:
        """The summaries of the image; costs nothing if it is the image of the last call."""
        if image is self._image:
            return self._summaries
        is_same_configs = self._image is not None and self._image.configs is image.configs
        kept = {}
        for topic in image.topics.values():
            old = self._kept.get(topic.name)
            if old is not None and old.topic is topic and is_same_configs:
                kept[topic.name] = old
                continue
            min_isr = min_isr_of(image, topic.name)
            if old is not None and old.topic is topic and old.min_isr == min_isr:
                kept[topic.name] = old
            else:
                kept[topic.name] = _Kept(topic, min_isr, summary_of(topic, min_isr))
        self._kept, self._image = kept, image
        topics = {name: kept[name].summary for name in sorted(kept)}
        self._summaries = Summaries(topics=topics, totals=totals_of(topics.values()))
        return self._summaries


def state_of(partition: PartitionImage, min_isr: int) -> str:
    """The worst of: offline, under-min-isr, under-replicated, ok."""
    if partition.leader < 0:
        return "offline"
    if len(partition.isr) < min(min_isr, len(partition.replicas)):
        return "under-min-isr"
    return "under-replicated" if partition.is_under_replicated else "ok"


def summary_of(topic: TopicImage, min_isr: int) -> TopicSummary:
    """The numbers of one topic. A partition counts as offline and as under-replicated at once."""
    states: Counter[str] = Counter()
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    in_sync: Counter[int] = Counter()
    factor = under_replicated = under_min_isr = 0
    for partition in topic.partitions.values():
        states[state_of(partition, min_isr)] += 1
        under_replicated += partition.is_under_replicated
        under_min_isr += len(partition.isr) < min(min_isr, len(partition.replicas))
        factor = max(factor, len(partition.replicas))
        replicas.update(partition.replicas)
        in_sync.update(partition.isr)
        if partition.leader >= 0:
            leaders[partition.leader] += 1
    return TopicSummary(
        name=topic.name,
        partitions=len(topic.partitions),
        replication_factor=factor,
        min_isr=min_isr,
        offline=states["offline"],
        under_min_isr=under_min_isr,
        under_replicated=under_replicated,
        leaders=leaders,
        replicas=replicas,
        in_sync=in_sync,
    )


def totals_of(summaries: Iterable[TopicSummary]) -> Totals:
    """The sums over all topics."""
    counts: Counter[str] = Counter()
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    in_sync: Counter[int] = Counter()
    for each in summaries:
        counts["topics"] += 1
        for name in ("partitions", "offline", "under_min_isr", "under_replicated"):
            counts[name] += getattr(each, name)
        leaders.update(each.leaders)
        replicas.update(each.replicas)
        in_sync.update(each.in_sync)
    return Totals(
        topics=counts["topics"],
        partitions=counts["partitions"],
        offline=counts["offline"],
        under_min_isr=counts["under_min_isr"],
        under_replicated=counts["under_replicated"],
        leaders=leaders,
        replicas=replicas,
        in_sync=in_sync,
    )
