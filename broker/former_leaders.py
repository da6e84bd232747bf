"""Whom this broker followed, and who may not know that another one leads instead. Pure.

Who has a session hears it from the controllers. One that was fenced may run on, cut off from them
alone: it has to hear it from those who followed it (`deposition`). Fenced it may be long after
another was elected, as by an ElectLeaders right behind the cut; and who leads instead may change
again while it is cut off. So all that a broker led in its present registration is kept in mind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from broker.plan import touched
from metadata.delta import Delta
from metadata.image import ClusterImage, PartitionImage
from metadata.records import NO_LEADER

Key = tuple[bytes, int]
News = list[tuple[Key, PartitionImage]]


@dataclass(slots=True, kw_only=True)
class _Former:
    """broker_epoch: of the registration in which it led. led: what this broker followed it in, and
    it does not lead any more. news: that part of it of whose leader it was not told."""

    broker_epoch: int
    led: set[Key] = field(default_factory=set)
    news: dict[Key, None] = field(default_factory=dict)


class FormerLeaders:
    """broker_id: of the broker that followed them."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._by_leader: dict[int, _Former] = {}

    def on_image(self, before: ClusterImage, delta: Delta | None, image: ClusterImage) -> list[int]:
        """`image` is the next one after `before`; `delta`, which led there, only spares a look at
        all that did not change. Returns whom there is something new to tell."""
        more: dict[int, None] = {}
        for leader in list(self._by_leader):
            broker = image.brokers.get(leader)
            if broker is None or broker.broker_epoch != self._by_leader[leader].broker_epoch:
                del self._by_leader[leader]  # another process, which leads nothing of it
            elif broker is not before.brokers.get(leader):
                more[leader] = None
        for topic_id, partition_ids in touched(before, image, delta):
            old, new = before.topics.get(topic_id), image.topics.get(topic_id)
            for partition_id in partition_ids:
                was = None if old is None else old.partitions.get(partition_id)
                now = None if new is None else new.partitions.get(partition_id)
                if was is not None and (now is None or now.leader != was.leader):
                    self._note(topic_id, partition_id, was, before)
                    for leader in self._on_leader((topic_id, partition_id), now):
                        more[leader] = None
        return [leader for leader in more if self.news_of(leader, image, 1)]

    def _note(
        self, topic_id: bytes, partition_id: int, was: PartitionImage, before: ClusterImage
    ) -> None:
        broker = before.brokers.get(was.leader)
        if broker is None or was.leader == self._broker_id or self._broker_id not in was.replicas:
            return
        former = self._by_leader.get(was.leader)
        if former is None:
            former = self._by_leader[was.leader] = _Former(broker_epoch=broker.broker_epoch)
        former.led.add((topic_id, partition_id))

    def _on_leader(self, key: Key, now: PartitionImage | None) -> Iterator[int]:
        """The partition has another leader, or is gone (None). Yields whom that is news to."""
        for leader, former in self._by_leader.items():
            if key not in former.led:
                continue
            former.news.pop(key, None)
            if now is None or now.leader == leader:
                former.led.discard(key)
            elif now.leader != NO_LEADER:
                # Where nobody leads there is nobody to go to; what it takes may yet be kept.
                former.news[key] = None
                yield leader

    def news_of(self, leader: int, image: ClusterImage, limit: int) -> News:
        """What it has to hear now, at most `limit`: nothing while the controllers reach it, nor if
        it has asked to go."""
        former, broker = self._by_leader.get(leader), image.brokers.get(leader)
        if former is None or broker is None or broker.broker_epoch != former.broker_epoch:
            return []
        if not broker.is_fenced or broker.in_controlled_shutdown:
            return []
        found: News = []
        for key in former.news:
            partition = image.partition(*key)
            if partition is not None:
                found.append((key, partition))
                if len(found) == limit:
                    break
        return found

    def on_told(self, leader: int, told: News, image: ClusterImage) -> None:
        """It has heard that; not what has changed meanwhile."""
        former = self._by_leader.get(leader)
        if former is None:
            return
        for key, partition in told:
            now = image.partition(*key)
            if now is None or now.leader_epoch == partition.leader_epoch:
                former.news.pop(key, None)
