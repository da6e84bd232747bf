"""The rules of committing and fetching offsets in a group of the consumer protocol. Pure."""

from __future__ import annotations

from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.requests import (
    NO_MEMBER,
    CommitOffsets,
    CommitTransactionOffsets,
    FetchOffsets,
)
from kvorum.runtime.errors import ErrorCode


def commit_refusal(
    group: ConsumerGroup, request: CommitOffsets | CommitTransactionOffsets
) -> ErrorCode:
    """A member in its epoch may, and without members whoever says that it is none.

    An epoch that is over is 113; 22 in TxnOffsetCommit, whose clients know no 113, and 35 for a
    member that commits with an OffsetCommit of before version 9 (as in Kafka).
    """
    epoch, member_id = request.generation_id, request.member_id
    if epoch < 0 and group.is_empty:
        return ErrorCode.NONE
    if isinstance(request, CommitTransactionOffsets):
        is_nobody = member_id == NO_MEMBER and request.group_instance_id is None
        if epoch < 0 and is_nobody:
            return ErrorCode.NONE
        error = group.check_committer(member_id, epoch)
        is_stale = error == ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.ILLEGAL_GENERATION if is_stale else error
    error = group.check_committer(member_id, epoch)
    if error == ErrorCode.STALE_MEMBER_EPOCH and not request.knows_missing_group:
        return ErrorCode.UNSUPPORTED_VERSION
    return error


def fetch_refusal(group: ConsumerGroup, request: FetchOffsets) -> ErrorCode:
    """The reason to refuse the reader. A reader that claims to be a member must be one, in that
    epoch; others may always read."""
    if request.member_id is None and request.member_epoch < 0:
        return ErrorCode.NONE
    return group.check_committer(request.member_id or NO_MEMBER, request.member_epoch)
