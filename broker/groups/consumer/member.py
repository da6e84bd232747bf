"""One member of a group of the consumer protocol, as the log has it. Pure data."""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.broker.groups.consumer.states import MemberState
from kvorum.broker.groups.requests import ProtocolMetadata

TopicPartition = tuple[bytes, int]
"""(topic id, partition)."""
Partitions = frozenset[TopicPartition]
NO_PARTITIONS: Partitions = frozenset()

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""Of a static member that is away and keeps its place until its session ends."""
NO_TIMEOUT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMember:
    """The part of a member that speaks the classic protocol. protocols: the offered ones, best
    first; never empty."""

    session_timeout_ms: int
    protocols: tuple[ProtocolMetadata, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """subscribed_topic_names: sorted. subscribed_topic_regex: None without.

    member_epoch: that of the assignment it has, 0 before its first. previous_member_epoch: the one
    before; a member may still speak in it if it lost the answer. assigned: what it may use now.
    pending_revocation: what it was told to give up and may still use. classic: None for a member of
    the consumer protocol.
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
