"""AssignReplicas: reports to the controller the directory of each replica, or that a replica cannot
be read. A driver.

A broker with one directory reports only damaged replicas (KIP-858).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kvorum.broker.controller_channel.controller_api import ControllerChannel
from kvorum.broker.controller_channel.retry_queue import RetryQueue, Unacknowledged
from kvorum.metadata.image.image import TopicIdPartition
from kvorum.metadata.requests.directory_requests import AssignReplicas, ReplicaDirectory
from kvorum.metadata.rpc.calls import ASSIGN_REPLICAS
from kvorum.runtime.errors import Rejected

_log = logging.getLogger(__name__)

REPLICAS_PER_REQUEST_MAX = 2_000
"""Kafka sends up to 2,250 in one request."""


class AssignmentsManager:
    """The replica directories that the controller does not know yet."""

    def __init__(self, *, broker_id: int, controller: ControllerChannel) -> None:
        self._broker_id = broker_id
        self._controller = controller
        self._queue: RetryQueue[TopicIdPartition, bytes] = RetryQueue(
            self._send, batch_max=REPLICAS_PER_REQUEST_MAX, name="assignments"
        )

    def assign(self, key: TopicIdPartition, directory_id: bytes) -> None:
        """Report that the replica lies in that directory; LOST_DIRECTORY: it cannot be read."""
        self._queue.put(key, directory_id)

    def forget(self, key: TopicIdPartition) -> None:
        """Report nothing more of a replica that was deleted."""
        self._queue.forget(key)

    async def stop(self) -> None:
        await self._queue.stop()

    async def _send(
        self, directories: Mapping[TopicIdPartition, bytes]
    ) -> Unacknowledged[TopicIdPartition, bytes]:
        reply = await self._controller.request(
            ASSIGN_REPLICAS,
            AssignReplicas(
                broker_id=self._broker_id,
                broker_epoch=self._controller.broker_epoch,
                replicas=tuple(
                    ReplicaDirectory(topic_id=key[0], partition_id=key[1], directory_id=directory)
                    for key, directory in directories.items()
                ),
            ),
        )
        if isinstance(reply, Rejected):
            return Unacknowledged(directories, is_whole=True)
        if reply:
            # Most of these replicas were deleted or moved away meanwhile. One that is still here is
            # reported again with the next image of its partition.
            _log.info("%d directories of replicas were refused: %s", len(reply), reply[0])
        return Unacknowledged()
