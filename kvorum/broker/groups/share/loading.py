"""Loads a share group from its records. Pure.

Compaction keeps the last record of each key, in the order in which they were written, so each
record creates its group or member if it does not exist. A tombstone never creates anything.
"""

from __future__ import annotations

from dataclasses import replace

from kvorum.broker.groups.consumer.member import NO_PARTITIONS
from kvorum.broker.groups.share import records
from kvorum.broker.groups.share.group import ShareGroup
from kvorum.broker.groups.share.records import (
    AssignmentEpoch,
    MemberAssignment,
    ShareEpoch,
    ShareGroupKey,
    ShareMember,
    ShareStates,
    decode_value,
)


def replay(group: ShareGroup, key: ShareGroupKey, data: bytes) -> None:
    """Apply one record with a value. Raises CorruptData."""
    value = decode_value(key, data)
    match value:
        case ShareEpoch():
            group.group_epoch, group.metadata_hash = value
        case AssignmentEpoch():
            group.assignment_epoch = value.epoch
        case ShareMember():
            had = group.members.get(key.member_id, value)
            group.members[key.member_id] = replace(
                value,
                member_epoch=had.member_epoch,
                previous_member_epoch=had.previous_member_epoch,
                assigned=had.assigned,
            )
        case MemberAssignment():
            member = group.members.get(key.member_id) or ShareMember(member_id=key.member_id)
            group.members[key.member_id] = replace(
                member,
                member_epoch=value.member_epoch,
                previous_member_epoch=value.previous_member_epoch,
                assigned=value.assigned,
            )
        case ShareStates():
            group.states = value
        case frozenset():
            group.targets[key.member_id] = value


def replay_tombstone(group: ShareGroup, key: ShareGroupKey) -> bool:
    """Apply one tombstone; False if it removes the group itself."""
    match key.record_type:
        case records.MEMBER_METADATA:
            group.remove(key.member_id)
        case records.CURRENT_ASSIGNMENT:
            member = group.members.get(key.member_id)
            if member is not None:
                group.members[key.member_id] = replace(
                    member, member_epoch=-1, previous_member_epoch=-1, assigned=NO_PARTITIONS
                )
        case records.MEMBER_TARGET:
            group.targets.pop(key.member_id, None)
        case records.TARGET_EPOCH:
            group.assignment_epoch = 0
        case records.PARTITION_METADATA:
            group.states = ShareStates()
        case _:
            return key.record_type != records.GROUP_EPOCH
    return True
