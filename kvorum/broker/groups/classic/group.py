"""A classic group: its members, state, generation, and record. Pure.

This module holds the group's data. The rules are in `rebalance`, `joining`, `syncing` and
`membership`. Only `transition_to` changes the state.
"""

from __future__ import annotations

from collections import Counter

from kvorum.broker.coordinator.model import CoordinatorRecord
from kvorum.broker.groups.classic.member import Member
from kvorum.broker.groups.classic.states import ClassicGroupState, is_allowed
from kvorum.broker.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from kvorum.broker.groups.steps.records import (
    NO_TIMESTAMP,
    GroupValue,
    MemberValue,
    encode_group,
    group_key,
)
from kvorum.broker.groups.steps.requests import NO_MEMBER, ProtocolMetadata
from kvorum.runtime.errors import ErrorCode, invariant

TYPE_NAME = "classic"


class ClassicGroup:
    """One group of the classic protocol.

    members: by id, in the order of their first join.
    static_members: member ids by instance id.
    pending_members: ids given out and not used yet.
    pending_sync: members of this generation that have not fetched their assignment.
    initial_delay_ms, initial_remaining_ms: in the first rebalance of an empty group, the delay that
        runs and the time by which it may be extended; the delay is None in other rebalances.
    has_new_member: a member joined during that delay.
    needs_rebalance: a downgrade wrote the group, and its first rebalance is due; only while a group
        is being loaded.
    """

    __slots__ = (
        "_subscribed_topics",
        "current_state_timestamp_ms",
        "generation_id",
        "group_id",
        "has_new_member",
        "initial_delay_ms",
        "initial_remaining_ms",
        "leader_id",
        "members",
        "needs_rebalance",
        "pending_members",
        "pending_sync",
        "protocol_name",
        "protocol_type",
        "state",
        "static_members",
    )

    def __init__(self, group_id: str, wall_ms: int = NO_TIMESTAMP) -> None:
        self.group_id = group_id
        self.state = ClassicGroupState.EMPTY
        self.current_state_timestamp_ms = wall_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, None] = {}
        self.pending_sync: dict[str, None] = {}
        self.initial_delay_ms: int | None = None
        self.initial_remaining_ms = 0
        self.has_new_member = False
        self.needs_rebalance = False
        self._subscribed_topics: frozenset[str] | None = None

    # --- state -------------------------------------------------------------------------------

    def transition_to(self, state: ClassicGroupState, wall_ms: int) -> None:
        invariant(
            is_allowed(self.state, state),
            f"group {self.group_id!r} may not go from {self.state.value} to {state.value}",
        )
        self.state = state
        self.current_state_timestamp_ms = wall_ms

    @property
    def is_empty(self) -> bool:
        """True in state Empty: the group has no members. It may have pending member ids."""
        return self.state == ClassicGroupState.EMPTY

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance time-out of its members; 0 without members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    @property
    def has_all_joined(self) -> bool:
        """True if every member waits for the next generation and no pending member id is left."""
        return not self.pending_members and all(m.is_awaiting_join for m in self.members.values())

    # --- members -----------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.pending_members.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Remove the member. Its parked requests must have been answered before."""
        member = self.members.pop(member_id)
        invariant(not member.is_waiting, f"member {member_id!r} is removed while it waits")
        instance_id = member.group_instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]
        self.pending_sync.pop(member_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def replace_static(self, old_id: str, new_id: str) -> Member:
        """Give the static member a new member id; it keeps its place in the order."""
        member = self.members[old_id]
        invariant(not member.is_waiting, f"member {old_id!r} is replaced while it waits")
        member.member_id = new_id
        self.members = {
            (new_id if key == old_id else key): value for key, value in self.members.items()
        }
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = new_id
        if old_id in self.pending_sync:
            del self.pending_sync[old_id]
            self.pending_sync[new_id] = None
        if self.leader_id == old_id:
            self.leader_id = new_id
        return member

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """NONE for a member; UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID if another member has the
        instance id."""
        if group_instance_id is None:
            is_member = member_id in self.members
            return ErrorCode.NONE if is_member else ErrorCode.UNKNOWN_MEMBER_ID
        holder = self.static_members.get(group_instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if holder == member_id else ErrorCode.FENCED_INSTANCE_ID

    # --- protocols ---------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: tuple[ProtocolMetadata, ...]) -> bool:
        """True if a member with these protocols may be in the group."""
        if self.is_empty or not self.members:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        common = self.common_protocols()
        return any(protocol.name in common for protocol in protocols)

    def common_protocols(self) -> set[str]:
        """The protocols that every member offers."""
        offered = Counter(n for m in self.members.values() for n in m.protocol_names())
        return {name for name, count in offered.items() if count == len(self.members)}

    def select_protocol(self) -> str:
        """The winner of the vote: each member votes for its first protocol that all members offer.
        In a tie, the protocol that was voted for first wins."""
        common = self.common_protocols()
        votes = Counter(
            next(name for name in member.protocol_names() if name in common)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    # --- generations -------------------------------------------------------------------------

    def begin_generation(self, wall_ms: int) -> None:
        """Begin the next generation with the members that have joined; without members the group is
        empty."""
        self.generation_id += 1
        self.pending_sync.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition_to(ClassicGroupState.COMPLETING_REBALANCE, wall_ms)
        else:
            self.protocol_name = None
            self.transition_to(ClassicGroupState.EMPTY, wall_ms)
        self.note_subscriptions()

    def elect_joined_leader(self) -> bool:
        """True if the leader has joined the next generation, or another member could be made
        leader."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].is_awaiting_join:
            return True
        for member in self.members.values():
            if member.is_awaiting_join:
                self.leader_id = member.member_id
                return True
        return False

    def note_subscriptions(self) -> None:
        """Update the subscribed topics; to be called when members or the protocol have changed."""
        self._subscribed_topics = None
        if not self.is_consumer_group:
            return
        topics: set[str] = set()
        for member in self.members.values():
            found = subscribed_topics(member.metadata_for(self.protocol_name))
            if found is None:
                return
            topics |= found
        self._subscribed_topics = frozenset(topics)

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that members subscribe to. None if unknown: no consumers, or a subscription
        that does not parse."""
        return self._subscribed_topics

    def is_subscribed_to(self, topic: str) -> bool:
        """True also if the subscriptions are unknown: offsets are then kept."""
        return self._subscribed_topics is None or topic in self._subscribed_topics

    # --- the log -----------------------------------------------------------------------------

    def record(self) -> CoordinatorRecord:
        """The record of the group as it is now."""
        members = tuple(
            MemberValue(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata_for(self.protocol_name),
                member.assignment,
            )
            for member in self.members.values()
        )
        value = GroupValue(
            self.protocol_type or "",
            self.generation_id,
            self.protocol_name,
            self.leader_id,
            self.current_state_timestamp_ms,
            members,
        )
        return CoordinatorRecord(group_key(self.group_id), encode_group(value))

    @classmethod
    def from_value(cls, group_id: str, value: GroupValue) -> ClassicGroup:
        """The group that a record describes: empty or stable."""
        group = cls(group_id, value.current_state_timestamp_ms)
        group.generation_id = value.generation
        for row in value.members:
            group.add(
                Member(
                    member_id=row.member_id,
                    group_instance_id=row.group_instance_id,
                    client_id=row.client_id,
                    client_host=row.client_host,
                    rebalance_timeout_ms=row.rebalance_timeout_ms,
                    session_timeout_ms=row.session_timeout_ms,
                    protocol_type=value.protocol_type,
                    protocols=(ProtocolMetadata(value.protocol or "", row.subscription),),
                    assignment=row.assignment,
                )
            )
        group.state = ClassicGroupState.STABLE if value.members else ClassicGroupState.EMPTY
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.needs_rebalance = bool(value.members) and value.leader is None
        if value.leader is not None and value.leader in group.members:
            group.leader_id = value.leader
        group.note_subscriptions()
        return group

    @classmethod
    def from_members(
        cls, group_id: str, generation_id: int, members: list[Member], wall_ms: int
    ) -> ClassicGroup:
        """A stable group of consumers that was not formed by a rebalance. Its members must have an
        assignor in common."""
        group = cls(group_id, wall_ms)
        group.generation_id = generation_id
        for member in members:
            group.add(member)
        group.state = ClassicGroupState.STABLE
        group.protocol_name = group.select_protocol()
        group.note_subscriptions()
        return group

    def record_without_leader(self) -> CoordinatorRecord:
        """As `record`, without a leader: the next coordinator then starts a rebalance."""
        leader_id, self.leader_id = self.leader_id, None
        record = self.record()
        self.leader_id = leader_id
        return record

    def summary(self) -> str:
        """One line for logs and tests."""
        members = ",".join(self.members) or "-"
        return (
            f"{self.group_id} {self.state.value} generation={self.generation_id} "
            f"protocol={self.protocol_name} leader={self.leader_id or NO_MEMBER} members={members}"
        )
