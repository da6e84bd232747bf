"""A group of the consumer protocol: its members, epochs and target. Pure.

It has three epochs (KIP-848), which never decrease:

  group epoch       rises when members, subscriptions or subscribed topics change
  assignment epoch  the group epoch that the target was made for
  member epoch      the assignment epoch that the member has reached

This module has the group's state and its records; the rules are in `heartbeat`, `membership` and
`targets`. Only `put` and `remove` change members; they keep the derived state (static_members,
holders) up to date.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvorum.broker.coordinator.model import CoordinatorRecord
from kvorum.broker.groups.consumer import records
from kvorum.broker.groups.consumer.member import (
    NO_PARTITIONS,
    ConsumerMember,
    Partitions,
    TopicPartition,
)
from kvorum.broker.groups.consumer.records import ConsumerKey, GroupEpoch, ResolvedExpression
from kvorum.broker.groups.consumer.states import ConsumerGroupState
from kvorum.broker.groups.steps.member_sessions import MemberSessions
from kvorum.broker.groups.steps.timers import ConsumerSessionTimer
from kvorum.runtime.errors import ErrorCode, invariant

TYPE_NAME = "consumer"
PROTOCOL_TYPE = "consumer"


class ConsumerGroup:
    """members: by id.
    static_members: member ids by instance id.
    targets: target of each member.
    target_due_ms: the targets are not made anew before.
    holders: member id by held partition; a member holds what it may use or has not confirmed to
        have given up.
    expressions: topics of each subscribed regular expression.
    is_metadata_stale: topics may have changed since metadata_hash was computed.
    awaited_joins, awaited_syncs: members of the classic protocol that have to join again, or to
        fetch their assignment; each has a timer.
    """

    __slots__ = (
        "assignment_epoch",
        "awaited_joins",
        "awaited_syncs",
        "expressions",
        "group_epoch",
        "group_id",
        "holders",
        "is_metadata_stale",
        "members",
        "metadata_hash",
        "sessions",
        "static_members",
        "target_due_ms",
        "targets",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.target_due_ms = 0
        self.targets: dict[str, Partitions] = {}
        self.holders: dict[TopicPartition, str] = {}
        self.expressions: dict[str, ResolvedExpression] = {}
        self.is_metadata_stale = True
        self.sessions = MemberSessions(lambda member_id: ConsumerSessionTimer(group_id, member_id))
        self.awaited_joins: set[str] = set()
        self.awaited_syncs: set[str] = set()

    # --- state -------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        epoch = self.assignment_epoch
        if all(member.is_reconciled_to(epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        return not self.members

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def assignor_name(self, default: str) -> str:
        """The assignor that most members name; in a tie, the first by name. `default` if no member
        names one."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member.server_assignor is not None:
                votes[member.server_assignor] = votes.get(member.server_assignor, 0) + 1
        return min(votes, key=lambda name: (-votes[name], name), default=default)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Names of the topics that the member subscribes to, directly or by its expression."""
        topics = frozenset(member.subscribed_topic_names)
        found = self.expressions.get(member.subscribed_topic_regex or "")
        return topics if found is None else topics.union(found.topics)

    def subscribed_topics(self) -> set[str]:
        """Names of the topics that any member subscribes to."""
        return set().union(*(self.topics_of(member) for member in self.members.values()))

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in self.topics_of(member) for member in self.members.values())

    # --- members -----------------------------------------------------------------------------

    def put(self, member: ConsumerMember, *, is_replay: bool = False) -> None:
        """Set the member. is_replay: a conflict with another holder is accepted, because the log
        cannot be refused."""
        before = self.members.get(member.member_id)
        if before is None or before.held != member.held:
            self._let_go(member.member_id, before)
            for row in member.held:
                holder = self.holders.setdefault(row, member.member_id)
                invariant(
                    is_replay or holder == member.member_id,
                    f"{row} of {self.group_id!r} is {holder!r}'s, not {member.member_id!r}'s",
                )
                self.holders[row] = member.member_id
        if before is not None and before.instance_id != member.instance_id:
            self._forget_instance(before)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        """Remove the member and its target; its partitions are free."""
        member = self.members.pop(member_id, None)
        self.targets.pop(member_id, None)
        if member is not None:
            self._let_go(member_id, member)
            self._forget_instance(member)

    def _let_go(self, member_id: str, member: ConsumerMember | None) -> None:
        for row in member.held if member is not None else ():
            if self.holders.get(row) == member_id:
                del self.holders[row]

    def _forget_instance(self, member: ConsumerMember) -> None:
        instance_id = member.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]

    def check_committer(self, member_id: str, member_epoch: int) -> ErrorCode:
        """NONE for a member in this epoch; otherwise UNKNOWN_MEMBER_ID, or STALE_MEMBER_EPOCH
        (ILLEGAL_GENERATION for a classic member)."""
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.member_epoch == member_epoch:
            return ErrorCode.NONE
        is_classic = member.classic is not None
        return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH

    # --- the log -----------------------------------------------------------------------------

    def epoch_record(self) -> CoordinatorRecord:
        value = records.encode_group_epoch(GroupEpoch(self.group_epoch, self.metadata_hash))
        return self._record(records.GROUP_EPOCH, "", value)

    def metadata_record(self, member: ConsumerMember) -> CoordinatorRecord:
        value = records.encode_member_metadata(member)
        return self._record(records.MEMBER_METADATA, member.member_id, value)

    def current_record(self, member: ConsumerMember) -> CoordinatorRecord:
        value = records.encode_current_assignment(member)
        return self._record(records.CURRENT_ASSIGNMENT, member.member_id, value)

    def target_record(self, member_id: str) -> CoordinatorRecord:
        value = records.encode_member_target(self.target(member_id))
        return self._record(records.MEMBER_TARGET, member_id, value)

    def target_epoch_record(self) -> CoordinatorRecord:
        value = records.encode_target_epoch(self.assignment_epoch)
        return self._record(records.TARGET_EPOCH, "", value)

    def expression_record(self, expression: str) -> CoordinatorRecord:
        """The record of an expression; a tombstone if no member subscribes by it."""
        found = self.expressions.get(expression)
        value = None if found is None else records.encode_expression(found)
        return self._record(records.REGULAR_EXPRESSION, expression, value)

    def member_tombstones(self, member_id: str) -> Iterator[CoordinatorRecord]:
        """The tombstones of a member, in Kafka's order: a reader that sees only some of them finds
        a member without partitions."""
        for record_type in (
            records.CURRENT_ASSIGNMENT,
            records.MEMBER_TARGET,
            records.MEMBER_METADATA,
        ):
            yield self._record(record_type, member_id, None)

    def tombstones(self) -> Iterator[CoordinatorRecord]:
        """The tombstones of the whole group."""
        for member_id in self.members:
            yield from self.member_tombstones(member_id)
        yield self._record(records.TARGET_EPOCH, "", None)
        for expression in self.expressions:
            yield self._record(records.REGULAR_EXPRESSION, expression, None)
        yield self._record(records.GROUP_EPOCH, "", None)

    def _record(self, record_type: int, item: str, value: bytes | None) -> CoordinatorRecord:
        key = records.encode_key(ConsumerKey(record_type, self.group_id, item))
        return CoordinatorRecord(key, value)

    def summary(self) -> str:
        """One line for logs and tests."""
        members = ",".join(
            f"{m.member_id}@{m.member_epoch}/{m.state.name.lower()}" for m in self.members.values()
        )
        return (
            f"{self.group_id} {self.state.value} epoch={self.group_epoch} "
            f"assignment={self.assignment_epoch} members={members or '-'}"
        )
