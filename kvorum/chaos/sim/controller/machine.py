"""The state machine of the controller's world: the cluster image, with the real loader and the real
bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kvorum.chaos.sim.quorum.machine import StateMachine
from kvorum.chaos.sim.quorum.state import ListState
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.metadata.image.loader import advance
from kvorum.metadata.image.snapshot_job import load_image, payloads_of
from kvorum.raft.effects import LeaderChanged
from kvorum.runtime.async_disk import AsyncDisk
from kvorum.runtime.errors import required

if TYPE_CHECKING:
    from kvorum.chaos.sim.controller.reference import Reference
    from kvorum.chaos.sim.controller.scenario import ControllerScenario
    from kvorum.chaos.sim.kernel.timeline import Timeline
    from kvorum.chaos.sim.quorum.checks.quorum_checks import QuorumChecks
    from kvorum.chaos.sim.quorum.mirror import Mirror
    from kvorum.chaos.sim.quorum.node import SimNode
    from kvorum.metadata.image.delta import Delta


class ImageWorld(Protocol):
    """The part of a world in which images of the cluster are made and checked."""

    @property
    def scenario(self) -> ControllerScenario: ...

    @property
    def timeline(self) -> Timeline: ...

    @property
    def checks(self) -> QuorumChecks: ...

    @property
    def reference(self) -> Reference: ...

    def turn_ms(self) -> int:
        """Pause of a process between two chunks of the log, in which other events happen."""


class ImageFollower(Protocol):
    """The broker that follows an image (`chaos.sim.controller.brokers.SimBroker`)."""

    def on_election(self, leader_id: int, epoch: int) -> None:
        """Handle an election of the metadata log's leader."""

    def on_image(self, delta: Delta | None = None) -> None:
        """Handle an advance of the image. delta: the change, if it is known."""

    def on_stopped(self) -> None:
        """Handle the end of the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageState(ListState):
    """A cluster image. digest: of the committed records below the image's offset. It is set once
    the image was found equal to the image of these records, so the quorum's checks cover images
    too."""

    image: ClusterImage = EMPTY_IMAGE

    def payloads(self) -> Iterator[bytes]:  # type: ignore[override]
        """The data frames of a real snapshot."""
        return payloads_of(self.image)


def state_of_image(
    image: ClusterImage, committed: Mirror, reference: Reference, who: str, name: str
) -> ImageState:
    """The image as a state of the simulator. Raises CheckFailed(name) if it differs from the image
    of the committed records below its offset."""
    reference.agrees(image, who, name)
    return ImageState(
        end_offset=image.end_offset,
        epoch=image.epoch,
        digest=required(committed.digest_at(image.end_offset), "the reference reaches there"),
        image=image,
    )


async def load_image_state(world: ImageWorld, disk: AsyncDisk, path: str) -> ListState:
    """A `chaos.sim.quorum.recovery.LoadState` with the real loader. Raises CorruptData, OSError."""
    _, image = await load_image(disk, path)
    name = "SnapshotEqualsPrefix"
    return state_of_image(image, world.checks.committed, world.reference, path, name)


class ImageMachine(StateMachine):
    """A state machine whose state is a cluster image: of a controller or a broker. state: always an
    ImageState here, except for the moment before a process has begun."""

    _node: SimNode

    def __init__(self, node: SimNode, state: ListState, world: ImageWorld) -> None:
        self.world = world
        super().__init__(node, state)

    @property
    def image(self) -> ClusterImage:
        """The committed image of this node."""
        return self.state.image if isinstance(self.state, ImageState) else EMPTY_IMAGE

    def note_image(self, image: ClusterImage, name: str = "ImagesAgree") -> None:
        """Check the node's image after it advanced along the log; write a snapshot if one is
        due."""
        who = f"node {self._node.node_id}"
        world = self.world
        self.state = state_of_image(image, world.checks.committed, world.reference, who, name)
        world.checks.on_applied(self._node)
        if 0 < self._due_offset <= self.state.end_offset:
            self.snapshot()


class BrokerMachine(ImageMachine):
    """Stands in for `metadata.image.publisher`: the image of a broker, which follows the log."""

    def __init__(
        self, node: SimNode, state: ListState, world: ImageWorld, broker: ImageFollower
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
