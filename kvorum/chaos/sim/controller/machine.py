"""The state machine of the controller's world: the cluster image, with the real loader and the real
bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvorum.chaos.sim.controller.cluster_world import ClusterWorld
from kvorum.chaos.sim.quorum.machine import StateMachine
from kvorum.chaos.sim.quorum.model.state import ListState
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.metadata.image.snapshot_job import load_image, payloads_of
from kvorum.runtime.async_disk import AsyncDisk
from kvorum.runtime.errors import required

if TYPE_CHECKING:
    from kvorum.chaos.sim.controller.reference import Reference
    from kvorum.chaos.sim.quorum.model.mirror import Mirror
    from kvorum.chaos.sim.quorum.node import SimNode


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


async def load_image_state(world: ClusterWorld, disk: AsyncDisk, path: str) -> ListState:
    """A `LoadState` of the quorum's recovery with the real loader. Raises CorruptData, OSError."""
    _, image = await load_image(disk, path)
    name = "SnapshotEqualsPrefix"
    return state_of_image(image, world.checks.committed, world.reference, path, name)


class ImageMachine(StateMachine):
    """A state machine whose state is a cluster image: of a controller or a broker. state: always an
    ImageState here, except for the moment before a process has begun."""

    _node: SimNode

    def __init__(self, node: SimNode, state: ListState, world: ClusterWorld) -> None:
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


def image_of(node: SimNode) -> ClusterImage:
    """The committed image of this node."""
    machine = node.machine
    return machine.image if isinstance(machine, ImageMachine) else EMPTY_IMAGE
