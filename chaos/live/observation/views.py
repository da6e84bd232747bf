"""One node's own view of the cluster: a broker's topic, a controller's quorum.

A view asks its node past the proxies, at the node's own address. So a fault of links never hits the
observer, and what it reads is what the node believes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from kvorum.chaos.experiment.observations import (
    UNKNOWN,
    Observation,
    PartitionSeen,
    QuorumSeen,
)
from kvorum.chaos.live.observation.connection import DESCRIBE_QUORUM, METADATA, KafkaConnection
from kvorum.runtime.errors import ErrorCode

METADATA_TOPIC = "__cluster_metadata"


class NoView(OSError):
    """The node answered, and has no view: an error code of Kafka, named by the message."""


class View(Protocol):
    """One node, asked on its own. node: its name, the `observer` of what it answers."""

    node: str

    def look(self) -> Sequence[Observation]:
        """What the node says now. Raises OSError or WireError if it does not answer."""
        ...

    def close(self) -> None: ...


class BrokerView:
    """A broker's Metadata of one topic, with leader epochs (v12)."""

    def __init__(self, *, node: str, address: str, topic: str, timeout_ms: int) -> None:
        self.node = node
        self._topic = topic
        self._connection = KafkaConnection(address, timeout_ms=timeout_ms)

    def look(self) -> Sequence[Observation]:
        answer = self._connection.ask(
            METADATA,
            {
                "topics": [{"topic_id": None, "name": self._topic}],
                "allow_auto_topic_creation": False,
                "include_topic_authorized_operations": False,
            },
        )
        return partitions_in(answer, self.node)

    def close(self) -> None:
        self._connection.close()


class QuorumView:
    """The quorum by DescribeQuorum of the Kafka protocol.

    A broker forwards the request to the active controller, and a controller of Apache Kafka answers
    itself. Only the active controller's own answer has a high watermark that means anything: the
    answers of two brokers may overtake each other.
    """

    def __init__(self, *, node: str, node_id: int, address: str, timeout_ms: int) -> None:
        self.node = node
        self._node_id = node_id
        self._connection = KafkaConnection(address, timeout_ms=timeout_ms)

    def look(self) -> Sequence[Observation]:
        partitions = [{"partition_index": 0}]
        topics = [{"topic_name": METADATA_TOPIC, "partitions": partitions}]
        answer = self._connection.ask(DESCRIBE_QUORUM, {"topics": topics})
        return quorum_in(answer, self.node, self._node_id)

    def close(self) -> None:
        self._connection.close()


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


def quorum_in(answer: Any, node: str, node_id: int) -> list[Observation]:
    """The quorum in kio's DescribeQuorum answer; empty from a controller that does not lead.

    Raises NoView for any other error, for example that a broker reaches no active controller.
    """
    parts = [part for topic in answer.topics for part in topic.partitions]
    error = answer.error_code or (parts[0].error_code if parts else answer.error_code)
    if error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return []
    if error or not parts:
        raise NoView(f"DescribeQuorum: {error.name.upper() if error else 'no partition'}")
    leader_id = int(parts[0].leader_id)
    is_leader = leader_id == node_id
    return [
        QuorumSeen(
            observer=node,
            leader_id=leader_id,
            leader_epoch=int(parts[0].leader_epoch),
            high_watermark=int(parts[0].high_watermark) if is_leader else UNKNOWN,
        )
    ]
