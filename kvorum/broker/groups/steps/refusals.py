"""Refusals that all newer types of groups have, in Kafka's words. Pure."""

from __future__ import annotations

from kvorum.runtime.errors import ErrorCode, Rejected

_TRIMMED = "".join(map(chr, range(0x21)))
"""What Java's `String.trim` cuts off."""


def is_blank(name: str | None) -> bool:
    """True for a name that Kafka calls empty; None is none."""
    return name is not None and not name.strip(_TRIMMED)


def unknown_member(group_id: str, member_id: str) -> Rejected:
    """The refusal of a member id that the group does not have."""
    text = f"Member {member_id} is not a member of group {group_id}."
    return Rejected(ErrorCode.UNKNOWN_MEMBER_ID, text)


def fenced_epoch(type_name: str, epoch: int, member_epoch: int) -> Rejected:
    """The refusal of a heartbeat in `epoch` of a member that is in `member_epoch`."""
    relation = "smaller" if epoch < member_epoch else "greater"
    text = (
        f"The {type_name} group member has a {relation} member epoch ({epoch}) than the one known "
        f"by the group coordinator ({member_epoch}). The member must abandon all its partitions "
        "and rejoin."
    )
    return Rejected(ErrorCode.FENCED_MEMBER_EPOCH, text)
