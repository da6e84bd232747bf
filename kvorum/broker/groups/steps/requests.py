"""The requests to a shard about classic groups, and their answers. Pure data.

Each request names the type of its answer in its docstring. A request that fails as a whole is
answered with an ErrorCode. `needs_replicas` is False for requests that never write (see
`coordinator.model.Request`). Rows are NamedTuples, since an OffsetCommit may have thousands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.ids import UUID_ZERO

NO_MEMBER = ""
NO_GENERATION = -1
NO_OFFSET = -1
NO_RETENTION_TIME = -1

# --- membership ----------------------------------------------------------------------------------


class ProtocolMetadata(NamedTuple):
    """An assignor that a member offers (best first), with the member's metadata for that
    assignor."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """-> Joined, once the rebalance is over. member_id: "" for a new member.

    requires_known_member_id: a new dynamic member gets an id first and joins with it (v4+).
    can_skip_assignment: the client understands `skip_assignment` (v9+).
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[ProtocolMetadata, ...]
    requires_known_member_id: bool
    can_skip_assignment: bool


class JoinedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The answer to JoinGroup.

    members: for the leader only, which assigns.
    skip_assignment: the leader need not assign.
    """

    error: ErrorCode = ErrorCode.NONE
    member_id: str = NO_MEMBER
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class Assignment(NamedTuple):
    member_id: str
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """-> Synced.

    assignments: sent by the leader only.
    protocol_type, protocol_name: None before v5.
    """

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHeartbeat:
    """-> ErrorCode."""

    needs_replicas: ClassVar[bool] = False
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


class LeavingMember(NamedTuple):
    """member_id "": the member of this group_instance_id (for administrators, who remove static
    members)."""

    member_id: str
    group_instance_id: str | None


class LeftMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """-> Left."""

    group_id: str
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    members: tuple[LeftMember, ...]


# --- offsets -------------------------------------------------------------------------------------


class OffsetToCommit(NamedTuple):
    """topic_id: of the topic of that name when the request came."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: bytes = UUID_ZERO


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """-> OffsetsCommitted. generation_id: the member epoch in the consumer protocol; -1: the
        committer is no member (a tool, or a consumer that assigns its own partitions).

    retention_time_ms: -1 for the broker's retention.
    knows_missing_group: the client understands GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH (v9+).
    """

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    offsets: tuple[OffsetToCommit, ...]
    knows_missing_group: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTransactionOffsets:
    """-> OffsetsCommitted. The offsets count once the producer's transaction commits.

    knows_missing_group: as in `CommitOffsets` (v6+).
    """

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    producer_id: int
    producer_epoch: int
    offsets: tuple[OffsetToCommit, ...]
    knows_missing_group: bool = False


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """errors: one for each offset, in the order of the request."""

    errors: tuple[ErrorCode, ...]


class TopicPartitions(NamedTuple):
    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOffsets:
    """-> OffsetsFetched. One group; topics None: all its offsets.

    require_stable: an offset that an open transaction may change is answered
        UNSTABLE_OFFSET_COMMIT.
    member_id, member_epoch: of a member of the consumer protocol (v9+); None and -1 for others.
    """

    needs_replicas: ClassVar[bool] = False
    group_id: str
    topics: tuple[TopicPartitions, ...] | None
    require_stable: bool
    member_id: str | None = None
    member_epoch: int = -1


class FetchedOffset(NamedTuple):
    """offset -1: no offset is committed, or `error` is set."""

    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


class FetchedTopicOffsets(NamedTuple):
    topic: str
    partitions: tuple[FetchedOffset, ...]


@dataclass(frozen=True, slots=True)
class OffsetsFetched:
    topics: tuple[FetchedTopicOffsets, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets:
    """-> OffsetsDeleted."""

    group_id: str
    topics: tuple[TopicPartitions, ...]


class DeletedTopicOffsets(NamedTuple):
    """error: for all partitions of the topic."""

    topic: str
    partitions: tuple[int, ...]
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class OffsetsDeleted:
    topics: tuple[DeletedTopicOffsets, ...]


# --- administration ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroup:
    """-> GroupDescription, or GROUP_ID_NOT_FOUND."""

    needs_replicas: ClassVar[bool] = False
    group_id: str


class MemberDescription(NamedTuple):
    """metadata: empty unless the group is stable.
    assignment: empty while a generation has none.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[MemberDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroups:
    """-> tuple[GroupListing, ...]. states, types: case-insensitive, states also with blanks around;
    empty for all."""

    needs_replicas: ClassVar[bool] = False
    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup:
    """-> ErrorCode."""

    group_id: str
