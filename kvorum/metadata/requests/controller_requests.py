"""The requests to the active controller, and its replies, as plain values.

The decisions (`metadata.controller.decide`) take these; the gRPC edge converts messages to them and
back. A reply has an error for each item, so that one bad item does not fail the others.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from enum import IntEnum

from kvorum.metadata.image.features import FeatureRange
from kvorum.metadata.image.records import Endpoint
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.ids import UUID_ZERO, Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create.

    num_partitions, replication_factor: -1 means the cluster's default.
    assignments: explicit replicas, assignments[i] for partition i; both counts are then -1.
    configs: (name, value) pairs.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, ...], ...] = ()
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopics:
    topics: tuple[NewTopic, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """The outcome for one topic; ids and counts are set only when error is NONE."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    topic_id: Uuid = UUID_ZERO
    num_partitions: int = -1
    replication_factor: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReference:
    """A topic by name, or by id when name is empty."""

    name: str = ""
    topic_id: Uuid = UUID_ZERO


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopics:
    topics: tuple[TopicReference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTopic:
    name: str
    topic_id: Uuid = UUID_ZERO
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRequest:
    """A broker process asks to be registered.

    broker_epoch_before: the broker epoch before a clean shutdown, -1 if unknown.
    log_dirs: ids of its online data directories (KIP-858).
    metadata_offset, metadata_epoch: end of its metadata log, and epoch of the last record in it.
    """

    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    broker_epoch_before: int = -1
    features: tuple[FeatureRange, ...] = ()
    log_dirs: tuple[bytes, ...] = ()
    metadata_offset: int = 0
    metadata_epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredBroker:
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A heartbeat of a broker.

    metadata_offset: end offset of the metadata that the broker has published.
    offline_log_dirs: ids of its data directories that have failed since it registered; part of
        every heartbeat (KIP-858).
    """

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shutdown: bool = False
    offline_log_dirs: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposal:
    """A leader proposes a new ISR. new_isr: (broker id, broker epoch or -1) pairs (KIP-903)."""

    topic_id: Uuid
    partition_id: int
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartition:
    broker_id: int
    broker_epoch: int
    proposals: tuple[IsrProposal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredPartition:
    """The partition state after the proposal, or the error that refused it."""

    topic_id: Uuid
    partition_id: int
    error: ErrorCode = ErrorCode.NONE
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIds:
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdBlock:
    """Producer ids [start, start + length), which only the requesting broker may hand out."""

    start: int
    length: int


class ElectionType(enum.IntEnum):
    """The types of elections that a client may request; Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeaders:
    """Elect leaders of partitions (topic name, partition id); an empty tuple means all."""

    partitions: tuple[tuple[str, int], ...] = ()
    election: ElectionType = ElectionType.PREFERRED


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectedLeader:
    topic: str
    partition_id: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


class UpdateKind(IntEnum):
    """The direction of a feature update (KIP-584's UpgradeType)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdate:
    """One feature update. max_level: the level to finalise; 0 switches the feature off."""

    name: str
    max_level: int
    kind: UpdateKind = UpdateKind.UPGRADE


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFeatures:
    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatedFeature:
    """The result of one update. No feature changes unless every result is NONE."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterControllerRequest:
    """A controller process registers at the active controller."""

    controller_id: int
    cluster_id: str
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredController:
    """The controller's registration is in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRequest:
    """An operator removes the registration of a broker for good."""

    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisteredBroker:
    """The broker's registration is removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterControllerRequest:
    """An operator removes the registration of a controller that is gone for good."""

    controller_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisteredController:
    """The controller's registration is removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPartitions:
    """A topic, and its new total number of partitions.

    assignments: replicas of each new partition in order; None lets the controller place them.
    """

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitions:
    topics: tuple[NewPartitions, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedPartitions:
    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """New replicas for a partition; None cancels its reassignment."""

    topic: str
    partition_id: int
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReassignments:
    reassignments: tuple[Reassignment, ...]
    allow_replication_factor_change: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignedPartition:
    topic: str
    partition_id: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListReassignments:
    """List the reassignments of partitions (topic name, partition id); None means all."""

    partitions: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OngoingReassignment:
    """A reassignment under way. replicas: the targets first, then those to be removed."""

    topic: str
    partition_id: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
