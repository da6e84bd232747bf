"""A client's lookup of a partition's leader, and its connection to that leader."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kvorum.chaos.sim.controller.machine import image_of
from kvorum.chaos.sim.kernel.sockets import SimSocket
from kvorum.chaos.sim.partitions.data_world import DataWorld
from kvorum.chaos.sim.partitions.wire import Frames

if TYPE_CHECKING:
    pass


class KnownLeader(NamedTuple):
    """A leader in the metadata of one broker."""

    broker_id: int
    leader_epoch: int
    topic_id: bytes


def look_up(
    world: DataWorld, rng: random.Random, topic: str, partition_id: int
) -> KnownLeader | None:
    """The leader in the metadata of a random broker; it may be stale."""
    serving = [
        node
        for node_id in world.broker_ids
        if (node := world.nodes[node_id]).is_up and not node.is_paused
    ]
    if not serving:
        return None
    image = image_of(rng.choice(serving))
    found = image.topic(topic)
    partition = None if found is None else found.partitions.get(partition_id)
    if found is None or partition is None or partition.leader < 0:
        return None
    return KnownLeader(partition.leader, partition.leader_epoch, found.topic_id)


class LeaderConnection:
    """A client's connection, one at a time, to the leader of the partition.

    on_frame: called with each answer and the event at which it was sent.
    on_lost: the connection was lost.
    """

    def __init__(
        self,
        world: DataWorld,
        *,
        on_open: Callable[[], None],
        on_frame: Callable[[bytes, int], None],
        on_lost: Callable[[], None],
    ) -> None:
        self.leader: KnownLeader | None = None
        self._world = world
        self._on_open = on_open
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._end: SimSocket | None = None
        self._frames = Frames()
        self._serial = 0
        self._correlation_id = 0

    @property
    def is_open(self) -> bool:
        return self._end is not None

    def next_id(self) -> int:
        """The next correlation id."""
        self._correlation_id += 1
        return self._correlation_id

    def connect(self, leader: KnownLeader) -> None:
        """Drop the present connection, and open another."""
        self.close()
        self.leader = leader
        self._serial += 1
        serial = self._serial

        def opened(end: SimSocket) -> None:
            if serial != self._serial:
                end.close()
                return
            self._end = end
            self._on_open()

        def received(data: bytes, sent_at: int) -> None:
            if serial != self._serial:
                return
            for frame in self._frames.feed(data):
                self._on_frame(frame, sent_at)
                if serial != self._serial:
                    return

        self._world.links.connect(
            None,
            None,
            self._world.nodes[leader.broker_id],
            on_open=opened,
            on_refused=partial(self._lose, serial),
            on_bytes=received,
            on_end=partial(self._lose, serial),
        )

    def send(self, frame: bytes) -> None:
        """Send on the connection, which must be open."""
        if self._end is not None:
            self._end.send(frame)

    def close(self) -> None:
        """Close the connection."""
        self._serial += 1
        end, self._end = self._end, None
        self._frames = Frames()
        if end is not None:
            end.close()

    def _lose(self, serial: int) -> None:
        if serial == self._serial:
            self.close()
            self._on_lost()
