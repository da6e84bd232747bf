"""Metadata (3). Served: v0-13.

Brokers that were fenced a moment ago are still listed; other fenced brokers are not
(`broker.metadata_answers.fenced_broker_visibility`). A partition without a leader has
LEADER_NOT_AVAILABLE. While a broker is suspected dead, answers about partitions that it leads wait
until that is decided (`broker.metadata_answers.suspects`).

The answer to "all topics" is encoded once for each image, version and listener. A topic's
partitions are encoded once until they change (`broker.metadata_answers.topic_metadata`). An answer
of many partitions is encoded a slice at a time (`broker.metadata_answers.sliced_answer`).

An unknown topic has UNKNOWN_TOPIC_OR_PARTITION (by id UNKNOWN_TOPIC_ID), even if its auto-creation
has just begun: the client retries. If authorized operations are requested, each topic has those
that the client may perform on it; a topic with an unknown id, or hidden from the client, has none.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Collection, Hashable, Iterable
from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.describe_cluster import cluster_operations
from kvorum.broker.api.services import Services
from kvorum.broker.coordinator.topics import internal_topic
from kvorum.broker.metadata_answers.authorized_operations import NOT_ASKED, is_asked
from kvorum.broker.metadata_answers.sliced_answer import (
    KEPT_PARTITIONS_MAX,
    PARTITIONS_AT_ONCE,
    packed_topics,
    partition_count,
    partition_slices,
    slices,
)
from kvorum.broker.metadata_answers.topic_metadata import Body, TopicMetadata, live_brokers
from kvorum.broker.metadata_answers.topic_names import (
    EVENTS_TOPIC,
    INTERNAL_TOPICS,
    name_refusal,
)
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.image.image import ClusterImage, TopicImage
from kvorum.metadata.requests.controller_requests import CreateTopics, NewTopic
from kvorum.metadata.rpc.calls import CREATE_TOPICS
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.ids import UUID_ZERO
from kvorum.wire.kio_codec import Packed, encode_response, uuid_bytes
from kvorum.wire.versions import Api

API = Api(key=3, name="metadata", min_version=0, max_version=13, first_flexible=9)
ACCESS = (
    (AclOperation.DESCRIBE, ResourceType.TOPIC),
    (AclOperation.CREATE, ResourceType.TOPIC),
    (AclOperation.CREATE, ResourceType.CLUSTER),
    (AclOperation.DESCRIBE, ResourceType.CLUSTER),
)
"""CREATE, on one of the two, for auto-creation; the last only for its authorized operations."""

IDS_VERSION = 12
"""First version in which topics may be requested by id; if one is, names are ignored."""
LATE_NEWS_MS = 1
"""A broker that dies closes all its connections, but not at the same instant. A client may notice,
and ask this broker, before this broker has noticed. An answer that names a leader which this broker
follows waits this long."""
AUTO_CREATIONS_MAX = 100
"""Topics that may be auto-created at a time; others get UNKNOWN_TOPIC_OR_PARTITION, and the next
request tries again."""
AUTO_CREATE_TIMEOUT_MS = 5_000
_WITHOUT_OPERATIONS = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def handle(context: RequestContext, request: Any) -> Any:
    leaders = context.services.replicas.fetchers.leaders()
    if request.topics and _are_led_by(context, request, leaders):
        return _once_decided(context, request)
    return _answer_to(context, request)


async def _once_decided(context: RequestContext, request: Any) -> Any:
    """Answer once it is decided if a requested leader has died."""
    await asyncio.sleep(LATE_NEWS_MS / 1000)
    suspects = context.services.replicas.fetchers.suspects
    await suspects.wait(lambda present: _are_led_by(context, request, present))
    answer = _answer_to(context, request)
    return await answer if inspect.isawaitable(answer) else answer


def _are_led_by(context: RequestContext, request: Any, brokers: Collection[int]) -> bool:
    """True if one of `brokers` leads a partition of a requested topic."""
    if not brokers:
        return False
    image = context.services.image()
    asked = dict.fromkeys(
        (uuid_bytes(getattr(item, "topic_id", None)), item.name) for item in request.topics
    )
    for topic_id, name in asked:
        topic = image.topics.get(topic_id) if topic_id != UUID_ZERO else image.topic(name)
        if topic is not None and any(p.leader in brokers for p in topic.partitions.values()):
            return True
    return False


def _answer_to(context: RequestContext, request: Any) -> Any:
    """The answer's fields, its body, or a coroutine that returns the body of a large one."""
    services = context.services
    image = services.image()
    with_operations = is_asked(request, "include_topic_authorized_operations")
    cluster = cluster_operations(context, request)
    asked = request.topics
    if asked is None or (context.api_version == 0 and not asked):
        _send_elsewhere(context, image.topics)
        if context.has_access_control:
            topics = _shown_topics(context, image, with_operations=with_operations)
            return _packed(context, image, _answer(context, image, topics, cluster))
        return _all_topics(context, image, cluster, with_operations=with_operations)
    may_create = (
        getattr(request, "allow_auto_topic_creation", True)
        and services.config.auto_create_topics_enable
    )
    missing: list[str] = []
    ids = [uuid_bytes(getattr(item, "topic_id", None)) for item in asked]
    if context.api_version < IDS_VERSION and any(
        item.name is None or topic_id != UUID_ZERO
        for item, topic_id in zip(asked, ids, strict=True)
    ):
        # The schemas of v10 and v11 have ids and null names; Kafka refuses both there.
        topics = [_failed(item.name or "", None, ErrorCode.INVALID_REQUEST) for item in asked]
    elif any(topic_id != UUID_ZERO for topic_id in ids):
        # Names beside ids are ignored: Java's clients send an empty name.
        by_id = dict.fromkeys(topic_id for topic_id in ids if topic_id != UUID_ZERO)
        topics = [_topic_of_id(context, image, topic_id) for topic_id in by_id]
    else:
        # A repeated name is answered once, as in Kafka: it takes three bytes, and its answer has
        # all the topic's partitions.
        by_name = dict.fromkeys(item.name for item in asked)
        topics = [_topic_of_name(context, image, name, missing) for name in by_name]
    _send_elsewhere(context, [topic["topic_id"] for topic in topics])
    if with_operations:
        for topic in topics:
            if topic["name"] and topic["error_code"] not in _WITHOUT_OPERATIONS:
                _add_operations(context, topic)
    if may_create and missing:
        refused = _create_missing(context, missing)
        for topic in topics:
            if topic["name"] in refused:
                topic["error_code"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return _packed(context, image, _answer(context, image, topics, cluster))


def _packed(context: RequestContext, image: ClusterImage, answer: dict[str, Any]) -> Any:
    """The answer with its partitions, which are images until now."""
    kept, version, topics = context.services.topic_metadata, context.api_version, answer["topics"]
    if partition_count(topics) > KEPT_PARTITIONS_MAX:
        muted_ms = context.slot.connection.muted_ms
        told = {**answer, "throttle_time": muted_ms} if muted_ms else answer
        return _in_turn(slices(version, told, live_brokers(image)))
    fresh = [
        topic
        for topic in topics
        if isinstance(topic["partitions"], TopicImage)
        and kept.kept(image, topic["partitions"], version) is None
    ]
    if partition_count(fresh) > PARTITIONS_AT_ONCE:
        return _packed_in_turn(context, image, answer)
    for topic in topics:
        if isinstance(topic["partitions"], TopicImage):
            topic["partitions"] = kept.partitions(image, topic["partitions"], version)
    return answer


async def _packed_in_turn(
    context: RequestContext, image: ClusterImage, answer: dict[str, Any]
) -> dict[str, Any]:
    """The same with topics of many partitions, which are packed once for all clients."""
    kept, version = context.services.topic_metadata, context.api_version
    live = live_brokers(image)
    async with kept.packing:
        for topic in answer["topics"]:
            of_topic = topic["partitions"]
            if not isinstance(of_topic, TopicImage):
                continue
            packed = kept.kept(image, of_topic, version)
            if packed is None:
                packed = Packed(b"".join(await _in_turn(partition_slices(version, of_topic, live))))
                kept.keep(image, of_topic, version, packed)
            topic["partitions"] = packed
    return answer


async def _in_turn(parts: Iterable[bytes]) -> tuple[bytes, ...]:
    """All parts; the loop turns after each."""
    made = []
    for part in parts:
        made.append(part)
        await asyncio.sleep(0)
    return tuple(made)


def _add_operations(context: RequestContext, topic: dict[str, Any]) -> None:
    operations = context.operations(ResourceType.TOPIC, topic["name"])
    topic["topic_authorized_operations"] = operations


def _create_missing(context: RequestContext, missing: list[str]) -> set[str]:
    """Create the topics that the client may create, and return the others."""
    may_create_all = context.shows_cluster_to(AclOperation.CREATE)
    refused = {
        name
        for name in missing
        if not may_create_all and not context.allows_topic(AclOperation.CREATE, name)
    }
    _auto_create(context.services, [name for name in missing if name not in refused])
    return refused


def _send_elsewhere(context: RequestContext, topic_ids: Iterable[bytes | None]) -> None:
    """Close the connection after an answer that hides the leader of an abandoned partition.

    Bad sequence otherwise: 1. A client is connected to this broker alone. 2. The answer says that a
    partition has no leader. 3. The client asks the same broker again, for as long as the broker is
    isolated.
    """
    if context.services.replicas.isolation.hides(topic_ids):
        context.slot.connection.close_when_idle("this broker has lost the controllers")


def _shown_topics(
    context: RequestContext, image: ClusterImage, *, with_operations: bool
) -> list[dict[str, Any]]:
    """The topics that the client may describe."""
    topics = [
        _known(topic)
        for topic in image.topics.values()
        if context.shows(ResourceType.TOPIC, topic.name)
    ]
    if with_operations:
        for row in topics:
            _add_operations(context, row)
    return topics


def _all_topics(
    context: RequestContext, image: ClusterImage, cluster: int, *, with_operations: bool
) -> Any:
    """The answer with all topics, for clients that may do everything."""
    services, kept = context.services, context.services.topic_metadata
    operations = context.operations(ResourceType.TOPIC, "") if with_operations else NOT_ASKED
    key = (
        context.api_version,
        context.listener,
        _listed(services, image),
        services.controller_id(),
        cluster,
        operations,
    )
    body = kept.whole_answer(image, key)
    if body is not None:
        return body
    topics = [
        {**_known(topic), "topic_authorized_operations": operations}
        for topic in image.topics.values()
    ]
    answer = _answer(context, image, topics, cluster)
    version = context.api_version
    if partition_count(topics) > PARTITIONS_AT_ONCE:
        return _all_sliced(kept, version, answer, image, key)
    answer["topics"] = packed_topics(version, topics, live_brokers(image))
    body = bytes(encode_response(API.name, version, answer))
    kept.keep_whole(image, key, body)
    return body


async def _all_sliced(
    kept: TopicMetadata, version: int, answer: dict[str, Any], image: ClusterImage, key: Hashable
) -> Body:
    async with kept.slicing:
        body = kept.whole_answer(image, key)  # another client may have asked before
        if body is None:
            body = await _in_turn(slices(version, answer, live_brokers(image)))
            kept.keep_whole(image, key, body)
    return body


def _answer(
    context: RequestContext,
    image: ClusterImage,
    topics: list[dict[str, Any]],
    cluster: int,
) -> dict[str, Any]:
    services = context.services
    brokers = []
    for broker_id in _listed(services, image):
        broker = image.brokers[broker_id]
        endpoint = services.endpoint_of(broker, context.listener)
        brokers.append(
            {
                "node_id": broker_id,
                "host": endpoint.host,
                "port": endpoint.port,
                "rack": broker.rack,
            }
        )
    return {
        "brokers": brokers,
        "cluster_id": services.cluster_id,
        "controller_id": services.controller_id(),
        "topics": topics,
        "cluster_authorized_operations": cluster,
    }


def _listed(services: Services, image: ClusterImage) -> tuple[int, ...]:
    return services.fenced_visibility.listed(image, services.now_ms())


def _topic_of_id(context: RequestContext, image: ClusterImage, topic_id: bytes) -> dict[str, Any]:
    topic = image.topics.get(topic_id)
    # As in Kafka, a client that may not describe a topic is not told that its id exists.
    if topic is None or not context.allows_topic(AclOperation.DESCRIBE, topic.name):
        return _failed(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    return _known(topic)


def _topic_of_name(
    context: RequestContext, image: ClusterImage, name: str | None, missing: list[str]
) -> dict[str, Any]:
    """The topic of that name; unknown names that may be created are appended to `missing`.

    `__kvorum_events` is not, unless metadata.events.topic.enable is set: nothing would be written
    to it.
    """
    if name is None:
        return _failed(None, None, ErrorCode.UNKNOWN_TOPIC_ID)
    if not context.allows_topic(AclOperation.DESCRIBE, name):
        return _failed(name, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = image.topic(name)
    if topic is not None:
        return _known(topic)
    if name_refusal(name) is not None:
        return _failed(name, None, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if name != EVENTS_TOPIC or context.services.config.metadata_events_topic_enable:
        missing.append(name)
    return _failed(name, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _known(topic: TopicImage) -> dict[str, Any]:
    """The fields of a topic; its partitions are its image until they are packed."""
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": topic,
    }


def _failed(name: str | None, topic_id: bytes | None, error: ErrorCode) -> dict[str, Any]:
    return {"error_code": error, "name": name, "topic_id": topic_id, "partitions": ()}


def _auto_create(services: Services, names: list[str]) -> None:
    under_way = services.auto_creations
    fresh = [name for name in dict.fromkeys(names) if name not in under_way]
    fresh = fresh[: max(AUTO_CREATIONS_MAX - len(under_way), 0)]
    if not fresh:
        return
    under_way.update(fresh)

    async def create() -> None:
        try:
            topics = [
                internal_topic(name, services.config) or NewTopic(name=name) for name in fresh
            ]
            request = CreateTopics(topics=tuple(topics))
            # No request waits for the result: the client asks again, and sees the topic or the
            # error.
            await services.controller.request(CREATE_TOPICS, request, AUTO_CREATE_TIMEOUT_MS)
        finally:
            under_way.difference_update(fresh)

    services.in_background(create(), "auto-create")
