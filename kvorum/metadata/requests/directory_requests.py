"""A broker's reports of its data directories to the active controller (KIP-858)."""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.runtime.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDirectory:
    """The directory of one of the broker's replicas.

    directory_id: one of the broker's own, or LOST_DIRECTORY for a replica that cannot be read.
    """

    topic_id: bytes
    partition_id: int
    directory_id: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignReplicas:
    """The broker reports the directories of its replicas; Kafka's AssignReplicasToDirs."""

    broker_id: int
    broker_epoch: int
    replicas: tuple[ReplicaDirectory, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedReplica:
    """A replica whose directory was not accepted."""

    topic_id: bytes
    partition_id: int
    error: ErrorCode
