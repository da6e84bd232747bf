"""How a member gets from what it has to what the target gives it. Pure.

    STABLE -> UNREVOKED_PARTITIONS    it is told the part that it keeps, and stays in its epoch
    UNREVOKED_PARTITIONS -> next      once a heartbeat names what it owns and nothing given up is
                                      among it; it then enters the target's epoch
    -> UNRELEASED_PARTITIONS          in the target's epoch, but others still hold something of its
    -> STABLE                         it has all of the target

No partition is told to a member while another holds it (`ConsumerMember.held`): that is the one
rule that keeps two members from reading the same partition.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from kvorum.broker.groups.consumer.member import (
    NO_PARTITIONS,
    ConsumerMember,
    Partitions,
    TopicPartition,
)
from kvorum.broker.groups.consumer.states import MemberState


def reconcile(
    member: ConsumerMember,
    *,
    target: Partitions,
    assignment_epoch: int,
    owned: Partitions | None,
    taken: Container[TopicPartition],
) -> ConsumerMember:
    """The member as it is after this heartbeat; the same if nothing can be done yet.

    owned: what it says it has, None if it does not say. taken: what any member holds, this one too.
    """
    match member.state:
        case MemberState.STABLE:
            if member.member_epoch == assignment_epoch:
                return member
        case MemberState.UNREVOKED_PARTITIONS | MemberState.UNKNOWN:
            if _may_own(owned, member.pending_revocation):
                return member
        case MemberState.UNRELEASED_PARTITIONS:
            pass
    return _next(member, target, assignment_epoch, owned, taken)


def _next(
    member: ConsumerMember,
    target: Partitions,
    assignment_epoch: int,
    owned: Partitions | None,
    taken: Container[TopicPartition],
) -> ConsumerMember:
    kept = member.assigned & target
    revoked = member.assigned - target
    if revoked and _may_own(owned, revoked):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending_revocation=revoked,
        )
    wanted = target - kept
    # Partitions that the member has just given up, in its last state, count as free.
    mine = member.held
    free = frozenset(row for row in wanted if row in mine or row not in taken)
    is_complete = len(free) == len(wanted)
    is_same_epoch = member.member_epoch == assignment_epoch
    return replace(
        member,
        state=MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS,
        member_epoch=assignment_epoch,
        previous_member_epoch=(
            member.previous_member_epoch if is_same_epoch else member.member_epoch
        ),
        assigned=kept | free,
        pending_revocation=NO_PARTITIONS,
    )


def _may_own(owned: Partitions | None, partitions: Partitions) -> bool:
    """True if the member may still use some of the partitions: it does not say, or says so."""
    return owned is None or not owned.isdisjoint(partitions)
