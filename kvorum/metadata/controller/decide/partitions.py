"""CreatePartitions: adds partitions to an existing topic (KIP-195)."""

from __future__ import annotations

from collections import Counter

from kvorum.metadata.controller.decide import RECORDS_PER_BATCH_MAX, Context, Decision
from kvorum.metadata.controller.decide.placement import place
from kvorum.metadata.controller.decide.topics import (
    PARTITIONS_MAX,
    assignments_by_hand,
    placeable_brokers,
)
from kvorum.metadata.image.image import ClusterImage, TopicImage
from kvorum.metadata.image.records import Partition
from kvorum.metadata.requests.controller_requests import (
    CreatedPartitions,
    CreatePartitions,
    NewPartitions,
)
from kvorum.runtime.errors import ErrorCode, Rejected


def create_partitions(
    image: ClusterImage, request: CreatePartitions, context: Context
) -> Decision[tuple[CreatedPartitions, ...]]:
    """Add partitions to each topic for which it is possible; each topic is refused on its own."""
    records: list[Partition] = []
    results: list[CreatedPartitions] = []
    repeated = {name for name, n in Counter(t.name for t in request.topics).items() if n > 1}
    for wanted in request.topics:
        made: list[Partition] | Rejected
        if wanted.name in repeated:
            made = Rejected(
                ErrorCode.INVALID_REQUEST, f"topic {wanted.name!r} stands twice in the request"
            )
        else:
            made = _grow(image, wanted, context)
        if not isinstance(made, Rejected) and len(records) + len(made) > RECORDS_PER_BATCH_MAX:
            made = Rejected(
                ErrorCode.POLICY_VIOLATION,
                f"more than {RECORDS_PER_BATCH_MAX} partitions in one request; "
                "ask for the rest in another",
            )
        if isinstance(made, Rejected):
            results.append(
                CreatedPartitions(name=wanted.name, error=made.code, message=made.message)
            )
            continue
        if not request.validate_only:
            records.extend(made)
        results.append(CreatedPartitions(name=wanted.name))
    return Decision(tuple(records), tuple(results))


def _grow(
    image: ClusterImage, wanted: NewPartitions, context: Context
) -> list[Partition] | Rejected:
    topic = image.topic(wanted.name)
    if topic is None:
        return Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {wanted.name!r}")
    problem = _problem(topic, wanted)
    if problem is not None:
        return problem
    count = len(topic.partitions)
    more = wanted.count - count
    # During a reassignment: the factor that it leads to. Its replicas are the old and the new ones.
    first = topic.partitions[0]
    factor = len(first.replicas) - len(first.removing_replicas)
    placements: list[tuple[int, ...]] | Rejected
    if wanted.assignments is None:
        placements = place(
            placeable_brokers(image),
            partition_count=more,
            replication_factor=factor,
            rng=context.rng,
        )
    elif len(wanted.assignments) != more:
        placements = Rejected(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{more} partitions would be added, but {len(wanted.assignments)} assignments "
            "are given; give one for each",
        )
    else:
        placements = assignments_by_hand(image, wanted.assignments, first_id=count, size=factor)
    if isinstance(placements, Rejected):
        return placements
    return _records(image, topic, placements)


def _records(
    image: ClusterImage, topic: TopicImage, placements: list[tuple[int, ...]]
) -> list[Partition] | Rejected:
    active = set(image.active_broker_ids())
    records: list[Partition] = []
    for partition_id, replicas in enumerate(placements, start=len(topic.partitions)):
        isr = tuple(replica for replica in replicas if replica in active)
        if not isr:
            return Rejected(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"all replicas {list(replicas)} of partition {partition_id} are fenced or "
                "shutting down",
            )
        records.append(Partition(topic.topic_id, partition_id, replicas, isr, isr[0]))
    return records


def _problem(topic: TopicImage, wanted: NewPartitions) -> Rejected | None:
    count = len(topic.partitions)
    if wanted.count == count:
        return Rejected(
            ErrorCode.INVALID_PARTITIONS, f"topic {topic.name!r} already has {count} partition(s)"
        )
    if wanted.count < count:
        return Rejected(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r} has {count} partition(s); {wanted.count} would not be an "
            "increase",
        )
    if wanted.count > PARTITIONS_MAX:
        return Rejected(
            ErrorCode.POLICY_VIOLATION,
            f"number of partitions {wanted.count} is over {PARTITIONS_MAX}",
        )
    return None
