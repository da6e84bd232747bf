"""The checks of committing and fetching offsets in a Streams group. Pure."""

from __future__ import annotations

from kvorum.broker.groups.steps.requests import (
    NO_MEMBER,
    CommitOffsets,
    CommitTransactionOffsets,
    FetchOffsets,
    OffsetToCommit,
)
from kvorum.broker.groups.streams.group import StreamsGroup
from kvorum.broker.groups.streams.member import StreamsMember
from kvorum.runtime.errors import ErrorCode


def commit_refusal(
    group: StreamsGroup, request: CommitOffsets | CommitTransactionOffsets
) -> ErrorCode:
    """The error for a commit that is not allowed. A member may commit in its current epoch, and in
    an older one the offsets of tasks that it has had since then (KIP-1251). A committer may leave
    out the epoch if the group has no members, or in TxnOffsetCommit if it names no member either.

    Another epoch gets STALE_MEMBER_EPOCH; in TxnOffsetCommit, whose clients do not know that code,
    ILLEGAL_GENERATION; in OffsetCommit before version 9, UNSUPPORTED_VERSION.
    """
    epoch, member_id = request.generation_id, request.member_id
    is_transactional = isinstance(request, CommitTransactionOffsets)
    if epoch < 0 and group.is_empty:
        return ErrorCode.NONE
    is_nobody = member_id == NO_MEMBER and request.group_instance_id is None
    if is_transactional and epoch < 0 and is_nobody:
        return ErrorCode.NONE
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if isinstance(request, CommitOffsets) and not request.knows_missing_group:
        return ErrorCode.UNSUPPORTED_VERSION
    if epoch == member.member_epoch:
        return ErrorCode.NONE
    if epoch < member.member_epoch and all(
        _has_since(group, member, row, epoch) for row in request.offsets
    ):
        return ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION if is_transactional else ErrorCode.STALE_MEMBER_EPOCH


def _has_since(group: StreamsGroup, member: StreamsMember, row: OffsetToCommit, epoch: int) -> bool:
    """True if the member got the task that reads this partition in that epoch or before, and has
    not given it up."""
    subtopology_id = group.readers.get(row.topic)
    if subtopology_id is None:
        return False
    task = (subtopology_id, row.partition)
    since = member.assigned.active.get(task, member.pending_revocation.active.get(task))
    return since is not None and epoch >= since


def fetch_refusal(group: StreamsGroup, request: FetchOffsets) -> ErrorCode:
    """The error for a fetch that is not allowed. A client that names a member must be that member
    in its current epoch; others may always fetch."""
    if request.member_id is None and request.member_epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(request.member_id or NO_MEMBER)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_current = member.member_epoch == request.member_epoch
    return ErrorCode.NONE if is_current else ErrorCode.STALE_MEMBER_EPOCH
