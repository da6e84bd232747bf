"""A broker's reports of its data directories to the active controller (KIP-858), as plain
values."""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.runtime.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDirectory:
    """Where a replica of the broker lies.

    directory_id: one of the broker's own, or LOST_DIRECTORY for a replica that cannot be read.
    """

    topic_id: bytes
    partition_id: int
    directory_id: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignReplicas:
    """The broker says of each replica where it lies; Kafka's AssignReplicasToDirs."""

    broker_id: int
    broker_epoch: int
    replicas: tuple[ReplicaDirectory, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedReplica:
    """One of them that was not noted."""

    topic_id: bytes
    partition_id: int
    error: ErrorCode
