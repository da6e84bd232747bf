"""CreateTopics (19). Served: v2-7. Any broker forwards it to the controller.

Configs that Kvorum does not serve (tiered storage) are refused with INVALID_CONFIG before the
controller is asked. The answer waits until this broker's own metadata shows the topics, so that a
client may produce at once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kvorum.broker.api.context import TOPIC_REFUSED, RequestContext
from kvorum.broker.metadata_answers.topic_names import name_refusal
from kvorum.metadata.configs.config_keys import topic_config_problem
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.requests.controller_requests import CreatedTopic, CreateTopics, NewTopic
from kvorum.metadata.rpc.calls import CREATE_TOPICS
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.kio_codec import milliseconds
from kvorum.wire.versions import Api

API = Api(
    key=19,
    name="create_topics",
    min_version=2,
    max_version=7,
    first_flexible=5,
    needs_controller=True,
)
ACCESS = (
    (AclOperation.CREATE, ResourceType.CLUSTER),
    (AclOperation.CREATE, ResourceType.TOPIC),
    (AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC),
)
"""CREATE on the cluster is enough for all topics; the last is for the configs in the answer."""

FIRST_CONFIGS_VERSION = 5
"""First version whose answer lists the topic's configs."""
QUOTA_STRICT_VERSION = 6
"""First version whose clients know THROTTLING_QUOTA_EXCEEDED."""


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    repeated = {name for name, n in Counter(t.name for t in request.topics).items() if n > 1}
    may_create_all = context.shows_cluster_to(AclOperation.CREATE)
    outcome: dict[str, CreatedTopic] = {}
    accepted: list[NewTopic] = []
    charge = context.mutation_charge(QUOTA_STRICT_VERSION)
    for topic in request.topics:
        refused = _refusal_of(topic, repeated)
        if not may_create_all and not context.allows_topic(AclOperation.CREATE, topic.name):
            refused = TOPIC_REFUSED
        if refused is None and not request.validate_only:
            refused = charge.take(topic.name, _partitions_of(context, topic))
        if refused is None:
            accepted.append(_new_topic(topic))
        else:
            outcome[topic.name] = CreatedTopic(
                name=topic.name, error=refused.code, message=refused.message
            )
    if accepted:
        await _create(context, request, accepted, outcome)
    for new in accepted:
        if outcome[new.name].error != ErrorCode.NONE:
            charge.give_back(new.name)
    context.slot.connection.mute(charge.close())
    names = list(dict.fromkeys(topic.name for topic in request.topics))
    return {"topics": [_answer(context, outcome[name]) for name in names]}


async def _create(
    context: RequestContext,
    request: Any,
    accepted: list[NewTopic],
    outcome: dict[str, CreatedTopic],
) -> None:
    timeout_ms = max(milliseconds(request.timeout), 0)
    reply = await context.services.controller.request(
        CREATE_TOPICS,
        CreateTopics(topics=tuple(accepted), validate_only=request.validate_only),
        timeout_ms,
    )
    if isinstance(reply, Rejected):
        for topic in accepted:
            outcome[topic.name] = CreatedTopic(
                name=topic.name, error=reply.code, message=reply.message
            )
        return
    outcome.update({created.name: created for created in reply})
    for topic in accepted:
        outcome.setdefault(
            topic.name, CreatedTopic(name=topic.name, error=ErrorCode.UNKNOWN_SERVER_ERROR)
        )


def _partitions_of(context: RequestContext, topic: Any) -> int:
    asked = len(topic.assignments) or int(topic.num_partitions)
    return asked if asked > 0 else context.services.config.num_partitions


def _refusal_of(topic: Any, repeated: set[str]) -> Rejected | None:
    if topic.name in repeated:
        return Rejected(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is asked for twice")
    reason = name_refusal(topic.name)
    if reason is not None:
        return Rejected(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    for config in topic.configs:
        if config.value is None:
            return Rejected(ErrorCode.INVALID_CONFIG, f"{config.name} has no value")
        refused = topic_config_problem(config.name, config.value)
        if refused is not None:
            return refused
    if topic.assignments:
        ids = sorted(assignment.partition_index for assignment in topic.assignments)
        if ids != list(range(len(ids))):
            return Rejected(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partitions {ids} are not 0..n-1"
            )
        if topic.num_partitions not in (-1, len(ids)) or topic.replication_factor != -1:
            return Rejected(
                ErrorCode.INVALID_REQUEST, "give either an assignment or counts, not both"
            )
    return None


def _new_topic(topic: Any) -> NewTopic:
    by_partition = sorted(topic.assignments, key=lambda item: item.partition_index)
    return NewTopic(
        name=topic.name,
        num_partitions=-1 if by_partition else topic.num_partitions,
        replication_factor=-1 if by_partition else topic.replication_factor,
        assignments=tuple(tuple(item.broker_ids) for item in by_partition),
        configs=tuple((config.name, config.value) for config in topic.configs),
    )


def _answer(context: RequestContext, created: CreatedTopic) -> dict[str, Any]:
    is_made = created.error == ErrorCode.NONE
    configs: Any = ()
    config_error = ErrorCode.NONE
    if is_made and context.api_version >= FIRST_CONFIGS_VERSION:
        if context.allows_topic(AclOperation.DESCRIBE_CONFIGS, created.name):
            configs = context.services.config_entries.of_topic(
                created.name, with_documentation=False, is_typed=True
            )
        else:
            config_error, configs = ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
    is_hidden = config_error != ErrorCode.NONE
    return {
        "name": created.name,
        "topic_id": created.topic_id,
        "error_code": created.error,
        "error_message": created.message or None,
        "topic_config_error_code": config_error,
        "num_partitions": -1 if is_hidden else created.num_partitions,
        "replication_factor": -1 if is_hidden else created.replication_factor,
        "configs": configs,
    }
