"""Decides when a node writes a snapshot of its metadata, and loads snapshots.

Controllers and brokers use it. It is a driver: `snapshots.retention.is_due` holds the rule, and
`metadata.image.snapshot_job` makes the bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.loader import check_features
from kvorum.metadata.image.snapshot_job import load_image, payloads_of
from kvorum.raft.model.values import OffsetAndEpoch
from kvorum.raft.node.raft_node import RaftNode
from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.errors import CorruptData
from kvorum.snapshots.retention import is_due

logger = logging.getLogger("kvorum.snapshots")


class Snapshotter:
    """Writes snapshots of one node's committed image when they are due."""

    def __init__(self, node: RaftNode) -> None:
        self._node = node
        self._policy = node.files.policy
        self._is_writing = False
        self._last_offset = node.log.start_offset
        self._last_bytes = node.replica_log.appended_bytes
        self._last_ms = monotonic_ms()
        self._timer: asyncio.TimerHandle | None = None
        self._image: ClusterImage | None = None

    def on_image(self, image: ClusterImage) -> None:
        """Take the new committed image, and write a snapshot of it if one is due."""
        self._image = image
        if self._is_writing:
            return
        policy = self._policy
        interval_ms = policy.metadata_log_max_snapshot_interval_ms
        ms_since = monotonic_ms() - self._last_ms
        if is_due(
            bytes_since=self._node.replica_log.appended_bytes - self._last_bytes,
            ms_since=ms_since,
            records_since=image.end_offset - self._last_offset,
            bytes_max=policy.metadata_log_max_record_bytes_between_snapshots,
            interval_ms=interval_ms,
        ):
            self._write(image)
        elif self._timer is None and interval_ms > 0:
            # Even if no more records are committed, the interval must end.
            delay_s = max(interval_ms - ms_since, 0) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def note_loaded(self, image: ClusterImage) -> None:
        """Count from the snapshot that the image was loaded from."""
        self._image = image
        self._last_offset = image.end_offset
        self._last_bytes = self._node.replica_log.appended_bytes
        self._last_ms = monotonic_ms()

    def _on_timer(self) -> None:
        self._timer = None
        if self._image is not None:
            self.on_image(self._image)

    def _write(self, image: ClusterImage) -> None:
        if image.end_offset <= self._node.log.start_offset:
            return  # a newer snapshot has just come from the leader
        self._is_writing = True
        bytes_now = self._node.replica_log.appended_bytes

        def on_done(is_durable: bool) -> None:
            self._is_writing = False
            # Also after a failure: the next attempt waits until as many bytes have gathered again.
            self._last_bytes, self._last_ms = bytes_now, monotonic_ms()
            if is_durable:
                self._last_offset = max(self._last_offset, image.end_offset)
                logger.info("node=%d snapshot=%d-%d", self._node.config.node_id, *_name(image))

        self._node.take_snapshot(image.end_offset, image.epoch, payloads_of(image), on_done)


async def load_newest(node: RaftNode, snapshot: OffsetAndEpoch) -> ClusterImage:
    """The image of a snapshot on this node. Raises CorruptData, UnreadableRecord, OSError."""
    _, image = await load_image(node.files.store.disk, node.files.path(snapshot))
    check_features(image)
    return image


class ImageLoader:
    """Loads the image of a snapshot in a task; a snapshot named later replaces an earlier one."""

    def __init__(
        self,
        node: RaftNode,
        *,
        on_loaded: Callable[[ClusterImage], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._node = node
        self._on_loaded = on_loaded
        self._on_failure = on_failure
        self._wanted: OffsetAndEpoch | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_loading(self) -> bool:
        return self._wanted is not None

    def load(self, snapshot: OffsetAndEpoch) -> None:
        """Start loading; on_loaded gets the image. A snapshot named meanwhile replaces this one."""
        self._wanted = snapshot
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._wanted is not None:
                snapshot = self._wanted
                try:
                    image = await load_newest(self._node, snapshot)
                except (OSError, CorruptData):
                    if self._wanted == snapshot:
                        raise
                    # a newer snapshot is wanted, and this file was removed during the read
                    continue
                if self._wanted == snapshot:
                    self._wanted = None
                    self._on_loaded(image)
        except Exception as error:  # noqa: BLE001 - the state is lost to this node: it must exit
            self._on_failure(error)
        finally:
            self._task = None


def _name(image: ClusterImage) -> tuple[int, int]:
    return image.end_offset, image.epoch
