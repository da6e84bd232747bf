"""Reassignment of a partition to other replicas: adds replicas first, removes replicas last
(KIP-455).

While a reassignment is in progress, the partition's replicas are the targets in their order,
followed by those to be removed; `adding_replicas` and `removing_replicas` say which is which. An
AlterPartition that brings all targets into the ISR completes it (`partition_change`). The records
hold this whole state, so that another controller continues it.

A new reassignment replaces the one in progress. Replicas that only the replaced reassignment was
adding are dropped at once. A cancellation restores the set of replicas from before the first
reassignment; replicas that stayed keep the order of the targets.
"""

from __future__ import annotations

from kvorum.metadata.controller.decide import RECORDS_PER_REQUEST_MAX, Decision
from kvorum.metadata.controller.decide.cordons import cordon_problem, is_cordoned
from kvorum.metadata.controller.decide.eligible_brokers import EligibleBrokers
from kvorum.metadata.controller.decide.partition_change import PartitionTarget, Replicas, change
from kvorum.metadata.image.features import METADATA_VERSION, REASSIGNMENT_LEVEL, level_of
from kvorum.metadata.image.image import ClusterImage, PartitionImage, TopicImage
from kvorum.metadata.image.records import PartitionChange
from kvorum.metadata.requests.controller_requests import (
    AlterReassignments,
    ListReassignments,
    OngoingReassignment,
    ReassignedPartition,
    Reassignment,
)
from kvorum.runtime.errors import ErrorCode, Rejected

REPLICAS_MAX = 1_000
"""Target replicas of one partition; a longer list is a mistake."""


def alter_reassignments(
    image: ClusterImage,
    request: AlterReassignments,
    eligible: EligibleBrokers,
    *,
    records_max: int = RECORDS_PER_REQUEST_MAX,
) -> Decision[tuple[ReassignedPartition, ...] | Rejected]:
    """Start, replace or cancel the reassignment of each partition on its own."""
    level = level_of(image.features, METADATA_VERSION)
    if level < REASSIGNMENT_LEVEL:
        message = (
            f"reassignments need {METADATA_VERSION} {REASSIGNMENT_LEVEL}, it is {level}; "
            "upgrade it with `kvorum features upgrade`"
        )
        return Decision((), Rejected(ErrorCode.UNSUPPORTED_VERSION, message))
    records: list[PartitionChange] = []
    results: list[ReassignedPartition] = []
    seen: set[tuple[str, int]] = set()
    for wanted in request.reassignments:
        key = (wanted.topic, wanted.partition_id)
        outcome: PartitionChange | Rejected | None
        if key in seen:
            outcome = Rejected(
                ErrorCode.INVALID_REQUEST,
                f"partition {wanted.topic}-{wanted.partition_id} stands twice in the request",
            )
        elif len(seen) == records_max:
            outcome = Rejected(
                ErrorCode.POLICY_VIOLATION,
                f"more than {records_max} partitions in one request; send the rest in another",
            )
        else:
            seen.add(key)
            may_change_factor = request.allow_replication_factor_change
            outcome = _alter_one(image, wanted, eligible, may_change_factor=may_change_factor)
        if isinstance(outcome, Rejected):
            error, message = outcome.code, outcome.message
        else:
            error, message = ErrorCode.NONE, ""
            if outcome is not None:
                records.append(outcome)
        results.append(
            ReassignedPartition(
                topic=wanted.topic, partition_id=wanted.partition_id, error=error, message=message
            )
        )
    return Decision(tuple(records), tuple(results))


def list_reassignments(
    image: ClusterImage, request: ListReassignments
) -> Decision[tuple[OngoingReassignment, ...]]:
    """The reassignments in progress, of the named partitions or of all."""
    targets = request.partitions
    if targets is None:
        targets = tuple(
            (topic.name, partition_id)
            for topic in sorted(image.topics.values(), key=lambda t: t.name)
            for partition_id, partition in sorted(topic.partitions.items())
            if partition.is_reassigning
        )
    found: list[OngoingReassignment] = []
    for name, partition_id in dict.fromkeys(targets):
        topic = image.topic(name)
        partition = None if topic is None else topic.partitions.get(partition_id)
        if partition is not None and partition.is_reassigning:
            found.append(
                OngoingReassignment(
                    topic=name,
                    partition_id=partition_id,
                    replicas=partition.replicas,
                    adding_replicas=partition.adding_replicas,
                    removing_replicas=partition.removing_replicas,
                )
            )
    return Decision((), tuple(found))


def _alter_one(
    image: ClusterImage, wanted: Reassignment, eligible: EligibleBrokers, *, may_change_factor: bool
) -> PartitionChange | Rejected | None:
    topic = image.topic(wanted.topic)
    partition = None if topic is None else topic.partitions.get(wanted.partition_id)
    if topic is None or partition is None:
        return Rejected(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no partition {wanted.topic}-{wanted.partition_id}",
        )
    origin = tuple(r for r in partition.replicas if r not in partition.adding_replicas)
    target = wanted.replicas
    if target is None:
        if not partition.is_reassigning:
            return Rejected(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
                f"partition {wanted.topic}-{wanted.partition_id} is not being reassigned",
            )
        target = origin
    else:
        problem = _target_problem(image, target)
        if problem is None and not may_change_factor and len(target) != len(origin):
            problem = Rejected(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"the replication factor would change from {len(origin)} to {len(target)}, "
                "which the request does not allow",
            )
        if problem is not None:
            return problem
    return _move(topic, wanted.partition_id, partition, (origin, target), image, eligible)


def _move(
    topic: TopicImage,
    partition_id: int,
    partition: PartitionImage,
    way: tuple[Replicas, Replicas],
    image: ClusterImage,
    eligible: EligibleBrokers,
) -> PartitionChange | Rejected | None:
    origin, target = way
    cordoned = [r for r in target if r not in partition.replicas and is_cordoned(image, r)]
    if cordoned:
        return Rejected(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"the assignment {list(target)} {cordon_problem(cordoned)}",
        )
    removing = tuple(r for r in origin if r not in target)
    replicas = target + removing
    isr = tuple(r for r in partition.isr if r in replicas)
    if not isr:
        return Rejected(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"the ISR of {topic.name}-{partition_id} is {list(partition.isr)}, all of which the "
            "change would drop: it would need an unclean election; wait for an original replica",
        )
    partition_target = PartitionTarget(
        replicas=replicas,
        isr=isr,
        adding=tuple(r for r in target if r not in origin),
        removing=removing,
    )
    return change(
        (topic.topic_id, partition_id),
        partition,
        partition_target,
        eligible.rules(image, topic.name),
    )


def _target_problem(image: ClusterImage, target: Replicas) -> Rejected | None:
    problem = ""
    if not target:
        problem = "is empty"
    elif len(target) > REPLICAS_MAX:
        return Rejected(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{len(target)} replicas are over {REPLICAS_MAX}",
        )
    elif len(set(target)) != len(target):
        problem = "names a broker twice"
    elif unknown := [r for r in target if r not in image.brokers]:
        problem = f"names brokers that are not registered: {unknown}"
    if not problem:
        return None
    return Rejected(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the assignment {list(target)} {problem}"
    )
