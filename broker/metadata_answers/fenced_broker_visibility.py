"""Which brokers Metadata names: the unfenced ones, and for a short while those just fenced. Pure.

Bad sequence that the while prevents: a broker dies and is fenced; a client asks for metadata and
is told the new leaders and, at once, that the dead broker is no more. librdkafka then drops that
broker's handle while its partitions still move away from it, takes them for leaderless, and asks
again only a second later. With the dead broker still listed it moves them and goes on.
Apache Kafka hides a fenced broker at once.
"""

from __future__ import annotations

from kvorum.metadata.image.image import ClusterImage

FENCED_LISTING_MS = 10_000
"""Longer than any client takes to move its partitions, shorter than anybody would miss."""


class FencedBrokerVisibility:
    """Remembers when this node saw each broker go from unfenced to fenced."""

    def __init__(self) -> None:
        self._listed_until_ms: dict[int, int] = {}

    def observe(self, before: ClusterImage, after: ClusterImage, now_ms: int) -> None:
        """The image changed."""
        for broker_id, broker in after.brokers.items():
            known = before.brokers.get(broker_id)
            if broker.is_fenced and known is not None and not known.is_fenced:
                self._listed_until_ms[broker_id] = now_ms + FENCED_LISTING_MS

    def listed(self, image: ClusterImage, now_ms: int) -> tuple[int, ...]:
        """Ids of the brokers to name now, ascending."""
        for broker_id in [b for b, until in self._listed_until_ms.items() if now_ms >= until]:
            del self._listed_until_ms[broker_id]
        return tuple(
            broker_id
            for broker_id in sorted(image.brokers)
            if not image.brokers[broker_id].is_fenced or broker_id in self._listed_until_ms
        )
