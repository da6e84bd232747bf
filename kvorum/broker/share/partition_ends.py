"""The end offsets of partitions, of this broker's or by ListOffsets from their leaders."""

from __future__ import annotations

from kvorum.broker.manager.replica_registry import ReplicaRegistry
from kvorum.broker.share_state.client import CallPeer
from kvorum.metadata.image.image import TopicImage
from kvorum.wire.versions import Api

_LIST_OFFSETS = Api(key=2, name="list_offsets", min_version=1, max_version=10, first_flexible=6)
_LATEST = -1


class PartitionEnds:
    """Finds the high watermark of any partition."""

    def __init__(self, broker_id: int, registry: ReplicaRegistry, call_peer: CallPeer) -> None:
        self._broker_id = broker_id
        self._registry = registry
        self._call_peer = call_peer

    async def end_offset(self, topic: TopicImage, partition_id: int) -> int | None:
        """None if no leader tells."""
        partition = topic.partitions.get(partition_id)
        if partition is None or not partition.has_leader:
            return None
        if partition.leader == self._broker_id:
            replica = self._registry.find(topic.topic_id, partition_id)
            is_known = replica is not None and replica.core.is_leader
            return replica.high_watermark if replica is not None and is_known else None
        values = {
            "replica_id": -1,
            "isolation_level": 0,
            "timeout": 5_000,
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": partition_id,
                            "current_leader_epoch": -1,
                            "timestamp": _LATEST,
                        }
                    ],
                }
            ],
        }
        version = _LIST_OFFSETS.max_version
        said = await self._call_peer(partition.leader, _LIST_OFFSETS, version, values)
        rows = [] if said is None else [row for found in said.topics for row in found.partitions]
        if len(rows) != 1 or int(rows[0].error_code) != 0:
            return None
        return int(rows[0].offset)
