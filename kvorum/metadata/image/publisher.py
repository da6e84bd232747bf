"""A broker's metadata: follows the log as an observer and publishes each change."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.metadata.image.loader import advance
from kvorum.metadata.image.snapshotter import ImageLoader, Snapshotter, load_newest
from kvorum.raft.model.effects import LeaderChanged
from kvorum.raft.model.values import OffsetAndEpoch
from kvorum.raft.model.voters import VoterSet
from kvorum.raft.node.raft_node import RaftNode
from kvorum.runtime.errors import required
from kvorum.runtime.ids import NO_NODE
from kvorum.runtime.memory import long_lived_objects

PUBLISH_BYTES_MAX = 64 << 10
"""Log bytes published at once, at least one batch: some 1,500 changed partitions. Each may open a
log, change a role and notify a fetcher, and heartbeats must not wait for all of them."""

MANY_RECORDS = 1_000
"""From this many records on, the new images and replicas are exempted from garbage collection."""

Publish = Callable[[Delta | None, ClusterImage], None]
"""Receives the change and the new image. The delta is None if the image came from a snapshot; the
receiver must then compare it with the image before."""


class MetadataPublisher:
    """Turns committed records into (delta, image) for the broker's parts; a
        `raft.node.raft_node.RaftListener`.

    image: the last published one.
    on_election: called with each leader and its epoch.
    on_voters: called with each voter set. `wait_for(offset)` lets a caller see its own writes.
    """

    def __init__(self, publish: Publish, *, on_failure: Callable[[BaseException], None]) -> None:
        self.image: ClusterImage = EMPTY_IMAGE
        self._publish = publish
        self.on_election: Callable[[int, int], None] = lambda leader_id, epoch: None
        self.on_voters: Callable[[VoterSet], None] = lambda voters: None
        self._on_failure = on_failure
        self._node: RaftNode | None = None
        self._snapshotter: Snapshotter | None = None
        self._loader: ImageLoader | None = None
        self._high_watermark = 0
        self._is_running = False
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def attach(self, node: RaftNode) -> None:
        """Give the publisher its node; once, before the node starts."""
        self._node = node
        self._snapshotter = Snapshotter(node)
        self._loader = ImageLoader(node, on_loaded=self._on_loaded, on_failure=self._on_failure)

    @property
    def node(self) -> RaftNode:
        """The node whose log is followed; attached before the node starts."""
        return required(self._node, "the publisher has no node yet")

    async def load(self, snapshot: OffsetAndEpoch | None) -> None:
        """Start with the state of this node's newest snapshot, before the node starts."""
        if snapshot is not None:
            node = self.node
            self._on_loaded(await load_newest(node, snapshot))

    def on_committed(self, high_watermark: int) -> None:
        self._high_watermark = high_watermark
        if not self._is_running and not self._is_loading:
            self._run()

    def on_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        required(self._loader, "the publisher has no node yet").load(snapshot)

    def on_leader_changed(self, change: LeaderChanged) -> None:
        """Report the new leader: the image does not depend on it, but the leader's clients do."""
        if change.leader_id != NO_NODE:
            self.on_election(change.leader_id, change.epoch)

    def on_voters_changed(self, voters: VoterSet) -> None:
        self.on_voters(voters)

    async def wait_for(self, end_offset: int, timeout_ms: int) -> bool:
        """Wait until the published image reaches end_offset; False after timeout_ms."""
        if self.image.end_offset >= end_offset:
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((end_offset, future))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await future
        except TimeoutError:
            self._waiting = [entry for entry in self._waiting if entry[1] is not future]
            return False
        return True

    @property
    def _is_loading(self) -> bool:
        return self._loader is not None and self._loader.is_loading

    def _on_loaded(self, image: ClusterImage) -> None:
        self.image = image
        required(self._snapshotter, "the publisher has no node yet").note_loaded(image)
        self._publish(None, image)
        self._run()

    def _run(self) -> None:
        """Publish one chunk; the rest follows in the next turn of the loop."""
        self._is_running = False
        if self._is_loading:
            return  # the log below the snapshot is gone
        try:
            if self.image.end_offset < self._high_watermark:
                node = self.node
                is_much = self._high_watermark - self.image.end_offset > MANY_RECORDS
                with long_lived_objects() if is_much else contextlib.nullcontext():
                    delta, self.image = advance(
                        node.log, self.image, self._high_watermark, bytes_max=PUBLISH_BYTES_MAX
                    )
                    self._publish(delta, self.image)
                required(self._snapshotter, "attached with the node").on_image(self.image)
        except Exception as error:  # noqa: BLE001 - unreadable metadata: the broker must exit
            self._on_failure(error)
            return
        if self._waiting:
            self._release()
        if self.image.end_offset < self._high_watermark:
            self._is_running = True
            asyncio.get_running_loop().call_soon(self._run)

    def _release(self) -> None:
        still = []
        for end_offset, future in self._waiting:
            if end_offset > self.image.end_offset:
                still.append((end_offset, future))
            elif not future.done():
                future.set_result(None)
        self._waiting = still
