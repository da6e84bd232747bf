"""The elections that a decision triggers: for which partitions `partition_change` is asked.

They are the partitions of a broker that is fenced, shuts down, returns or lost its disk, and those
that an operator names (ElectLeaders, KIP-460, KIP-183). The sweep also walks over all partitions in
chunks. The sweep elects preferred leaders that could lead and do not. For a partition without a
leader the sweep elects one, uncleanly if the topic allows that by now.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvorum.metadata.controller.decide import Decision
from kvorum.metadata.controller.decide.eligible_brokers import ElectionRules, EligibleBrokers
from kvorum.metadata.controller.decide.partition_change import (
    Election,
    PartitionTarget,
    change,
    dropped,
)
from kvorum.metadata.image.image import ClusterImage, PartitionImage
from kvorum.metadata.image.records import NO_LEADER, PartitionChange
from kvorum.metadata.requests.controller_requests import ElectedLeader, ElectionType, ElectLeaders
from kvorum.runtime.errors import ErrorCode

SWEEP_PARTITIONS_MAX = 5_000
"""Partitions that one chunk of a sweep checks: a few ms of the event loop's time."""

SWEEP_ELECTIONS_MAX = 1_000
"""Elections in one chunk, Kafka's limit for one run. Each moves clients and followers."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """The position of a walk over all partitions. topic_ids: the topics at its start."""

    topic_ids: tuple[bytes, ...]
    topic_index: int = 0
    partition_id: int = 0


def changes_without_broker(
    image: ClusterImage, broker_id: int, eligible: EligibleBrokers, *, is_lost: bool = False
) -> Iterator[PartitionChange]:
    """The records that remove a broker from leadership and ISRs; `eligible` must not include it.

    is_lost: its disk may have lost records, so it is no eligible leader replica any more either.
    """
    for topic_id, topic in image.topics.items():
        rules: ElectionRules | None = None
        for partition_id, partition in topic.partitions.items():
            if (
                broker_id not in partition.isr
                and broker_id != partition.leader
                and not (is_lost and broker_id in partition.elr)
            ):
                continue
            rules = rules or eligible.rules(image, topic.name)
            record = dropped(
                (topic_id, partition_id), partition, {broker_id}, rules, is_lost=is_lost
            )
            if record is not None:
                yield record


def changes_with_broker(
    image: ClusterImage, broker_id: int, eligible: EligibleBrokers
) -> Iterator[PartitionChange]:
    """The elections in partitions without a leader that a returning broker makes possible."""
    for topic_id, topic in image.topics.items():
        rules: ElectionRules | None = None
        for partition_id, partition in topic.partitions.items():
            if partition.leader == NO_LEADER and broker_id in partition.replicas:
                rules = rules or eligible.rules(image, topic.name)
                record = change((topic_id, partition_id), partition, PartitionTarget(), rules)
                if record is not None:
                    yield record


def elect_leaders(
    image: ClusterImage, request: ElectLeaders, eligible: EligibleBrokers
) -> Decision[tuple[ElectedLeader, ...]]:
    """Preferred or unclean elections, for the named partitions or for all."""
    records: list[PartitionChange] = []
    results: list[ElectedLeader] = []
    targets = dict.fromkeys(request.partitions) or {
        (topic.name, partition_id): None
        for topic in image.topics.values()
        for partition_id in topic.partitions
    }
    for name, partition_id in targets:
        topic = image.topic(name)
        partition = None if topic is None else topic.partitions.get(partition_id)
        record = None
        if topic is None or partition is None:
            error, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition"
        else:
            rules = eligible.rules(image, name)
            error, message = _problem(partition, request.election, rules)
            if error is ErrorCode.NONE:
                record = change(
                    (topic.topic_id, partition_id),
                    partition,
                    PartitionTarget(election=_ELECTIONS[request.election]),
                    rules,
                )
        if record is not None:
            records.append(record)
        # If all partitions are requested, only elections and errors are listed (KIP-460).
        if request.partitions or error is not ErrorCode.ELECTION_NOT_NEEDED:
            results.append(
                ElectedLeader(topic=name, partition_id=partition_id, error=error, message=message)
            )
    return Decision(tuple(records), tuple(results))


def begin_sweep(image: ClusterImage) -> Sweep:
    """Start a walk, in an order that is the same in every process."""
    return Sweep(tuple(sorted(image.topics)))


def sweep(
    image: ClusterImage, at: Sweep, eligible: EligibleBrokers, *, with_preferred: bool
) -> Decision[Sweep | None]:
    """One chunk of the walk: its elections, and the position of the next; None at the end.

    with_preferred: also elect preferred leaders (auto.leader.rebalance.enable). Topics created
    since the walk began wait for the next walk; deleted ones are skipped.
    """
    records: list[PartitionChange] = []
    looked_at = 0
    topic_index, partition_id = at.topic_index, at.partition_id
    while topic_index < len(at.topic_ids):
        topic = image.topics.get(at.topic_ids[topic_index])
        rules = None if topic is None else eligible.rules(image, topic.name)
        while topic is not None and rules is not None and partition_id in topic.partitions:
            if looked_at == SWEEP_PARTITIONS_MAX or len(records) == SWEEP_ELECTIONS_MAX:
                return Decision(tuple(records), Sweep(at.topic_ids, topic_index, partition_id))
            partition = topic.partitions[partition_id]
            record = None
            if partition.leader == NO_LEADER:
                record = change((topic.topic_id, partition_id), partition, PartitionTarget(), rules)
            elif with_preferred and _can_prefer(partition, rules):
                partition_target = PartitionTarget(election=Election.PREFERRED)
                record = change((topic.topic_id, partition_id), partition, partition_target, rules)
            if record is not None:
                records.append(record)
            looked_at += 1
            partition_id += 1
        topic_index, partition_id = topic_index + 1, 0
    return Decision(tuple(records), None)


_ELECTIONS = {
    ElectionType.PREFERRED: Election.PREFERRED,
    ElectionType.UNCLEAN: Election.UNCLEAN,
}


def _can_prefer(partition: PartitionImage, rules: ElectionRules) -> bool:
    preferred = partition.replicas[0]
    return (
        partition.leader != preferred
        and preferred in partition.isr
        and preferred in rules.of(partition).active
    )


def _problem(
    partition: PartitionImage, election: ElectionType, rules: ElectionRules
) -> tuple[ErrorCode, str]:
    """The reason why there is nothing to elect, with Kafka's order of checks."""
    if election is ElectionType.UNCLEAN:
        if partition.has_leader:
            return ErrorCode.ELECTION_NOT_NEEDED, f"broker {partition.leader} leads"
        if not any(replica in rules.of(partition).active for replica in partition.replicas):
            return (
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                f"none of the replicas {list(partition.replicas)} is active, or those that are lie "
                "in directories that are offline; start or repair one of them",
            )
        return ErrorCode.NONE, ""
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        return ErrorCode.ELECTION_NOT_NEEDED, f"broker {preferred} leads already"
    if not _can_prefer(partition, rules):
        return (
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"broker {preferred} is fenced or out of sync",
        )
    return ErrorCode.NONE, ""
