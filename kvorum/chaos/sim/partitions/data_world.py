"""The state that brokers with partitions and their clients share."""

from __future__ import annotations

from kvorum.chaos.sim.controller.world import ControllerWorld
from kvorum.chaos.sim.kernel.sockets import SimConnections
from kvorum.chaos.sim.partitions.scenario import PartitionScenario
from kvorum.chaos.sim.partitions.watch import ReplicaWatch

WALL_START_MS = 1_700_000_000_000


class DataWorld(ControllerWorld):
    """The controller's world with the data of its topics.

    topic_names: of the topics that clients write to.
    watch: checks all replicas.
    links: connections of brokers and clients.
    """

    scenario: PartitionScenario
    topic_names: tuple[str, ...]
    watch: ReplicaWatch
    links: SimConnections
    _last_producer_id = 0

    @property
    def wall_ms(self) -> int:
        """The wall-clock time of the clients."""
        return WALL_START_MS + self.timeline.now_ms

    def next_producer_id(self) -> int:
        """A producer id, as from `InitProducerId`. Requests for blocks of ids are part of the
        controller's world."""
        self._last_producer_id += 1
        return self._last_producer_id

    def is_compacted(self, topic: str) -> bool:
        """True if the topic of that name is created with cleanup.policy=compact."""
        return self.scenario.is_compacting and topic == self.topic_names[-1]
