"""The checks of an offset commit in a classic group, and the record that it writes. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kvorum.broker.groups.classic.group import ClassicGroup
from kvorum.broker.groups.classic.states import ClassicGroupState
from kvorum.broker.groups.steps.config import STRING_BYTES_MAX, GroupConfig
from kvorum.broker.groups.steps.records import NO_TIMESTAMP, OffsetValue
from kvorum.broker.groups.steps.requests import (
    NO_MEMBER,
    NO_RETENTION_TIME,
    CommitOffsets,
    CommitTransactionOffsets,
    OffsetToCommit,
)
from kvorum.runtime.errors import ErrorCode


def commit_refusal(
    group: ClassicGroup, request: CommitOffsets | CommitTransactionOffsets
) -> ErrorCode:
    """The error for a commit that is not allowed. A committer must be a member of this generation.
    It may leave generation and member out if the group is empty or the commit is transactional."""
    is_transactional = isinstance(request, CommitTransactionOffsets)
    generation_id, member_id = request.generation_id, request.member_id
    if generation_id < 0 and group.is_empty:
        return ErrorCode.NONE
    if generation_id >= 0 or member_id != NO_MEMBER or request.group_instance_id is not None:
        error = group.check_member(member_id, request.group_instance_id)
        if error != ErrorCode.NONE:
            return error
        if generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
    elif not is_transactional and not group.is_empty:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not is_transactional and group.state == ClassicGroupState.COMPLETING_REBALANCE:
        # The member knows this generation from its JoinGroup answer and has no assignment yet.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def offset_errors(offsets: Sequence[OffsetToCommit], config: GroupConfig) -> tuple[ErrorCode, ...]:
    """The error of each offset; NONE if it can be written."""
    return tuple(
        ErrorCode.OFFSET_METADATA_TOO_LARGE
        if row.metadata and _is_too_large(row.metadata, config)
        else ErrorCode.NONE
        for row in offsets
    )


def _is_too_large(metadata: str, config: GroupConfig) -> bool:
    # The limit counts characters, as in Kafka; the record's own limit is in bytes.
    if len(metadata) > config.offset_metadata_max_bytes:
        return True
    return len(metadata.encode()) > STRING_BYTES_MAX


def offset_value(row: OffsetToCommit, wall_ms: int, retention_time_ms: int) -> OffsetValue:
    """The value of an offset's record."""
    expire_timestamp_ms = NO_TIMESTAMP
    if retention_time_ms != NO_RETENTION_TIME:
        expire_timestamp_ms = wall_ms + retention_time_ms
    return OffsetValue(
        row.offset, row.leader_epoch, row.metadata, wall_ms, expire_timestamp_ms, row.topic_id
    )
