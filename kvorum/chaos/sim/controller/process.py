"""A controller's process: the real QuorumController over a simulated node.

It does the work of `metadata.controller.loop`, and of `raft.node.raft_node` for proposals, in
virtual time: all proposals of one turn become one append, and timers use the node's own clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kvorum.chaos.sim.controller.cluster_world import ClusterWorld
from kvorum.chaos.sim.controller.history import OWN, Attempt, kind_of
from kvorum.chaos.sim.controller.machine import ImageMachine
from kvorum.chaos.sim.kernel.clock import Alarm
from kvorum.chaos.sim.quorum.model.state import ListState
from kvorum.metadata.controller.core.controller import Controller, ControllerConfig, Reply, Request
from kvorum.metadata.controller.core.quorum_controller import AT_ONCE_MS, QuorumController
from kvorum.metadata.image.image import ClusterImage
from kvorum.raft.core.states import Follower
from kvorum.raft.model.effects import LeaderChanged
from kvorum.raft.model.events import Propose
from kvorum.raft.model.values import OffsetAndEpoch
from kvorum.raft.model.voters import VoterSet
from kvorum.runtime.ids import NO_NODE
from kvorum.runtime.memory_disk import PowerCut
from kvorum.storage.format.batch import build_batch
from kvorum.storage.log.log import Log

if TYPE_CHECKING:
    from kvorum.chaos.sim.quorum.node import SimNode


class ControllerMachine(ImageMachine):
    """One process of a controller; implements `ControllerPort` for its core."""

    world: ClusterWorld

    def __init__(self, node: SimNode, state: ListState, world: ClusterWorld) -> None:
        super().__init__(node, state, world)
        scenario = world.scenario
        self.controller = Controller(
            ControllerConfig(
                broker_session_timeout_ms=scenario.session_ms,
                broker_stream_grace_ms=scenario.grace_ms,
                default_replication_factor=min(scenario.observers, 3) or 1,
                unclean_leader_election_enable=scenario.is_unclean,
                leader_imbalance_check_interval_seconds=scenario.rebalance_s,
            ),
            cluster_id=node.config.cluster_id,
            rng=random.Random(f"{scenario.seed}-{node.node_id}-{node.incarnation}"),
            fencing_chunk=1 + scenario.seed % 4,
        )
        self.core = QuorumController(self.controller, self, chunk_bytes=scenario.chunk_bytes)
        self.is_running = node.is_up
        self._alarm = Alarm(world.timeline, node.clock, self._on_alarm)
        self._voters: VoterSet | None = None
        self._proposals: list[tuple[bytes, int]] = []
        self._attempt: Attempt | None = None
        if self.image.end_offset:
            self.core.on_loaded(self.image, node.local_ms)

    # Requests.

    def submit(
        self, request: Request, on_reply: Callable[[Reply], None], *, timeout_ms: int
    ) -> None:
        """Hand a request to the core, on behalf of a client or broker."""
        world = self.world
        attempt = world.history.begin(kind_of(request), self.node_id, request)
        attempt.is_decided = self.controller.is_active
        attempt.base_offset = self.next_offset

        def reply_with(reply: Reply) -> None:
            world.history.note_reply(attempt, reply, world.checks.committed)
            if attempt.values and world.strikes.on_committed(self._node, attempt, reply):
                return
            on_reply(reply)

        def decide() -> None:
            self._attempt = attempt
            try:
                self.core.submit(
                    request, reply_with, timeout_ms=timeout_ms, now_ms=self._node.local_ms
                )
            finally:
                self._attempt = None
            if attempt.values:
                world.strikes.on_decided(self._node, attempt)

        self._do(decide)

    def stream_broke(self, broker_id: int, broker_epoch: int, serial: int) -> None:
        """Tell the core that the heartbeat stream of a broker ended."""
        self._do(
            lambda: self.core.stream_broke(broker_id, broker_epoch, serial, self._node.local_ms)
        )

    # The methods of Machine.

    def apply(self, high_watermark: int) -> None:
        self.core.on_committed(high_watermark, self._node.local_ms)
        self._arm()

    def on_leader_changed(self, change: LeaderChanged) -> None:
        self.core.on_leader_changed(change, self._node.local_ms)
        self._arm()

    def before_voter_change(self) -> None:
        while self._proposals and self._node.is_leader:
            self._append_proposals()

    def after_event(self) -> None:
        voters = self._node.core.voter_set
        if voters is not self._voters:
            self._voters = voters
            self.core.on_voters_changed(voters.ids)

    def load(self, snapshot: OffsetAndEpoch) -> None:
        self.core.on_loading()
        super().load(snapshot)

    def on_clock_changed(self) -> None:
        self._alarm.cancel()
        self._arm()

    def stop(self) -> None:
        self.is_running = False
        self._alarm.cancel()

    def _on_loaded(self, state: ListState) -> None:
        self.state = state
        self.world.checks.on_applied(self._node)
        self._plan_snapshot()
        self._do(lambda: self.core.on_loaded(self.image, self._node.local_ms))

    # The methods of ControllerPort.

    @property
    def node_id(self) -> int:
        return self._node.node_id

    @property
    def next_offset(self) -> int:
        return self._node.core.log.end_offset + sum(count for _, count in self._proposals)

    @property
    def log(self) -> Log:
        return self._node.replica_log.log

    @property
    def leader_id(self) -> int:
        core = self._node.core
        if isinstance(core.role, Follower) and core.role.is_leader_lost:
            return NO_NODE
        return core.leader_id

    @property
    def voter_ids(self) -> Sequence[int]:
        return self._node.core.voter_set.ids

    @property
    def wall_ms(self) -> int:
        return self._node.local_ms

    def propose(self, values: Sequence[bytes]) -> None:
        world = self.world
        own = self._attempt is None
        attempt = self._attempt or world.history.begin(OWN, self.node_id)
        world.history.note_proposed(attempt, self.controller.epoch, self.next_offset, values)
        if not self._proposals:
            # Append in this same turn, after its other events.
            world.timeline.after(0, self._append_later)
        batch = build_batch([(None, value) for value in values], timestamp_ms=self._node.local_ms)
        self._proposals.append((bytes(batch), len(values)))
        if own:
            world.strikes.on_decided(self._node, attempt)

    def on_image(self, image: ClusterImage) -> None:
        is_decided = self.controller.is_active
        self.note_image(image, "SpeculativeMatchesCommitted" if is_decided else "ImagesAgree")

    def note(self, text: str, *, is_warning: bool = False) -> None:
        self.world.timeline.note(f"node={self.node_id} {text}")

    # Inside.

    def _do(self, call: Callable[[], None]) -> None:
        """Call the core outside of an event of the quorum."""
        if not self.is_running:
            return
        try:
            call()
            self._arm()
        except PowerCut as error:
            self._node.die(error)

    def _arm(self) -> None:
        deadline_ms = self.core.next_deadline_ms()
        if deadline_ms is None or not self.is_running:
            return
        if deadline_ms == AT_ONCE_MS:
            deadline_ms = self._node.local_ms + self.world.turn_ms()
        self._alarm.set(deadline_ms)

    def _on_alarm(self) -> None:
        self._node.submit(lambda: self._do(lambda: self.core.on_timer(self._node.local_ms)))

    def _append_later(self) -> None:
        if self.is_running:
            self._node.submit(self._append_proposals)

    def _append_proposals(self) -> None:
        if not self.is_running:
            return
        proposals, self._proposals = self._proposals, []
        if proposals and self._node.is_leader:
            batches, counts = zip(*proposals, strict=True)
            self._node.deliver(Propose(tuple(batches), tuple(counts)))
