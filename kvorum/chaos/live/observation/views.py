"""One node's own view of the cluster: a broker's topic, a controller's quorum.

A view asks its node past the proxies, at the node's own address. So a fault of links never hits the
observer, and what it reads is what the node believes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kvorum.chaos.live.host.node_requests import METADATA, NodeRequests
from kvorum.chaos.live.systems.protocol import NotObservable, QuorumStatus
from kvorum.chaos.outages.observations import (
    UNKNOWN,
    Observation,
    PartitionSeen,
    QuorumSeen,
)


class ObservedNode(Protocol):
    """One node, asked on its own. node: its name, the `observer` of what it answers."""

    node: str

    def observe(self) -> Sequence[Observation]:
        """The node's answer now. Raises OSError if it does not answer."""
        ...

    def close(self) -> None: ...


class MetadataView:
    """A broker's Metadata of some topics, with leader epochs (v12)."""

    def __init__(self, *, node: str, address: str, topics: Sequence[str], timeout_ms: int) -> None:
        self.node = node
        self._topics = topics
        self._connection = NodeRequests(address, timeout_ms=timeout_ms)

    def observe(self) -> Sequence[Observation]:
        answer = self._connection.ask(
            METADATA,
            {
                "topics": [{"topic_id": None, "name": name} for name in self._topics],
                "allow_auto_topic_creation": False,
                "include_topic_authorized_operations": False,
            },
        )
        return partitions_in(answer, self.node)

    def close(self) -> None:
        self._connection.close()


class QuorumView:
    """A node's answer about the quorum, as the system under test asks for it.

    A controller answers for itself; a broker of a cluster whose controllers cannot be reached asks
    the active controller. Only the leader's own answer has a high watermark that means anything:
    the answers of two brokers may overtake each other.
    """

    def __init__(self, *, node: str, node_id: int, ask: Callable[[str], QuorumStatus]) -> None:
        self.node = node
        self._node_id = node_id
        self._ask = ask

    def observe(self) -> Sequence[Observation]:
        try:
            status = self._ask(self.node)
        except NotObservable as error:
            raise OSError(str(error)) from error
        is_leader = status.leader_id == self._node_id
        return [
            QuorumSeen(
                observer=self.node,
                leader_id=status.leader_id,
                leader_epoch=status.leader_epoch,
                high_watermark=status.high_watermark if is_leader else UNKNOWN,
                log_end_offsets=status.log_end_offsets if is_leader else (),
            )
        ]

    def close(self) -> None:
        return None


def partitions_in(answer: Any, node: str) -> list[Observation]:
    """The partitions in kio's Metadata answer; topics with an error are left out."""
    return [
        PartitionSeen(
            observer=node,
            topic=topic.name,
            partition=int(partition.partition_index),
            leader=int(partition.leader_id),
            leader_epoch=int(partition.leader_epoch),
            isr=tuple(int(broker) for broker in partition.isr_nodes),
            replicas=tuple(int(broker) for broker in partition.replica_nodes),
        )
        for topic in answer.topics
        if topic.error_code == 0
        for partition in topic.partitions
    ]
