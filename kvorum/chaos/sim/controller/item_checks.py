"""Checks a reply against the image, item by item, before and after the operation. Pure.

The checks are written from the guarantees of the operations, not from the code of the decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kvorum.chaos.sim.controller import broker_checks
from kvorum.chaos.sim.controller.broker_checks import NO_TRACE, SURVIVES, Verdicts
from kvorum.chaos.sim.controller.history import Attempt
from kvorum.metadata.image.acl import Acl
from kvorum.metadata.image.image import RESOURCE_TOPIC, ClusterImage, PartitionImage
from kvorum.metadata.requests import controller_requests as r
from kvorum.metadata.requests.acl_requests import AclCreation, CreateAcls, DeleteAcls
from kvorum.metadata.requests.config_requests import (
    AlterClientQuotas,
    AlterConfigs,
    ConfigAlteration,
    Operation,
)
from kvorum.metadata.requests.directory_requests import AssignReplicas
from kvorum.runtime.errors import ErrorCode

Problem = tuple[str, str]
"""Name of a check, and its finding."""

MIN_INSYNC_REPLICAS = "min.insync.replicas"


def problem_of(attempt: Attempt, before: ClusterImage, after: ClusterImage) -> Problem | None:
    """The part of an acknowledged request that does not agree with its reply; None if all
    agrees."""
    request = attempt.request
    judge = _JUDGES.get(type(request))
    if judge is None:
        return None
    if getattr(request, "validate_only", False):
        return (NO_TRACE, "a dry run wrote records") if attempt.values else None
    for holds, name, expected in judge(request, attempt.reply, before, after):
        if not holds:
            return name, expected
    return None


def _created(
    request: r.CreateTopics, reply: Any, before: ClusterImage, after: ClusterImage
) -> Verdicts:
    done = {item.name for item in reply if item.error is ErrorCode.NONE}
    yield len(reply) == len(request.topics), SURVIVES, "an answer for each topic"
    for item in reply:
        topic = after.topic(item.name)
        if item.error is ErrorCode.NONE:
            yield before.topic(item.name) is None, SURVIVES, f"{item.name} was not there"
            yield (
                topic is not None
                and topic.topic_id == item.topic_id
                and len(topic.partitions) == item.num_partitions,
                SURVIVES,
                f"{item.name} is there",
            )
        elif item.name not in done:
            yield topic == before.topic(item.name), NO_TRACE, f"{item.name} was not made"
        if item.error is ErrorCode.INVALID_REPLICATION_FACTOR:
            yield (
                _is_factor_too_large(request, item.name, before),
                "PlannedStopBlocksNothing",
                f"{item.name} has more replicas than there are brokers, but for those that are "
                "shutting down, or no broker is in service",
            )


def _is_factor_too_large(request: r.CreateTopics, name: str, image: ClusterImage) -> bool:
    """True if a topic of this name asks for more replicas than the brokers can have. A broker that
    has ended counts, after a controlled shutdown too."""
    brokers = image.brokers.values()
    count = sum(b.is_fenced or not b.in_controlled_shutdown for b in brokers)
    factors = [topic.replication_factor for topic in request.topics if topic.name == name]
    return not any(b.is_active for b in brokers) or any(not 0 < f <= count for f in factors)


def _deleted(
    request: r.DeleteTopics, reply: Any, before: ClusterImage, after: ClusterImage
) -> Verdicts:
    gone = {item.topic_id for item in reply if item.error is ErrorCode.NONE}
    yield len(reply) == len(request.topics), SURVIVES, "an answer for each topic"
    for topic_id in gone:
        yield topic_id in before.topics, SURVIVES, f"{topic_id.hex()} was there"
        yield topic_id not in after.topics, SURVIVES, f"{topic_id.hex()} is gone"
    for topic_id in before.topics:
        yield topic_id in after.topics or topic_id in gone, NO_TRACE, "others stay"


def _grown(
    request: r.CreatePartitions, reply: Any, before: ClusterImage, after: ClusterImage
) -> Verdicts:
    done = {item.name for item in reply if item.error is ErrorCode.NONE}
    counts = {topic.name: topic.count for topic in request.topics}
    for name, count in counts.items():
        topic = after.topic(name)
        if name in done:
            holds = topic is not None and len(topic.partitions) == count
            yield holds, SURVIVES, f"{name} has {count} partitions"
        else:
            yield topic == before.topic(name), NO_TRACE, f"{name} is as it was"


def _configured(
    request: AlterConfigs, reply: Any, before: ClusterImage, after: ClusterImage
) -> Verdicts:
    for resource, item in zip(request.resources, reply, strict=True):
        key = (resource.resource_type, resource.resource_name)
        now: Mapping[str, str] = after.configs.get(key, {})
        if item.error is not ErrorCode.NONE:
            yield now == before.configs.get(key, {}), NO_TRACE, f"{key} is as it was"
            continue
        was: Mapping[str, str] = before.configs.get(key, {})
        if now.get(MIN_INSYNC_REPLICAS) != was.get(MIN_INSYNC_REPLICAS):
            # The members of an ELR are eligible under the old minimum (KIP-966).
            holds = not any(p.elr for p in _under(resource, before, after))
            yield holds, "ElrEndsWithItsMinimum", f"none under {key}"
        for operation in resource.operations:
            if operation.kind == Operation.SET:
                holds = now.get(operation.name) == operation.value
                yield holds, SURVIVES, f"{key} has {operation}"
            elif operation.kind == Operation.DELETE:
                yield operation.name not in now, SURVIVES, f"{key} has no {operation.name}"


def _under(
    resource: ConfigAlteration, before: ClusterImage, after: ClusterImage
) -> Iterator[PartitionImage]:
    """The partitions whose min.insync.replicas comes from this resource: a topic's own value comes
    first."""
    for topic in after.topics.values():
        if resource.resource_type == RESOURCE_TOPIC:
            is_under = topic.name == resource.resource_name
        else:
            is_under = MIN_INSYNC_REPLICAS not in before.topic_configs(topic.name)
        if is_under:
            yield from topic.partitions.values()


def _limited(
    request: AlterClientQuotas, reply: Any, before: ClusterImage, after: ClusterImage
) -> Verdicts:
    for entry, item in zip(request.entries, reply, strict=True):
        now: Mapping[str, float] = after.client_quotas.get(entry.entity, {})
        if item.error is not ErrorCode.NONE:
            holds = now == before.client_quotas.get(entry.entity, {})
            # If a request names an entity twice, only one of the two entries is refused.
            if [e.entity for e in request.entries].count(entry.entity) == 1:
                yield holds, NO_TRACE, f"{entry.entity} is as it was"
        elif [e.entity for e in request.entries].count(entry.entity) == 1:
            for operation in entry.operations:
                yield now.get(operation.key) == operation.value, SURVIVES, f"{entry} holds"


def _acls_created(
    request: CreateAcls, reply: Any, before: ClusterImage, after: ClusterImage
) -> Verdicts:
    asked = [_numbers(item) for item in request.creations]
    done = {
        numbers for numbers, item in zip(asked, reply, strict=True) if item.error is ErrorCode.NONE
    }
    old, now = (set(map(_numbers, image.acl_ids)) for image in (before, after))
    yield now == old | done, SURVIVES if done - now else NO_TRACE, f"there are {old | done}"
    yield len(after.acls) == len(now), SURVIVES, "each ACL is there once"


def _acls_deleted(
    request: DeleteAcls, reply: Any, before: ClusterImage, after: ClusterImage
) -> Verdicts:
    gone = {acl for item in reply for acl in item.acls}
    yield not gone & set(after.acl_ids), SURVIVES, f"{gone} are gone"
    left = set(before.acl_ids) - gone
    yield set(after.acl_ids) == left, NO_TRACE, f"there are still {left}"


def _numbers(item: AclCreation | Acl) -> tuple[Any, ...]:
    return (
        item.resource_type, item.resource_name, item.pattern_type, item.principal, item.host,
        item.operation, item.permission,
    )  # fmt: skip


def _partition(image: ClusterImage, name: str, partition_id: int) -> Any:
    topic = image.topic(name)
    return None if topic is None else topic.partitions.get(partition_id)


def _reassigned(
    request: r.AlterReassignments, reply: Any, before: ClusterImage, after: ClusterImage
) -> Verdicts:
    done = {(i.topic, i.partition_id) for i in reply if i.error is ErrorCode.NONE}
    for wanted, item in zip(request.reassignments, reply, strict=True):
        key = (wanted.topic, wanted.partition_id)
        now = _partition(after, *key)
        if item.error is not ErrorCode.NONE:
            if key not in done:
                yield now == _partition(before, *key), NO_TRACE, f"{key} is as it was"
        elif wanted.replicas is None:
            old = _partition(before, *key)
            origin = set(old.replicas) - set(old.adding_replicas)
            holds = not now.is_reassigning and set(now.replicas) == origin
            yield holds, SURVIVES, f"{key} is back on {origin}"
        else:
            target = tuple(x for x in now.replicas if x not in now.removing_replicas)
            yield target == wanted.replicas, SURVIVES, f"{key} goes to {wanted.replicas}"


def _elected(
    request: r.ElectLeaders, reply: Any, before: ClusterImage, after: ClusterImage
) -> Verdicts:
    for item in reply:
        key = (item.topic, item.partition_id)
        old, now = _partition(before, *key), _partition(after, *key)
        if item.error is not ErrorCode.NONE:
            yield now == old, NO_TRACE, f"{key} is as it was"
        elif request.election is r.ElectionType.PREFERRED:
            yield now.leader == now.replicas[0], SURVIVES, f"{key} has its preferred leader"
        else:
            yield now.has_leader, SURVIVES, f"{key} has a leader"


def _updated(
    request: r.UpdateFeatures, reply: Any, before: ClusterImage, after: ClusterImage
) -> Verdicts:
    if any(item.error is not ErrorCode.NONE for item in reply):
        yield after.features == before.features, NO_TRACE, "all levels or none"
        return
    for update in request.updates:
        holds = after.features.get(update.name, 0) == update.max_level
        yield holds, SURVIVES, f"{update.name} is {update.max_level}"


def _listed(
    request: r.ListReassignments, reply: Any, before: ClusterImage, after: ClusterImage
) -> Verdicts:
    expected = {
        (topic.name, partition_id, partition.replicas)
        for topic in after.topics.values()
        for partition_id, partition in topic.partitions.items()
        if partition.is_reassigning
    }
    found = {(item.topic, item.partition_id, item.replicas) for item in reply}
    yield found == expected, SURVIVES, f"the moves under way are {expected}"


def _assigned(
    request: AssignReplicas, reply: Any, before: ClusterImage, after: ClusterImage
) -> Verdicts:
    refused = {(item.topic_id, item.partition_id) for item in reply}
    for asked in request.replicas:
        partition = after.partition(asked.topic_id, asked.partition_id)
        if (asked.topic_id, asked.partition_id) not in refused:
            yield (
                partition is not None
                # The report may complete a move, which also removes the broker from the replicas
                # (seed 851).
                and (
                    request.broker_id not in partition.replicas
                    or partition.directory_of(request.broker_id) == asked.directory_id
                ),
                SURVIVES,
                f"{asked} is where broker {request.broker_id} says",
            )


_JUDGES: dict[type[Any], Callable[[Any, Any, ClusterImage, ClusterImage], Verdicts]] = {
    r.CreateTopics: _created,
    r.DeleteTopics: _deleted,
    r.CreatePartitions: _grown,
    AlterConfigs: _configured,
    AlterClientQuotas: _limited,
    CreateAcls: _acls_created,
    DeleteAcls: _acls_deleted,
    r.AlterReassignments: _reassigned,
    r.ElectLeaders: _elected,
    r.UpdateFeatures: _updated,
    r.RegisterBrokerRequest: broker_checks.registered,
    r.Heartbeat: broker_checks.heard,
    r.AlterPartition: broker_checks.altered,
    r.AllocateProducerIds: broker_checks.allocated,
    r.UnregisterBrokerRequest: broker_checks.unregistered,
    r.RegisterControllerRequest: broker_checks.controller_registered,
    r.ListReassignments: _listed,
    AssignReplicas: _assigned,
}
