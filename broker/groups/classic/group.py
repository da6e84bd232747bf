"""A classic group: its members, state and generation, and what of it is written. Pure.

Here is what a group is; what happens to it is in `rebalance`, `joining`, `syncing` and
`membership`. Only `transition_to` changes the state.
"""

from __future__ import annotations

from collections import Counter

from kvorum.broker.coordinator.model import CoordinatorRecord
from kvorum.broker.groups.classic.member import Member
from kvorum.broker.groups.classic.states import GroupState, is_allowed
from kvorum.broker.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from kvorum.broker.groups.records import (
    NO_TIMESTAMP,
    GroupValue,
    MemberValue,
    encode_group,
    group_key,
)
from kvorum.broker.groups.requests import NO_MEMBER, ProtocolMetadata
from kvorum.runtime.errors import ErrorCode, invariant

TYPE_NAME = "classic"


class ClassicGroup:
    """members: by id, in the order of their first join. static_members: ids by instance id.

    pending_members: ids handed out and not yet used. pending_sync: members of this generation that
    have not asked for their assignment. initial_delay_ms, initial_remaining_ms: of the rebalance
    of a group that was empty: the delay that runs, and how much longer it may be extended; None in
    other rebalances. has_new_member: somebody joined during that delay. needs_rebalance: it was
    written by a downgrade, before its first rebalance; only of a group that is being loaded.
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
        self.state = GroupState.EMPTY
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

    def transition_to(self, state: GroupState, wall_ms: int) -> None:
        invariant(
            is_allowed(self.state, state),
            f"group {self.group_id!r} may not go from {self.state.value} to {state.value}",
        )
        self.state = state
        self.current_state_timestamp_ms = wall_ms

    @property
    def is_empty(self) -> bool:
        """No members, and nobody waited for."""
        return self.state == GroupState.EMPTY

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asked for; 0 without members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    @property
    def has_all_joined(self) -> bool:
        """Every member waits for the next generation, and no id that was handed out is unused."""
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
        """Without word to the member, whose requests must have been answered."""
        member = self.members.pop(member_id)
        invariant(not member.is_waiting, f"member {member_id!r} is removed while it waits")
        instance_id = member.group_instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]
        self.pending_sync.pop(member_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def replace_static(self, old_id: str, new_id: str) -> Member:
        """The same member under a new id, in the same place of the order."""
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
        """Whether it is a member now: NONE, 25, or 82 for one whose place another has taken."""
        if group_instance_id is None:
            is_member = member_id in self.members
            return ErrorCode.NONE if is_member else ErrorCode.UNKNOWN_MEMBER_ID
        holder = self.static_members.get(group_instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if holder == member_id else ErrorCode.FENCED_INSTANCE_ID

    # --- protocols ---------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: tuple[ProtocolMetadata, ...]) -> bool:
        """Whether a member with these may be in the group."""
        if self.is_empty or not self.members:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        common = self.common_protocols()
        return any(protocol.name in common for protocol in protocols)

    def common_protocols(self) -> set[str]:
        """What every member offers."""
        offered = Counter(n for m in self.members.values() for n in m.protocol_names())
        return {name for name, count in offered.items() if count == len(self.members)}

    def select_protocol(self) -> str:
        """Each member votes for its first protocol that all offer; a tie goes to the older vote."""
        common = self.common_protocols()
        votes = Counter(
            next(name for name in member.protocol_names() if name in common)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    # --- generations -------------------------------------------------------------------------

    def begin_generation(self, wall_ms: int) -> None:
        """All that have joined make up the next generation; nobody: the group is empty."""
        self.generation_id += 1
        self.pending_sync.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition_to(GroupState.COMPLETING_REBALANCE, wall_ms)
        else:
            self.protocol_name = None
            self.transition_to(GroupState.EMPTY, wall_ms)
        self.note_subscriptions()

    def elect_joined_leader(self) -> bool:
        """Whether the leader, or another in its place, has joined the next generation."""
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
        """Work out what topics the members subscribe to; call when members or protocol changed."""
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
        """None: not known (no consumers, or a subscription that does not parse)."""
        return self._subscribed_topics

    def is_subscribed_to(self, topic: str) -> bool:
        """True also where it is not known, to be on the safe side."""
        return self._subscribed_topics is None or topic in self._subscribed_topics

    # --- the log -----------------------------------------------------------------------------

    def record(self) -> CoordinatorRecord:
        """The group as it is now, to be written."""
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
        """The group as it was written: empty or stable."""
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
        group.state = GroupState.STABLE if value.members else GroupState.EMPTY
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
        """A stable group of consumers that has not come by a rebalance of its own. They must have
        an assignor in common."""
        group = cls(group_id, wall_ms)
        group.generation_id = generation_id
        for member in members:
            group.add(member)
        group.state = GroupState.STABLE
        group.protocol_name = group.select_protocol()
        group.note_subscriptions()
        return group

    def record_without_leader(self) -> CoordinatorRecord:
        """As `record`, of a generation that the next coordinator is to end by a rebalance."""
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
