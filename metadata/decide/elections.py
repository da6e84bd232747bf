"""Who leads a partition, and what changes when a broker goes or comes back.

Online election (kraft.md section 13): keep the leader if it is acceptable; else the first active
member of the ISR in the order of the assignment. The last member of an ISR is never removed: it
alone is known to hold all that was acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator

from metadata.decide import Decision
from metadata.image import ClusterImage, PartitionImage
from metadata.records import NO_LEADER, PartitionChange
from metadata.requests import ElectedLeader, ElectLeaders
from runtime.errors import ErrorCode


def first_in_sync(partition: PartitionImage, isr: tuple[int, ...], active: set[int]) -> int:
    """The first active member of `isr` in the order of the replicas, or NO_LEADER."""
    for replica in partition.replicas:
        if replica in isr and replica in active:
            return replica
    return NO_LEADER


def changes_without_broker(
    image: ClusterImage, broker_id: int, active: set[int]
) -> Iterator[PartitionChange]:
    """Changes that take a broker out of leadership and ISR; `active` must not hold it."""
    for topic_id, topic in image.topics.items():
        for partition_id, partition in topic.partitions.items():
            if broker_id not in partition.isr and broker_id != partition.leader:
                continue
            change = _without(topic_id, partition_id, partition, broker_id, active)
            if change is not None:
                yield change


def changes_with_broker(
    image: ClusterImage, broker_id: int, active: set[int]
) -> Iterator[PartitionChange]:
    """Elections in partitions without leader that a returning ISR member makes possible."""
    for topic_id, topic in image.topics.items():
        for partition_id, partition in topic.partitions.items():
            if partition.leader == NO_LEADER and broker_id in partition.isr:
                leader = first_in_sync(partition, partition.isr, active)
                if leader != NO_LEADER:
                    yield PartitionChange(topic_id, partition_id, leader=leader)


def elect_preferred(
    image: ClusterImage, request: ElectLeaders
) -> Decision[tuple[ElectedLeader, ...]]:
    """Give leadership to the first replica where it is in sync and active (ElectLeaders)."""
    records: list[PartitionChange] = []
    results: list[ElectedLeader] = []
    active = set(image.active_broker_ids())
    targets = request.partitions or tuple(
        (topic.name, partition_id)
        for topic in image.topics.values()
        for partition_id in topic.partitions
    )
    for name, partition_id in targets:
        topic = image.topic(name)
        partition = None if topic is None else topic.partitions.get(partition_id)
        if topic is None or partition is None:
            error, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition"
        else:
            preferred = partition.replicas[0]
            error, message = _preferred_problem(partition, preferred, active)
            if error is ErrorCode.NONE:
                records.append(PartitionChange(topic.topic_id, partition_id, leader=preferred))
        # Asked for all, only what was done or failed is worth an answer (KIP-460).
        if request.partitions or error is not ErrorCode.ELECTION_NOT_NEEDED:
            results.append(
                ElectedLeader(topic=name, partition_id=partition_id, error=error, message=message)
            )
    return Decision(tuple(records), tuple(results))


def _preferred_problem(
    partition: PartitionImage, preferred: int, active: set[int]
) -> tuple[ErrorCode, str]:
    if partition.leader == preferred:
        return ErrorCode.ELECTION_NOT_NEEDED, f"broker {preferred} leads already"
    if preferred not in active or preferred not in partition.isr:
        return (
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"broker {preferred} is fenced or out of sync",
        )
    return ErrorCode.NONE, ""


def _without(
    topic_id: bytes,
    partition_id: int,
    partition: PartitionImage,
    broker_id: int,
    active: set[int],
) -> PartitionChange | None:
    isr = tuple(replica for replica in partition.isr if replica != broker_id)
    if not isr:
        # The last one in sync stays in the ISR, and the partition waits for it.
        if partition.leader == NO_LEADER:
            return None
        return PartitionChange(topic_id, partition_id, leader=NO_LEADER)
    leader = partition.leader
    if leader in (broker_id, NO_LEADER) or leader not in active:
        leader = first_in_sync(partition, isr, active)
    return PartitionChange(
        topic_id,
        partition_id,
        isr=isr if isr != partition.isr else None,
        leader=leader if leader != partition.leader else None,
    )
