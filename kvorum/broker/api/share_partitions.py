"""The shared part of ShareFetch and ShareAcknowledge: what they list, who may, and the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kvorum.broker.api.context import RequestContext, refusal_fields
from kvorum.broker.share.core.sessions import SharePartitionId
from kvorum.broker.share.core.states import AcknowledgementBatch
from kvorum.broker.share.share_fetch import Rows, ShareRow
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.image.features import SHARE_VERSION, level_of
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.kio_codec import uuid_bytes

Acknowledgements = dict[SharePartitionId, list[AcknowledgementBatch]]


def request_refusal(context: RequestContext, request: Any) -> ErrorCode | Rejected | None:
    """The error of the whole request, before its session is looked for."""
    off = feature_refusal(context)
    if off is not None:
        return off
    if not request.group_id or not request.member_id:
        return Rejected(ErrorCode.INVALID_REQUEST, "GroupId and MemberId can't be empty.")
    if not context.allows(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return None


def feature_refusal(context: RequestContext) -> Rejected | None:
    """The error of every share group API while share.version is 0."""
    if level_of(context.services.image().features, SHARE_VERSION) >= 1:
        return None
    text = (
        "share groups are off: share.version is 0; switch them on with "
        "`kvorum features upgrade --feature share.version=2`"
    )
    return Rejected(ErrorCode.UNSUPPORTED_VERSION, text)


def acknowledgements_of(topics: Iterable[Any]) -> Acknowledgements:
    """The acknowledgements of a request by share-partition; empty lists are left out."""
    found: Acknowledgements = {}
    for topic in topics:
        for partition in topic.partitions:
            batches = [
                AcknowledgementBatch(
                    b.first_offset, b.last_offset, tuple(map(int, b.acknowledge_types))
                )
                for b in partition.acknowledgement_batches
            ]
            if batches:
                where = (uuid_bytes(topic.topic_id), partition.partition_index)
                found.setdefault(where, []).extend(batches)
    return found


def reading_refusal(context: RequestContext) -> Callable[[SharePartitionId], ErrorCode]:
    """The error of a share-partition whose topic does not exist or that the client may not read."""
    services = context.services

    def refusal(where: SharePartitionId) -> ErrorCode:
        topic = services.image().topics.get(where[0])
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not context.allows_topic(AclOperation.READ, topic.name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if where[1] not in topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    return refusal


def response(
    context: RequestContext, rows: Rows, fields: Callable[[ShareRow], dict[str, Any]]
) -> dict[str, Any]:
    """The topics, and the addresses of leaders that are named. fields: of one partition."""
    services = context.services
    image = services.image()
    topics: dict[bytes, list[dict[str, Any]]] = {}
    leaders: set[int] = set()
    for (topic_id, partition_id), row in rows.items():
        leader = {"leader_id": -1, "leader_epoch": -1}
        if ErrorCode.NOT_LEADER_OR_FOLLOWER in (row.error, row.acknowledge_error):
            topic = image.topics.get(topic_id)
            found = None if topic is None else topic.partitions.get(partition_id)
            if found is not None:
                leader = {"leader_id": found.leader, "leader_epoch": found.leader_epoch}
                leaders.add(found.leader)
        topics.setdefault(topic_id, []).append(
            {"partition_index": partition_id, "current_leader": leader, **fields(row)}
        )
    return {
        "responses": [
            {"topic_id": topic_id, "partitions": partitions}
            for topic_id, partitions in topics.items()
        ],
        "node_endpoints": [
            node._asdict() for node in services.node_endpoints(leaders, context.listener)
        ],
    }


def failed(refused: ErrorCode | Rejected) -> dict[str, Any]:
    """The answer to a request that is refused as a whole."""
    return {
        **refusal_fields(refused),
        "acquisition_lock_timeout": 0,
        "responses": (),
        "node_endpoints": (),
    }
