"""The state machine of a broker: the cluster image, which follows the log."""

from __future__ import annotations

from kvorum.chaos.sim.controller.brokers import SimBroker
from kvorum.chaos.sim.controller.cluster_world import ClusterWorld
from kvorum.chaos.sim.controller.machine import ImageMachine
from kvorum.chaos.sim.quorum.model.state import ListState
from kvorum.chaos.sim.quorum.node import SimNode
from kvorum.metadata.image.loader import advance
from kvorum.raft.model.effects import LeaderChanged


class BrokerMachine(ImageMachine):
    """Stands in for `metadata.image.publisher`: the image of a broker, which follows the log."""

    def __init__(
        self, node: SimNode, state: ListState, world: ClusterWorld, broker: SimBroker
    ) -> None:
        super().__init__(node, state, world)
        self._broker = broker
        self._incarnation = node.incarnation
        self._high_watermark = 0
        self._is_running = False

    def apply(self, high_watermark: int) -> None:
        self._high_watermark = high_watermark
        if not self._is_running and self._wanted is None:
            self._run()

    def on_leader_changed(self, change: LeaderChanged) -> None:
        self._broker.on_election(change.leader_id, change.epoch)

    def stop(self) -> None:
        self._broker.on_stopped()

    def _on_loaded(self, state: ListState) -> None:
        super()._on_loaded(state)
        self._broker.on_image()

    def _run(self) -> None:
        self._is_running = False
        if self._wanted is not None:
            return  # the log before the snapshot was trimmed
        node, image = self._node, self.image
        if image.end_offset < self._high_watermark:
            log = node.replica_log.log
            delta, image = advance(
                log, image, self._high_watermark, bytes_max=self.world.scenario.chunk_bytes
            )
            self.note_image(image)
            self._broker.on_image(delta)
        if image.end_offset < self._high_watermark:
            self._is_running = True
            self.world.timeline.after(self.world.turn_ms(), self._run_later)

    def _run_later(self) -> None:
        node = self._node
        if node.is_up and node.incarnation == self._incarnation:
            node.submit(self._run)
