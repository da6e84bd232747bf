"""Tells which observations are news. Pure: one object per node, no clock of its own.

An observation is written when it differs from the node's last one. The quorum's high watermark and
the ends of its logs move with every record, so alone they are written once in HIGH_WATERMARK_MS; a
high watermark that falls is written at once. A node that stops answering is written once, and
everything it says afterwards is news.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from kvorum.chaos.outages.observations import (
    UNKNOWN,
    Observation,
    PartitionSeen,
    QuorumSeen,
    Unanswered,
)

HIGH_WATERMARK_MS = 1_000


class Changes:
    """The news of one node."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._partitions: dict[tuple[str, int], PartitionSeen] = {}
        self._quorum: QuorumSeen | None = None
        self._quorum_ms = 0.0
        self._is_silent = False

    def seen(self, observations: Sequence[Observation], now_ms: float) -> list[Observation]:
        """The observations among these that are to be written."""
        self._is_silent = False
        return [item for item in observations if self._is_news(item, now_ms)]

    def missing(self, error: str) -> list[Observation]:
        """The observations to write after the node did not answer: one, if it answered before."""
        if self._is_silent:
            return []
        self._is_silent = True
        self._partitions.clear()
        self._quorum = None
        return [Unanswered(observer=self._node, error=error)]

    def _is_news(self, item: Observation, now_ms: float) -> bool:
        match item:
            case PartitionSeen():
                key = (item.topic, item.partition)
                is_known = self._partitions.get(key) == item
                self._partitions[key] = item
                return not is_known
            case QuorumSeen():
                return self._is_quorum_news(item, now_ms)
            case Unanswered():
                return True

    def _is_quorum_news(self, item: QuorumSeen, now_ms: float) -> bool:
        last = self._quorum
        if item == last:
            return False
        if last is not None and item.high_watermark >= last.high_watermark != UNKNOWN:
            unmoved = dataclasses.replace(
                item,
                high_watermark=last.high_watermark,
                log_end_offsets=last.log_end_offsets,
            )
            is_same = unmoved == last
            if is_same and now_ms - self._quorum_ms < HIGH_WATERMARK_MS:
                return False
        self._quorum, self._quorum_ms = item, now_ms
        return True
