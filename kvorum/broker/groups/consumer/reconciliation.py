"""Reconciliation: the states of a member between its assignment and its target. Pure.

  STABLE -> UNREVOKED_PARTITIONS    it is sent the part that it keeps, and stays in its epoch
  UNREVOKED_PARTITIONS -> next      once a heartbeat lists what it owns, without any revoked
                                    partition; it then enters the target's epoch
  -> UNRELEASED_PARTITIONS          in the target's epoch; other members hold some of its target
  -> STABLE                         it has all of its target

A partition is never sent to a member while another member holds it (`ConsumerMember.held`). This
rule keeps two members from reading the same partition.
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
    """The member after this heartbeat; unchanged if nothing can be done yet.

    owned: the partitions that the member reports, None if it reports none.
    taken: partitions that any member holds, including this one.
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
    # Partitions that this member holds count as free, including those that it has just given up.
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
    """True if the member may still use some of the partitions: it lists one, or reports nothing."""
    return owned is None or not owned.isdisjoint(partitions)
