"""Fetch (1). Served: v4-18, for consumers and for followers (replica id, or replica state v15+).

Supported: sessions (KIP-227), leader-epoch fencing, diverging epochs (KIP-595), waiting for min
bytes. Batches are sent whole; the first partition with data may exceed the limits by one batch.
With isolation level 1, records end at the last stable offset, and the answer lists their aborted
transactions. Consumers may read from any replica (v11+); with replica.selector.class they are sent
to the one in their rack. Bytes above a quota are sent, and the client pauses after them (KIP-219).
"""

from __future__ import annotations

from kvorum.broker.api.context import RequestContext
from kvorum.broker.fetch.fetch_sessions import FetchState, MayRead, Watched
from kvorum.broker.fetch.leader_fetch import Answers, start_fetch
from kvorum.broker.quotas.client_quotas import QuotaKind
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode, WireError
from kvorum.wire.fetch_codec import (
    FIRST_FLEXIBLE,
    FIRST_TOPIC_ID,
    FetchedPartition,
    FetchedTopic,
    FetchRequest,
    pack_fetch_response,
    parse_fetch_request,
)
from kvorum.wire.framing import response_head
from kvorum.wire.versions import Api

API = Api(key=1, name="fetch", min_version=4, max_version=18, first_flexible=FIRST_FLEXIBLE)
ACCESS = (
    (AclOperation.READ, ResourceType.TOPIC),
    (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
)
"""The first for consumers, the last for followers."""


def handle(context: RequestContext, view: memoryview, position: int, end: int) -> None:
    """Answer now, or when there are enough bytes to send."""
    request = parse_fetch_request(
        view, position, end, context.api_version, items_max=context.request_items_max
    )
    fetch_services = context.services.replicas.fetch_services
    peer_brokers = fetch_services.peer_brokers
    context.is_exempt = peer_brokers.is_broker(request.replica_id, request.replica_epoch)
    if request.replica_id >= 0 and not context.may_follow_as(request.replica_id):
        context.is_exempt = False
        _refuse(context, request)
        return
    if context.is_exempt:
        of_followers = context.services.metrics.follower_fetch
        of_followers.requests += 1
        if context.slot.timing is not None:
            context.slot.timing.metrics = of_followers
    quotas = context.services.quotas
    if quotas.is_active and not context.is_exempt:
        bytes_max = min(request.bytes_max, quotas.fetch_bytes_max(context.user, context.client_id))
        request = request._replace(bytes_max=bytes_max)

    def respond(error: int, session_id: int, answers: Answers) -> None:
        _respond(context, error, session_id, answers)

    context.slot.parked = start_fetch(
        fetch_services,
        request,
        is_by_id=context.api_version >= FIRST_TOPIC_ID,
        respond=respond,
        may_read=_reading_rights(context) if context.has_access_control else None,
        owner=context.user,
    )


def _reading_rights(context: RequestContext) -> MayRead:
    """The check of a consumer's partitions, at each answer: ACLs change while a session lasts."""
    services = context.services

    def may_read(watched: Watched) -> bool:
        name = watched.name or services.topic_name(watched.topic_id)
        # An unknown id has an error of its own. A follower was checked when its request arrived.
        return not name or watched.state.is_replica or context.allows_topic(AclOperation.READ, name)

    return may_read


def _refuse(context: RequestContext, request: FetchRequest) -> None:
    """Answer a client that says it is a follower, and may not be one."""
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED.value
    is_by_id = context.api_version >= FIRST_TOPIC_ID
    state = FetchState(request, is_by_id=is_by_id, now_ms=context.slot.connection.now_ms())
    refused = [(w, FetchedPartition(w.asked.partition_id, error)) for w in state.update(request)]
    _respond(context, 0, 0, refused)


def _respond(context: RequestContext, error: int, session_id: int, answers: Answers) -> None:
    slot = context.slot
    if slot.connection.is_closed:
        return
    version, is_follower = context.api_version, context.is_exempt
    metrics = context.services.metrics
    if error:
        metrics.note_error(API.key, error)
    topics: dict[tuple[str, bytes], list[FetchedPartition]] = {}
    leaders = set()
    records_bytes = 0
    for watched, answer in answers:
        topics.setdefault((watched.name, watched.topic_id), []).append(answer)
        if answer.current_leader is not None:
            leaders.add(answer.current_leader[0])
        replica = watched.replica
        if answer.records is not None:
            size = answer.records.length
            records_bytes += size
            if replica is not None:
                traffic = replica.metrics
                traffic.fetch_requests += 1
                if is_follower:
                    traffic.replication_bytes_out += size
                else:
                    traffic.bytes_out += size
        elif answer.error:
            metrics.note_error(API.key, answer.error)
            if replica is not None:
                replica.metrics.failed_fetch_requests += 1
    endpoints = context.services.node_endpoints(leaders, context.listener) if leaders else ()
    try:
        parts, size = pack_fetch_response(
            version,
            [FetchedTopic(name, topic_id, rows) for (name, topic_id), rows in topics.items()],
            error=error,
            session_id=session_id,
            endpoints=endpoints,
            throttle_ms=context.pause(QuotaKind.FETCH, records_bytes),
        )
    except (OSError, WireError) as failure:
        # The disk failed after the slice was located and before it was read; the client sends its
        # request again.
        if isinstance(failure, OSError) and failure.filename is not None:
            context.services.replicas.on_file_failed(str(failure.filename), failure)
        slot.connection.close(f"cannot read what was promised: {failure}")
        return
    head = response_head(context.correlation_id, size, is_flexible=version >= FIRST_FLEXIBLE)
    slot.fill((head, *parts))
