"""Whether a reply says what the image shows: item by item, before the operation and after it. Pure.

Written from what the operations promise, not from how they are decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from chaos.sim.controller.history import Attempt
from metadata import requests as r
from metadata.config_requests import AlterClientQuotas, AlterConfigs, Operation
from metadata.image import ClusterImage, PartitionImage
from runtime.errors import ErrorCode

Problem = tuple[str, str]
"""Name of a check, and what is wrong."""

SURVIVES, NO_TRACE, STALE = "AcknowledgedSurvives", "RefusedLeftNoTrace", "StaleIsRefused"
MIN_INSYNC_REPLICAS = "min.insync.replicas"

_Verdicts = Iterator[tuple[bool, str, str]]
"""(whether it holds, name of the check, what was expected)"""


def problem_of(attempt: Attempt, before: ClusterImage, after: ClusterImage) -> Problem | None:
    """What of an acknowledged request is not as its reply says; None if all is."""
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
) -> _Verdicts:
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


def _deleted(
    request: r.DeleteTopics, reply: Any, before: ClusterImage, after: ClusterImage
) -> _Verdicts:
    gone = {item.topic_id for item in reply if item.error is ErrorCode.NONE}
    yield len(reply) == len(request.topics), SURVIVES, "an answer for each topic"
    for topic_id in gone:
        yield topic_id in before.topics, SURVIVES, f"{topic_id.hex()} was there"
        yield topic_id not in after.topics, SURVIVES, f"{topic_id.hex()} is gone"
    for topic_id in before.topics:
        yield topic_id in after.topics or topic_id in gone, NO_TRACE, "others stay"


def _grown(
    request: r.CreatePartitions, reply: Any, before: ClusterImage, after: ClusterImage
) -> _Verdicts:
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
) -> _Verdicts:
    for resource, item in zip(request.resources, reply, strict=True):
        key = (resource.resource_type, resource.resource_name)
        now: Mapping[str, str] = after.configs.get(key, {})
        if item.error is not ErrorCode.NONE:
            yield now == before.configs.get(key, {}), NO_TRACE, f"{key} is as it was"
            continue
        if now != before.configs.get(key, {}) and any(
            operation.name == MIN_INSYNC_REPLICAS for operation in resource.operations
        ):
            # Whoever stood in an ELR did so under the old minimum (KIP-966).
            topic = after.topic(resource.resource_name)
            under = _partitions(after) if topic is None else topic.partitions.values()
            yield not any(p.elr for p in under), "ElrEndsWithItsMinimum", f"none under {key}"
        for operation in resource.operations:
            if operation.kind == Operation.SET:
                holds = now.get(operation.name) == operation.value
                yield holds, SURVIVES, f"{key} has {operation}"
            elif operation.kind == Operation.DELETE:
                yield operation.name not in now, SURVIVES, f"{key} has no {operation.name}"


def _limited(
    request: AlterClientQuotas, reply: Any, before: ClusterImage, after: ClusterImage
) -> _Verdicts:
    for entry, item in zip(request.entries, reply, strict=True):
        now: Mapping[str, float] = after.client_quotas.get(entry.entity, {})
        if item.error is not ErrorCode.NONE:
            holds = now == before.client_quotas.get(entry.entity, {})
            # Twice the same entity in one request: only one of them is refused.
            if [e.entity for e in request.entries].count(entry.entity) == 1:
                yield holds, NO_TRACE, f"{entry.entity} is as it was"
        elif [e.entity for e in request.entries].count(entry.entity) == 1:
            for operation in entry.operations:
                yield now.get(operation.key) == operation.value, SURVIVES, f"{entry} holds"


def _partitions(image: ClusterImage) -> Iterator[PartitionImage]:
    for topic in image.topics.values():
        yield from topic.partitions.values()


def _is_current(image: ClusterImage, request: r.AlterPartition | r.AllocateProducerIds) -> bool:
    broker = image.brokers.get(request.broker_id)
    return broker is not None and broker.broker_epoch == request.broker_epoch


def _partitions_of(image: ClusterImage, name: str, partition_id: int) -> Any:
    topic = image.topic(name)
    return None if topic is None else topic.partitions.get(partition_id)


def _reassigned(
    request: r.AlterReassignments, reply: Any, before: ClusterImage, after: ClusterImage
) -> _Verdicts:
    done = {(i.topic, i.partition_id) for i in reply if i.error is ErrorCode.NONE}
    for wanted, item in zip(request.reassignments, reply, strict=True):
        key = (wanted.topic, wanted.partition_id)
        now = _partitions_of(after, *key)
        if item.error is not ErrorCode.NONE:
            if key not in done:
                yield now == _partitions_of(before, *key), NO_TRACE, f"{key} is as it was"
        elif wanted.replicas is None:
            old = _partitions_of(before, *key)
            origin = set(old.replicas) - set(old.adding_replicas)
            holds = not now.is_reassigning and set(now.replicas) == origin
            yield holds, SURVIVES, f"{key} is back on {origin}"
        else:
            target = tuple(x for x in now.replicas if x not in now.removing_replicas)
            yield target == wanted.replicas, SURVIVES, f"{key} goes to {wanted.replicas}"


def _elected(
    request: r.ElectLeaders, reply: Any, before: ClusterImage, after: ClusterImage
) -> _Verdicts:
    for item in reply:
        key = (item.topic, item.partition_id)
        old, now = _partitions_of(before, *key), _partitions_of(after, *key)
        if item.error is not ErrorCode.NONE:
            yield now == old, NO_TRACE, f"{key} is as it was"
        elif request.election is r.ElectionType.PREFERRED:
            yield now.leader == now.replicas[0], SURVIVES, f"{key} has its preferred leader"
        else:
            yield now.has_leader, SURVIVES, f"{key} has a leader"


def _updated(
    request: r.UpdateFeatures, reply: Any, before: ClusterImage, after: ClusterImage
) -> _Verdicts:
    if any(item.error is not ErrorCode.NONE for item in reply):
        yield after.features == before.features, NO_TRACE, "all levels or none"
        return
    for update in request.updates:
        holds = after.features.get(update.name, 0) == update.max_level
        yield holds, SURVIVES, f"{update.name} is {update.max_level}"


def _registered(
    request: r.RegisterBrokerRequest, reply: Any, before: ClusterImage, after: ClusterImage
) -> _Verdicts:
    broker = after.brokers.get(request.broker_id)
    yield (
        broker is not None
        and broker.broker_epoch == reply.broker_epoch
        and broker.incarnation_id == request.incarnation_id,
        SURVIVES,
        f"broker {request.broker_id} is registered",
    )
    known = before.brokers.get(request.broker_id)
    if (
        known is not None
        and known.incarnation_id != request.incarnation_id
        and known.broker_epoch != request.broker_epoch_before
    ):
        # It may have lost what it held (KIP-966).
        kept = [p for p in _partitions(after) if request.broker_id in p.elr]
        yield not kept, "LostIsNotEligible", f"broker {request.broker_id} is eligible nowhere"


def _beaten(
    request: r.Heartbeat, reply: Any, before: ClusterImage, after: ClusterImage
) -> _Verdicts:
    broker = after.brokers.get(request.broker_id)
    yield (
        broker is not None
        and broker.broker_epoch == request.broker_epoch
        and broker.is_fenced == reply.is_fenced,
        SURVIVES,
        f"broker {request.broker_id} is as its heartbeat was told",
    )
    if not reply.is_fenced and before.brokers[request.broker_id].is_fenced:
        holds = request.metadata_offset > request.broker_epoch
        yield holds, "UnfencedOnceCaughtUp", "it has seen its own registration"
    if reply.should_shut_down and broker is not None:
        yield not broker.is_active, SURVIVES, f"broker {request.broker_id} leads no more"


def _altered(
    request: r.AlterPartition, reply: Any, before: ClusterImage, after: ClusterImage
) -> _Verdicts:
    yield _is_current(before, request), STALE, "the sender is the process that is registered"
    for proposal, item in zip(request.proposals, reply, strict=True):
        key = (item.topic_id, item.partition_id)
        old, now = before.partition(*key), after.partition(*key)
        if item.error in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED):
            yield (
                old is not None
                and (old.leader, old.leader_epoch, old.partition_epoch)
                == (request.broker_id, proposal.leader_epoch, proposal.partition_epoch),
                STALE,
                f"{key} is as its leader believed: {old}",
            )
            for member, epoch in proposal.new_isr:
                broker = before.brokers.get(member)
                yield (
                    broker is not None and broker.is_active and epoch in (-1, broker.broker_epoch),
                    STALE,
                    f"{member} may join",
                )
            yield (
                now is not None
                and (now.isr, now.leader, now.leader_epoch, now.partition_epoch)
                == (item.isr, item.leader, item.leader_epoch, item.partition_epoch),
                SURVIVES,
                f"{key} is as answered",
            )
        else:
            yield now == old, NO_TRACE, f"{key} is as it was"


def _allocated(
    request: r.AllocateProducerIds, reply: Any, before: ClusterImage, after: ClusterImage
) -> _Verdicts:
    yield _is_current(before, request), STALE, "the sender is the process that is registered"
    yield (
        before.next_producer_id <= reply.start
        and reply.start + reply.length <= after.next_producer_id,
        "ProducerIdBlockOnce",
        "the block is the log's",
    )


def _unregistered(
    request: r.UnregisterBrokerRequest, reply: Any, before: ClusterImage, after: ClusterImage
) -> _Verdicts:
    yield request.broker_id not in after.brokers, SURVIVES, f"broker {request.broker_id} is gone"
    alone = [p for p in _partitions(before) if p.isr == (request.broker_id,)]
    yield not alone, "LastCopyStays", f"broker {request.broker_id} alone was in sync for {alone}"


def _noted(
    request: r.RegisterControllerRequest, reply: Any, before: ClusterImage, after: ClusterImage
) -> _Verdicts:
    known = after.controllers.get(request.controller_id)
    holds = known is not None and known.incarnation_id == request.incarnation_id
    yield holds, SURVIVES, f"controller {request.controller_id} is registered"


def _listed(
    request: r.ListReassignments, reply: Any, before: ClusterImage, after: ClusterImage
) -> _Verdicts:
    expected = {
        (topic.name, partition_id, partition.replicas)
        for topic in after.topics.values()
        for partition_id, partition in topic.partitions.items()
        if partition.is_reassigning
    }
    found = {(item.topic, item.partition_id, item.replicas) for item in reply}
    yield found == expected, SURVIVES, f"the moves under way are {expected}"


_JUDGES: dict[type[Any], Callable[[Any, Any, ClusterImage, ClusterImage], _Verdicts]] = {
    r.CreateTopics: _created,
    r.DeleteTopics: _deleted,
    r.CreatePartitions: _grown,
    AlterConfigs: _configured,
    AlterClientQuotas: _limited,
    r.AlterReassignments: _reassigned,
    r.ElectLeaders: _elected,
    r.UpdateFeatures: _updated,
    r.RegisterBrokerRequest: _registered,
    r.Heartbeat: _beaten,
    r.AlterPartition: _altered,
    r.AllocateProducerIds: _allocated,
    r.UnregisterBrokerRequest: _unregistered,
    r.RegisterControllerRequest: _noted,
    r.ListReassignments: _listed,
}
