"""ListOffsets (2). Served: v1-11, by the leader.

Timestamps: >= 0 the first record at or after it; -1 latest (the high watermark); -2 earliest; -3
the record with the largest timestamp; -4 earliest local (= earliest); -5 latest tiered and -6
earliest pending upload (KIP-1023) give offset -1, since no topic is tiered. With isolation level 1
(v2+) the end is the last stable offset. For replica id -2, the debugging consumer, followers answer
too, and the end is that of the replica's log.

A new leader whose high watermark is below its epoch's start answers OFFSET_NOT_AVAILABLE
(LEADER_NOT_AVAILABLE below v5), unless the result is a record below the high watermark. Special
timestamps that are unknown, or newer than the request's version, get UNSUPPORTED_VERSION.
A partition that is named more than once gets INVALID_REQUEST, in one entry.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from kvorum.broker.api.context import RequestContext
from kvorum.broker.partition.replica import Replica
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import CorruptData, ErrorCode
from kvorum.runtime.ids import UUID_ZERO
from kvorum.storage.format.batch import BatchError
from kvorum.storage.log.timestamp_lookup import find_by_timestamp, find_max_timestamp
from kvorum.wire.versions import Api

API = Api(key=2, name="list_offsets", min_version=1, max_version=11, first_flexible=6)
ACCESS = ((AclOperation.DESCRIBE, ResourceType.TOPIC),)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
FIRST_VERSIONS = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""First version of each special timestamp."""
OFFSET_NOT_AVAILABLE_VERSION = 5
"""First version whose clients know OFFSET_NOT_AVAILABLE."""
DEBUG_CONSUMER = -2
READ_COMMITTED = 1
NONE_FOUND = (-1, -1, -1)


class _Asker(NamedTuple):
    is_debug: bool
    is_read_committed: bool


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    topics: dict[str, dict[int, dict[str, Any]]] = {}
    asker = _Asker(
        is_debug=request.replica_id == DEBUG_CONSUMER,
        is_read_committed=int(getattr(request, "isolation_level", 0)) == READ_COMMITTED,
    )
    counts = Counter(
        (topic.name, p.partition_index) for topic in request.topics for p in topic.partitions
    )
    for topic in request.topics:
        rows = topics.setdefault(topic.name, {})
        for asked in topic.partitions:
            rows[asked.partition_index] = (
                _answer(context, asker, topic.name, asked)
                if counts[topic.name, asked.partition_index] == 1
                else _row(asked, NONE_FOUND, ErrorCode.INVALID_REQUEST)
            )
    return {
        "topics": [
            {"name": name, "partitions": tuple(rows.values())} for name, rows in topics.items()
        ]
    }


def _answer(context: RequestContext, asker: _Asker, topic: str, asked: Any) -> dict[str, Any]:
    registry = context.services.registry
    partition_id = asked.partition_index
    replica = registry.find_by_name(topic, partition_id)
    found, error = NONE_FOUND, ErrorCode.NONE
    if not context.allows_topic(AclOperation.DESCRIBE, topic):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif asked.timestamp < 0 and context.api_version < FIRST_VERSIONS.get(
        asked.timestamp, context.api_version + 1
    ):
        error = ErrorCode.UNSUPPORTED_VERSION
    elif replica is None:
        error = registry.missing_error(topic, UUID_ZERO, partition_id)
    else:
        error = replica.core.check_consumer(
            getattr(asked, "current_leader_epoch", -1), from_any_replica=asker.is_debug
        )
        if error == ErrorCode.NONE and replica.is_offline:
            error = ErrorCode.KAFKA_STORAGE_ERROR
        if error == ErrorCode.NONE:
            try:
                found, error = _look_up(replica, asked.timestamp, asker)
            except (OSError, CorruptData, BatchError) as failure:
                found, error = NONE_FOUND, ErrorCode.KAFKA_STORAGE_ERROR
                if not isinstance(failure, BatchError):
                    replica.fail(failure, "look-up")
    if (
        error == ErrorCode.OFFSET_NOT_AVAILABLE
        and context.api_version < OFFSET_NOT_AVAILABLE_VERSION
    ):
        error = ErrorCode.LEADER_NOT_AVAILABLE
    return _row(asked, found, error)


def _row(asked: Any, found: tuple[int, int, int], error: ErrorCode) -> dict[str, Any]:
    timestamp_ms, offset, leader_epoch = found
    return {
        "partition_index": asked.partition_index,
        "error_code": error,
        "timestamp": timestamp_ms,
        "offset": offset,
        "leader_epoch": leader_epoch,
    }


def _look_up(
    replica: Replica, timestamp_ms: int, asker: _Asker
) -> tuple[tuple[int, int, int], ErrorCode]:
    core, log = replica.core, replica.log
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        return (-1, log.start_offset, log.epochs.epoch_of(log.start_offset)), ErrorCode.NONE
    if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NONE_FOUND, ErrorCode.NONE
    end_offset = core.end_offset if asker.is_debug else core.high_watermark
    if asker.is_read_committed and not asker.is_debug:
        end_offset = log.last_stable_offset(end_offset)
    is_end_known = asker.is_debug or core.is_latest_known or not core.is_leader
    if timestamp_ms == LATEST:
        if not is_end_known:
            return NONE_FOUND, ErrorCode.OFFSET_NOT_AVAILABLE
        return (-1, end_offset, core.leader_epoch), ErrorCode.NONE
    if timestamp_ms == MAX_TIMESTAMP:
        # Records above the high watermark may be committed, and one of them may have the largest
        # timestamp.
        found = find_max_timestamp(log, end_offset=end_offset if is_end_known else core.end_offset)
    else:
        found = find_by_timestamp(log, timestamp_ms, end_offset=end_offset)
    if not is_end_known and (found is None or found[1] >= end_offset):
        return NONE_FOUND, ErrorCode.OFFSET_NOT_AVAILABLE
    return found or NONE_FOUND, ErrorCode.NONE
