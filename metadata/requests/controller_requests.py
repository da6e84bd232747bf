"""What may be asked of the active controller, and its answers, as plain values.

The decisions (`metadata.controller.decide`) take these; the gRPC edge turns messages into them and
back. An answer carries an error per item, so that one bad item never spoils a request.
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
    """A topic to make.

    num_partitions, replication_factor: -1 means the cluster's default.
    assignments: replicas by hand, partition i is assignments[i]; then both counts are -1.
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
    """A broker process asks for its place.

    broker_epoch_before: the epoch this id had before a clean shutdown, -1 if unknown.
    log_dirs: ids of its data directories that are online (KIP-858).
    """

    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    broker_epoch_before: int = -1
    features: tuple[FeatureRange, ...] = ()
    log_dirs: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredBroker:
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A broker is alive.

    metadata_offset: end offset of the metadata it has published. offline_log_dirs: ids of its data
    directories that have failed since it registered; told with every heartbeat (KIP-858).
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
    """A leader asks for a new ISR. new_isr: (broker id, broker epoch or -1) pairs (KIP-903)."""

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
    """The partition as it is after the proposal, or the reason why it was refused."""

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
    """Producer ids [start, start + length) belong to the asking broker alone."""

    start: int
    length: int


class ElectionType(enum.IntEnum):
    """Kafka's numbers of the elections that may be asked for."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeaders:
    """Elections for partitions (topic name, partition id); empty means all."""

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
    """max_level: the level to finalise; 0 switches the feature off."""

    name: str
    max_level: int
    kind: UpdateKind = UpdateKind.UPGRADE


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFeatures:
    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatedFeature:
    """One update's verdict. Nothing is changed unless every one of them is NONE."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterControllerRequest:
    """A controller process tells the active one of itself."""

    controller_id: int
    cluster_id: str
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredController:
    """It is noted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRequest:
    """A broker is gone for good, says an operator."""

    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisteredBroker:
    """Its registration is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPartitions:
    """A topic and the number of partitions that it shall have in all.

    assignments: replicas of each new partition in turn; None lets the controller place them.
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
    """Other replicas for a partition; None cancels the reassignment that is under way."""

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
    """partitions: (topic name, partition id); None means all."""

    partitions: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OngoingReassignment:
    """A reassignment under way. replicas: targets first, then those to be removed."""

    topic: str
    partition_id: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
