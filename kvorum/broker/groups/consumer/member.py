"""One member of a group of the consumer protocol, as its records describe it. Pure data."""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.broker.groups.consumer.states import MemberState
from kvorum.broker.groups.steps.requests import ProtocolMetadata

TopicPartition = tuple[bytes, int]
"""(topic id, partition)."""
Partitions = frozenset[TopicPartition]
NO_PARTITIONS: Partitions = frozenset()

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""Epoch of a static member that is away and keeps its place until its session ends."""
NO_TIMEOUT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMember:
    """The fields of a member that uses the classic protocol. protocols: the offered ones, best
    first; never empty."""

    session_timeout_ms: int
    protocols: tuple[ProtocolMetadata, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """One member of a group of the consumer protocol.

    subscribed_topic_names: sorted.
    member_epoch: epoch of its assignment, 0 before the first.
    previous_member_epoch: a member that lost the answer with its current epoch may still send this
        one.
    assigned: the partitions that it may use now.
    pending_revocation: partitions that it was told to give up and may still use.
    classic: None for a member of the consumer protocol.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = NO_TIMEOUT
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    pending_revocation: Partitions = NO_PARTITIONS
    classic: ClassicMember | None = None

    @property
    def held(self) -> Partitions:
        """The partitions that no other member may be given."""
        return self.assigned | self.pending_revocation

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """True if the member has exactly its target of that epoch."""
        return self.state == MemberState.STABLE and self.member_epoch == assignment_epoch
