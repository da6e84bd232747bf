"""The checks of committing and fetching offsets in a group of the consumer protocol. Pure."""

from __future__ import annotations

from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.steps.requests import (
    NO_MEMBER,
    CommitOffsets,
    CommitTransactionOffsets,
    FetchOffsets,
)
from kvorum.runtime.errors import ErrorCode


def commit_refusal(
    group: ConsumerGroup, request: CommitOffsets | CommitTransactionOffsets
) -> ErrorCode:
    """The error for a commit that is not allowed. A member may commit in its current epoch. A
    committer may leave out the epoch if the group has no members, or in TxnOffsetCommit if it names
    no member either.

    An older epoch gets STALE_MEMBER_EPOCH. Clients of older versions do not know that code: they
    get ILLEGAL_GENERATION in TxnOffsetCommit, UNSUPPORTED_VERSION in OffsetCommit (as in Kafka).
    """
    epoch, member_id = request.generation_id, request.member_id
    if epoch < 0 and group.is_empty:
        return ErrorCode.NONE
    if isinstance(request, CommitTransactionOffsets):
        is_nobody = member_id == NO_MEMBER and request.group_instance_id is None
        if epoch < 0 and is_nobody:
            return ErrorCode.NONE
        error = group.check_committer(member_id, epoch)
        is_stale = error == ErrorCode.STALE_MEMBER_EPOCH and not request.knows_missing_group
        return ErrorCode.ILLEGAL_GENERATION if is_stale else error
    error = group.check_committer(member_id, epoch)
    if error == ErrorCode.STALE_MEMBER_EPOCH and not request.knows_missing_group:
        return ErrorCode.UNSUPPORTED_VERSION
    return error


def fetch_refusal(group: ConsumerGroup, request: FetchOffsets) -> ErrorCode:
    """The error for a fetch that is not allowed. A client that names a member must be that member
    in its current epoch; others may always fetch."""
    if request.member_id is None and request.member_epoch < 0:
        return ErrorCode.NONE
    return group.check_committer(request.member_id or NO_MEMBER, request.member_epoch)
