"""The topics of Metadata answers, encoded once for all clients.

A topic's bytes stay valid while its image and the set of unfenced brokers do not change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator

from kvorum.metadata.image.image import ClusterImage, PartitionImage, TopicImage
from kvorum.metadata.image.records import NO_LEADER
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.kio_codec import Packed
from kvorum.wire.metadata_codec import PartitionMetadata, pack_partitions

CACHED_BYTES_MAX = 4 << 20
"""Limit of cached bytes. Above it the cache is cleared, and refilled by later requests."""


WHOLE_ANSWERS_MAX = 32
WHOLE_BYTES_MAX = 64 << 20
"""Limits of the answers with all topics that are kept. A single one may be larger."""

Body = bytes | tuple[bytes, ...]
"""An encoded answer, in one piece or in several."""


class TopicMetadata:
    """Encoded partitions of topics, as Metadata answers have them."""

    def __init__(self) -> None:
        self._image: ClusterImage | None = None
        self._live: frozenset[int] = frozenset()
        self._packed: dict[tuple[bytes, int], tuple[TopicImage, Packed]] = {}
        self._size_bytes = 0
        self._whole: dict[Hashable, Body] = {}
        self._whole_bytes = 0
        self._whole_of: ClusterImage | None = None
        self.slicing = asyncio.Lock()
        """Held while a large answer with all topics is packed: others wait for it."""
        self.packing = asyncio.Lock()
        """The same for topics of many partitions."""

    def whole_answer(self, image: ClusterImage, key: Hashable) -> Body | None:
        """The answer with all topics of this image, if it is kept. key: all that it depends on."""
        return self._whole.get(key) if self._whole_of is image else None

    def keep_whole(self, image: ClusterImage, key: Hashable, body: Body) -> None:
        """Keep an answer with all topics until the image changes."""
        size = len(body) if isinstance(body, bytes) else sum(map(len, body))
        is_full = len(self._whole) >= WHOLE_ANSWERS_MAX or self._whole_bytes > WHOLE_BYTES_MAX
        if self._whole_of is not image or is_full:
            self._whole_of = image
            self._whole.clear()
            self._whole_bytes = 0
        self._whole[key] = body
        self._whole_bytes += size

    def partitions(self, image: ClusterImage, topic: TopicImage, version: int) -> Packed:
        """The encoded partitions of a topic of this image, for this version of Metadata."""
        packed = self.kept(image, topic, version)
        if packed is None:
            listed = listed_partitions(topic, self._live)
            packed = pack_partitions(version, listed, len(topic.partitions))
            self.keep(image, topic, version, packed)
        return packed

    def kept(self, image: ClusterImage, topic: TopicImage, version: int) -> Packed | None:
        """The same, if they are kept."""
        self._follow(image)
        found = self._packed.get((topic.topic_id, version))
        return found[1] if found is not None and found[0] is topic else None

    def keep(self, image: ClusterImage, topic: TopicImage, version: int, packed: Packed) -> None:
        """Keep the encoded partitions of a topic of this image."""
        self._follow(image)
        key = (topic.topic_id, version)
        if key in self._packed:
            self._size_bytes -= len(self._packed.pop(key)[1])
        if self._size_bytes + len(packed) > CACHED_BYTES_MAX:
            self._forget()
        self._packed[key] = (topic, packed)
        self._size_bytes += len(packed)

    def _follow(self, image: ClusterImage) -> None:
        if image is self._image:
            return
        self._image = image
        live = live_brokers(image)
        if live != self._live:
            self._live = live
            self._forget()

    def _forget(self) -> None:
        self._packed.clear()
        self._size_bytes = 0


def live_brokers(image: ClusterImage) -> frozenset[int]:
    """Ids of the brokers that are registered and not fenced."""
    return frozenset(i for i, broker in image.brokers.items() if not broker.is_fenced)


def offline_replicas(partition: PartitionImage, live: frozenset[int]) -> tuple[int, ...]:
    """The replicas on brokers that are fenced or not registered. live: ids of all other brokers."""
    if live.issuperset(partition.replicas):
        return ()
    return tuple(replica for replica in partition.replicas if replica not in live)


def listed_partitions(topic: TopicImage, live: frozenset[int]) -> Iterator[PartitionMetadata]:
    """The partitions of a topic in their order. live: ids of the brokers that are not fenced."""
    partitions = topic.partitions
    for partition_id in sorted(partitions):
        partition = partitions[partition_id]
        leader = partition.leader
        yield PartitionMetadata(
            ErrorCode.NONE if leader != NO_LEADER else ErrorCode.LEADER_NOT_AVAILABLE,
            partition_id,
            leader,
            partition.leader_epoch,
            partition.replicas,
            partition.isr,
            offline_replicas(partition, live),
        )
