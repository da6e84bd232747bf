"""The requests to a shard about share groups, their answers, and its questions to its driver. Pure
data.

A refusal with a message is a `Rejected`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from kvorum.broker.groups.consumer.member import Partitions, TopicPartition
from kvorum.broker.groups.share.records import ShareMember
from kvorum.runtime.errors import ErrorCode, Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    """-> ShareHeartbeated or Rejected. None: unchanged since it was last sent."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    subscribed_topic_names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeated:
    """assignment: all partitions of the member; None if unchanged."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Partitions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroup:
    """-> ShareGroupDescription; Rejected if there is no such group or it is of another type."""

    needs_replicas: ClassVar[bool] = False
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupDescription:
    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[ShareMember, ...]


# --- offsets -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ListShareStates:
    """-> tuple[TopicPartition, ...]: the share-partitions that have a state; Rejected if there is
    no such group."""

    needs_replicas: ClassVar[bool] = False
    group_id: str


class OffsetToAlter(NamedTuple):
    topic_id: bytes
    topic: str
    partition: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterShareOffsets:
    """-> StatesChanged or Rejected. The group has no members."""

    group_id: str
    offsets: tuple[OffsetToAlter, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteShareOffsets:
    """-> StatesChanged or Rejected. The group has no members. topic_ids: those that exist."""

    group_id: str
    topic_ids: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesChanged:
    """errors: of each share-partition that was asked for and that the group has."""

    errors: dict[TopicPartition, Rejected | ErrorCode]


# --- questions to the driver, which asks the share coordinators ---------------------------------


class StateToInitialize(NamedTuple):
    """start_offset: -1 leaves the choice to the partition's leader."""

    topic_id: bytes
    partition: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InitializeStates:
    """Asks for states; the answer is a `StatesAnswered` with this question.

    token: of the request that waits for it, None if none does.
    """

    group_id: str
    state_epoch: int
    rows: tuple[StateToInitialize, ...]
    token: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteStates:
    """Asks to delete states; the answer is a `StatesAnswered` with this question.

    ends_group: the group is to be deleted after them.
    """

    group_id: str
    partitions: tuple[TopicPartition, ...]
    token: int
    ends_group: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesAnswered:
    """errors: of each share-partition of the question."""

    question: InitializeStates | DeleteStates
    errors: dict[TopicPartition, Rejected | ErrorCode]
