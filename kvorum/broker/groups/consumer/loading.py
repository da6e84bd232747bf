"""Loads a group of the consumer protocol from its records. Pure.

Compaction keeps the last record of each key, in the order in which they were written. So a member's
records may come before or after its group's: each record creates its group or member if it does not
exist. A tombstone never creates anything.
"""

from __future__ import annotations

from dataclasses import replace

from kvorum.broker.groups.consumer import records
from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.consumer.member import LEAVE_EPOCH, NO_PARTITIONS, ConsumerMember
from kvorum.broker.groups.consumer.records import (
    ConsumerKey,
    CurrentAssignment,
    GroupEpoch,
    ResolvedExpression,
    decode_value,
)
from kvorum.broker.groups.consumer.states import MemberState


def replay(group: ConsumerGroup, key: ConsumerKey, data: bytes) -> None:
    """Apply one record with a value. Raises CorruptData."""
    value = decode_value(key, data)
    match value:
        case GroupEpoch():
            group.group_epoch, group.metadata_hash = value
        case ConsumerMember():
            had = group.members.get(key.item, value)
            told = replace(
                value,
                member_epoch=had.member_epoch,
                previous_member_epoch=had.previous_member_epoch,
                state=had.state,
                assigned=had.assigned,
                pending_revocation=had.pending_revocation,
            )
            group.put(told, is_replay=True)
        case CurrentAssignment():
            member = group.members.get(key.item) or ConsumerMember(member_id=key.item)
            has = replace(
                member,
                member_epoch=value.member_epoch,
                previous_member_epoch=value.previous_member_epoch,
                state=value.state,
                assigned=value.assigned,
                pending_revocation=value.pending_revocation,
            )
            group.put(has, is_replay=True)
        case ResolvedExpression():
            group.expressions[key.item] = value
        case int():
            group.assignment_epoch = value
        case frozenset():
            group.targets[key.item] = value
        case None:
            pass


def replay_tombstone(group: ConsumerGroup, key: ConsumerKey) -> bool:
    """Apply one tombstone; False if it removes the group itself."""
    match key.record_type:
        case records.MEMBER_METADATA:
            group.remove(key.item)
        case records.CURRENT_ASSIGNMENT:
            member = group.members.get(key.item)
            if member is not None:
                group.put(_without_assignment(member), is_replay=True)
        case records.MEMBER_TARGET:
            group.targets.pop(key.item, None)
        case records.REGULAR_EXPRESSION:
            group.expressions.pop(key.item, None)
        case records.TARGET_EPOCH:
            group.assignment_epoch = 0
        case _:
            return key.record_type != records.GROUP_EPOCH
    return True


def _without_assignment(member: ConsumerMember) -> ConsumerMember:
    return replace(
        member,
        member_epoch=LEAVE_EPOCH,
        previous_member_epoch=LEAVE_EPOCH,
        state=MemberState.STABLE,
        assigned=NO_PARTITIONS,
        pending_revocation=NO_PARTITIONS,
    )
