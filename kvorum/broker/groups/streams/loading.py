"""Loads a Streams group from its records. Pure.

Compaction keeps the last record of each key, in the order in which they were written. So a member's
records may come before or after its group's: each record creates its group or member if it does not
exist. A tombstone never creates anything.
"""

from __future__ import annotations

from dataclasses import replace

from kvorum.broker.groups.streams import records
from kvorum.broker.groups.streams.description import TopologyDescription
from kvorum.broker.groups.streams.group import FIRST_EPOCH, StreamsGroup
from kvorum.broker.groups.streams.member import LEAVE_EPOCH, StreamsMember
from kvorum.broker.groups.streams.records import (
    CurrentAssignment,
    StreamsEpoch,
    StreamsKey,
    TargetEpoch,
    decode_value,
)
from kvorum.broker.groups.streams.states import StreamsMemberState
from kvorum.broker.groups.streams.tasks import NOTHING_ASSIGNED, Tasks
from kvorum.broker.groups.streams.topology import Topology


def replay(group: StreamsGroup, key: StreamsKey, data: bytes) -> None:
    """Apply one record with a value. Raises CorruptData."""
    value = decode_value(key, data)
    match value:
        case StreamsEpoch():
            group.epoch = value
        case TargetEpoch():
            group.target_epoch = value
        case Topology():
            group.set_topology(value)
        case TopologyDescription():
            group.description = value
        case StreamsMember():
            had = group.members.get(key.member_id, value)
            group.put(_with_assignment(value, had))
        case CurrentAssignment():
            member = group.members.get(key.member_id) or StreamsMember(member_id=key.member_id)
            group.put(_with_assignment(member, value))
        case Tasks():
            group.targets[key.member_id] = value
        case None:
            pass


def _with_assignment(
    member: StreamsMember, has: StreamsMember | CurrentAssignment
) -> StreamsMember:
    return replace(
        member,
        member_epoch=has.member_epoch,
        previous_member_epoch=has.previous_member_epoch,
        state=has.state,
        assigned=has.assigned,
        pending_revocation=has.pending_revocation,
    )


def replay_tombstone(group: StreamsGroup, key: StreamsKey) -> bool:
    """Apply one tombstone; False if it removes the group itself."""
    match key.record_type:
        case records.MEMBER_METADATA:
            group.remove(key.member_id)
        case records.CURRENT_ASSIGNMENT:
            member = group.members.get(key.member_id)
            if member is not None:
                group.put(
                    replace(
                        member,
                        member_epoch=LEAVE_EPOCH,
                        previous_member_epoch=LEAVE_EPOCH,
                        state=StreamsMemberState.STABLE,
                        assigned=NOTHING_ASSIGNED,
                        pending_revocation=NOTHING_ASSIGNED,
                    )
                )
        case records.MEMBER_TARGET:
            group.targets.pop(key.member_id, None)
        case records.TARGET_EPOCH:
            group.target_epoch = TargetEpoch(FIRST_EPOCH)
        case records.TOPOLOGY_DESCRIPTION:
            group.description = None
        case records.TOPOLOGY:
            group.set_topology(None)
        case _:
            return key.record_type != records.GROUP_EPOCH
    return True
