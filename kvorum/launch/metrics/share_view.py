"""The share groups of a broker as its metrics see them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kvorum.broker.groups.share.group import EMPTY, STABLE, ShareGroup
from kvorum.broker.metrics.share_counters import ShareMetrics
from kvorum.broker.share.core.sessions import ShareSessions
from kvorum.broker.share.core.states import AcknowledgeType
from kvorum.broker.share.led_share_partition import LedSharePartition
from kvorum.broker.share_state.shard import ShareStateShard
from kvorum.launch.metrics.row import Item, Scope, escaped
from kvorum.launch.metrics.views import Number
from kvorum.metadata.image.image import ClusterImage

if TYPE_CHECKING:
    from kvorum.broker.share.share_services import ShareServices

OFTEN = 3
"""Deliveries from which on records are counted together: a label must not have many values."""
ACTIVE = "active"
"""Kafka's word for a coordinator that serves requests."""


class _SharePartition:
    """A share-partition at the time at which its line is written."""

    __slots__ = ("_led",)

    def __init__(self, led: LedSharePartition) -> None:
        self._led = led

    @property
    def in_flight_records(self) -> int:
        return 0 if self._led.core is None else self._led.core.in_flight

    @property
    def acquired_records(self) -> int:
        return self._led.acquired_records

    @property
    def lock_timeouts(self) -> int:
        return self._led.lock_timeouts


class ShareView:
    """Share groups at the time of a scrape.

    members: of the share groups whose coordinator is this broker.
    states: share-partitions whose state this broker's share coordinators keep.
    shards: number of these coordinators.
    write_mean_ms, write_max_ms, write_rate, rebalance_rate: over the last minute.
    """

    def __init__(
        self, services: ShareServices, metrics: ShareMetrics, image: ClusterImage, now_s: float
    ) -> None:
        self._services = services
        self._metrics = metrics
        self._image = image
        self._now_s = now_s
        self.groups = {EMPTY: 0, STABLE: 0}
        self.members = self.states = self.shards = 0
        self.scopes: dict[str, Scope] = {
            "share_groups": self._groups,
            "share_partition": self._partitions,
            "share_deliveries": self._deliveries,
            "share_shards": lambda: iter([((ACTIVE,), Number(self.shards))]),
            "acknowledgements": self._acknowledgements,
        }

    @property
    def partitions(self) -> int:
        return len(self._services.partitions.led.active())

    @property
    def sessions(self) -> ShareSessions:
        return self._services.partitions.sessions

    @property
    def write_mean_ms(self) -> float | None:
        return self._metrics.coordinator_write_recent.mean(self._now_s)

    @property
    def write_max_ms(self) -> float | None:
        return self._metrics.coordinator_write_recent.maximum(self._now_s)

    @property
    def write_rate(self) -> float:
        return self._metrics.coordinator_writes_recent.rate(self._now_s)

    @property
    def rebalance_rate(self) -> float:
        return self._metrics.rebalances_recent.rate(self._now_s)

    @property
    def count(self) -> int:
        """Number of share groups."""
        return sum(self.groups.values())

    def note_groups(self, groups: Iterable[ShareGroup]) -> None:
        """Count the share groups of one shard."""
        for group in groups:
            self.groups[group.state] += 1
            self.members += len(group.members)

    def count_coordinators(self) -> Iterator[None]:
        """Count the share coordinators; a step for each."""
        for shard in self._services.states.active_shards():
            if isinstance(shard, ShareStateShard):
                self.shards += 1
                self.states += len(shard.states)
            yield None

    # --- scopes ------------------------------------------------------------------------------

    def _groups(self) -> Iterator[Item]:
        for state, count in self.groups.items():
            yield (state,), Number(count)

    def _partitions(self) -> Iterator[Item | None]:
        for found in self._led():
            yield None if found is None else (found[0], _SharePartition(found[1]))

    def _deliveries(self) -> Iterator[Item | None]:
        for found in self._led():
            names, core = (None, None) if found is None else (found[0], found[1].core)
            if names is None or core is None:
                yield None
                continue
            counts = core.unsettled_records
            often = sum(count for times, count in counts.items() if times >= OFTEN)
            for times in range(1, OFTEN):
                yield (*names, str(times)), Number(counts.get(times, 0))
            yield (*names, f"{OFTEN}+"), Number(often)

    def _led(self) -> Iterator[tuple[tuple[str, str, str], LedSharePartition] | None]:
        """The share-partitions with the values of their labels; None for one that is gone."""
        for led in self._services.partitions.led.active():
            topic = self._image.topics.get(led.key.topic_id)
            if topic is None or led.failure is not None:
                yield None  # deleted, or ended since the walk began
            else:
                names = escaped(led.key.group_id), escaped(topic.name), str(led.key.partition)
                yield names, led

    def _acknowledgements(self) -> Iterator[Item]:
        for kind in AcknowledgeType:
            # A gap is no record; Kafka does not count it either.
            if kind is not AcknowledgeType.GAP:
                yield (kind.name.title(),), Number(self._metrics.acknowledged[kind])
