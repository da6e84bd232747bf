"""What a broker asks of the active controller; `controller_link` answers it over gRPC.

Refusals come back as `Rejected` values (NOT_CONTROLLER or REQUEST_TIMED_OUT when no controller
answers in time); none of these methods raises for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kvorum.metadata.requests.config_requests import (
    AlterClientQuotas,
    AlterConfigs,
    AlteredConfigs,
    AlteredQuota,
)
from kvorum.metadata.requests.controller_requests import (
    AlteredPartition,
    AlterPartition,
    AlterReassignments,
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DeletedTopic,
    DeleteTopics,
    ElectedLeader,
    ElectLeaders,
    GrownTopic,
    ListReassignments,
    OngoingReassignment,
    ProducerIdBlock,
    ReassignedPartition,
    UnregisterBrokerRequest,
    UnregisteredBroker,
    UpdatedFeature,
    UpdateFeatures,
)
from kvorum.metadata.requests.directory_requests import AssignedReplica, AssignReplicas
from kvorum.metadata.requests.scram_requests import AlteredScramUser, AlterScramCredentials
from kvorum.raft.messages import AddVoterRequest, RemoveVoterRequest
from kvorum.runtime.errors import Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """One voter or observer as the quorum's leader sees it; times -1 when unknown."""

    id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_timestamp_ms: int = -1
    last_caught_up_timestamp_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """The metadata quorum. nodes: (id, host, port) of the controllers' listeners."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaState, ...]
    observers: tuple[ReplicaState, ...]
    nodes: tuple[tuple[int, str, int], ...]


@dataclass(frozen=True, slots=True)
class NoQuorum(Rejected):
    """No controller leads; nodes: (id, host, port) of all of them, for who wants to look."""

    nodes: tuple[tuple[int, str, int], ...] = ()


class Partitions(Protocol):
    """Requests about the partitions of existing topics."""

    async def create_partitions(
        self, request: CreatePartitions, timeout_ms: int
    ) -> tuple[GrownTopic, ...] | Rejected: ...

    async def alter_reassignments(
        self, request: AlterReassignments, timeout_ms: int
    ) -> tuple[ReassignedPartition, ...] | Rejected: ...

    async def list_reassignments(
        self, request: ListReassignments, timeout_ms: int
    ) -> tuple[OngoingReassignment, ...] | Rejected: ...


class Voters(Protocol):
    """The voters of the quorum itself (KIP-853). None: the change is made, and committed."""

    async def add(self, request: AddVoterRequest, timeout_ms: int) -> Rejected | None:
        """Waits until the node has caught up."""
        ...

    async def remove(self, request: RemoveVoterRequest, timeout_ms: int) -> Rejected | None: ...


class Controller(Protocol):
    """The active controller, wherever it is."""

    @property
    def partitions(self) -> Partitions: ...

    @property
    def voters(self) -> Voters: ...

    @property
    def broker_epoch(self) -> int:
        """Epoch of this broker's registration, -1 before it."""
        ...

    @property
    def is_lost(self) -> bool:
        """Neither the last heartbeat nor the last request has reached an active controller."""
        ...

    async def create_topics(
        self, request: CreateTopics, timeout_ms: int
    ) -> tuple[CreatedTopic, ...] | Rejected: ...

    async def update_features(
        self, request: UpdateFeatures, timeout_ms: int
    ) -> tuple[UpdatedFeature, ...] | Rejected: ...

    async def unregister_broker(
        self, request: UnregisterBrokerRequest
    ) -> UnregisteredBroker | Rejected: ...

    async def delete_topics(
        self, request: DeleteTopics, timeout_ms: int
    ) -> tuple[DeletedTopic, ...] | Rejected: ...

    async def alter_partition(
        self, request: AlterPartition
    ) -> tuple[AlteredPartition, ...] | Rejected: ...

    async def assign_replicas(
        self, request: AssignReplicas
    ) -> tuple[AssignedReplica, ...] | Rejected: ...

    async def allocate_producer_ids(self) -> ProducerIdBlock | Rejected: ...

    async def elect_leaders(
        self, request: ElectLeaders
    ) -> tuple[ElectedLeader, ...] | Rejected: ...

    async def alter_configs(
        self, request: AlterConfigs, timeout_ms: int
    ) -> tuple[AlteredConfigs, ...] | Rejected: ...

    async def alter_client_quotas(
        self, request: AlterClientQuotas, timeout_ms: int
    ) -> tuple[AlteredQuota, ...] | Rejected: ...

    async def alter_scram_credentials(
        self, request: AlterScramCredentials, timeout_ms: int
    ) -> tuple[AlteredScramUser, ...] | Rejected: ...

    async def describe_quorum(self) -> QuorumDescription | NoQuorum | Rejected:
        """The quorum as its leader sees it. NoQuorum's message also says how old the broker's
        own view of the cluster may be."""
        ...
