"""The brokers in Metadata answers: unfenced ones, and for a short time those just fenced. Pure.

Bad sequence that this prevents: 1. Broker A dies and is fenced. 2. A client asks for metadata, and
the answer has the new leaders and no A. 3. librdkafka drops its handle of A while partitions still
move away from A, takes them for leaderless, and asks again only a second later. If A is still
listed, librdkafka moves the partitions and goes on.

Apache Kafka hides a fenced broker at once.
"""

from __future__ import annotations

from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage

FENCED_LISTING_MS = 10_000
"""Longer than any client takes to move its partitions, and short enough to do no harm."""


class FencedBrokerVisibility:
    """Remembers when this broker's image showed each broker go from unfenced to fenced."""

    def __init__(self) -> None:
        self._image = EMPTY_IMAGE
        self._listed_until_ms: dict[int, int] = {}

    def observe(self, image: ClusterImage, now_ms: int) -> None:
        """Compare `image` with the image observed before it."""
        before, self._image = self._image, image
        for broker_id, broker in image.brokers.items():
            known = before.brokers.get(broker_id)
            if broker.is_fenced and known is not None and not known.is_fenced:
                self._listed_until_ms[broker_id] = now_ms + FENCED_LISTING_MS

    def listed(self, image: ClusterImage, now_ms: int) -> tuple[int, ...]:
        """Ids of the brokers to list now, ascending."""
        for broker_id in [b for b, until in self._listed_until_ms.items() if now_ms >= until]:
            del self._listed_until_ms[broker_id]
        return tuple(
            broker_id
            for broker_id in sorted(image.brokers)
            if not image.brokers[broker_id].is_fenced or broker_id in self._listed_until_ms
        )
