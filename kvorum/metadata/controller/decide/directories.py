"""Data directories of brokers, and the effect of their failures on partitions (KIP-858).

A replica in an offline directory is treated as if its broker were fenced, for its partition only.
The replica leaves the ISR unless it is the last member, and is not elected. When the directory is
online the replica can be elected again (`eligible_brokers.ElectionRules.of`, `partition_change`). A
broker with one directory reports only replicas whose logs are damaged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from kvorum.metadata.controller.decide import Decision
from kvorum.metadata.controller.decide.eligible_brokers import (
    ElectionRules,
    EligibleBrokers,
    eligible_brokers,
)
from kvorum.metadata.controller.decide.partition_change import (
    PartitionTarget,
    change,
    dropped,
    without,
)
from kvorum.metadata.controller.decide.registered import stale_broker
from kvorum.metadata.image.features import METADATA_VERSION, REASSIGNMENT_LEVEL, level_of
from kvorum.metadata.image.image import BrokerImage, ClusterImage, PartitionImage
from kvorum.metadata.image.records import (
    LOST_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerRegistrationChange,
    PartitionChange,
    Record,
)
from kvorum.metadata.requests.controller_requests import RegisterBrokerRequest
from kvorum.metadata.requests.directory_requests import (
    AssignReplicas,
    RefusedReplica,
    ReplicaDirectory,
)
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.ids import uuid_text

ASSIGNMENTS_PER_REQUEST_MAX = 10_000
"""Replicas in one AssignReplicas, whose records are one batch."""

RESERVED_IDS = 100
"""Directory ids below this number have special meanings (unassigned, lost); Kafka's number."""


def registration_problem(image: ClusterImage, request: RegisterBrokerRequest) -> Rejected | None:
    """The reason why a broker may not register with these directories, None if it may."""
    who = f"broker {request.broker_id}"
    seen: set[bytes] = set()
    for directory in request.log_dirs:
        text = uuid_text(directory) if len(directory) == 16 else directory.hex()
        if len(directory) != 16 or int.from_bytes(directory, "big") < RESERVED_IDS:
            return _unfit(f"{who}: {text} is no id of a data directory")
        if directory in seen:
            return _unfit(
                f"{who} has two data directories with the id {text}: one is a copy of the other; "
                "take one of them away"
            )
        seen.add(directory)
        for other in image.brokers.values():
            if other.broker_id != request.broker_id and directory in other.log_dirs:
                return _unfit(
                    f"{who}: the data directory {text} is broker {other.broker_id}'s; two brokers "
                    "cannot share one, nor use a copy of it"
                )
    if len(request.log_dirs) > 1 and not _records_directories(image):
        return Rejected(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{who} has {len(request.log_dirs)} data directories, which needs {METADATA_VERSION} "
            f"{REASSIGNMENT_LEVEL}; upgrade it with `kvorum features upgrade`",
        )
    return None


def registered_log_dirs(image: ClusterImage, request: RegisterBrokerRequest) -> tuple[bytes, ...]:
    """The directories to record in the registration; none if the level of metadata.version cannot
    record them."""
    return tuple(sorted(request.log_dirs)) if _records_directories(image) else ()


def after_failure(
    image: ClusterImage,
    broker: BrokerImage,
    offline: tuple[bytes, ...],
    *,
    is_unclean_default: bool = False,
) -> tuple[Record, ...]:
    """The records after a broker has reported these directories offline; none if the image has it
    already.

    The registration changes last. If the decision needs several batches, the controller may die
    after some of them; then the next heartbeat still finds the rest to be done.
    """
    failed = frozenset(offline) & frozenset(broker.log_dirs)
    if not failed:
        return ()
    eligible = eligible_brokers(image, is_unclean_default=is_unclean_default, offline_dirs=failed)
    left = tuple(d for d in broker.log_dirs if d not in failed)
    return (
        *_changes_without(image, broker.broker_id, failed, eligible),
        # A broker with no directory left exits. Until its session ends, none of its replicas may
        # count as online, as they would with an empty list.
        BrokerRegistrationChange(
            broker.broker_id, broker.broker_epoch, log_dirs=left or (LOST_DIRECTORY,)
        ),
    )


def assign_replicas(
    image: ClusterImage, request: AssignReplicas, eligible: EligibleBrokers
) -> Decision[tuple[RefusedReplica, ...] | Rejected]:
    """Record the directories of replicas; a replica in an offline directory loses leadership and
    ISR.

    The reply has the refused replicas, each with its error: UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (the broker has no replica of it) or
    INVALID_REQUEST.
    """
    stale = stale_broker(image, request.broker_id, request.broker_epoch)
    if stale is not None:
        return Decision((), stale)
    broker = image.brokers[request.broker_id]
    if len(request.replicas) > ASSIGNMENTS_PER_REQUEST_MAX:
        return Decision(
            (),
            Rejected(
                ErrorCode.INVALID_REQUEST,
                f"{len(request.replicas)} replicas in one request are over "
                f"{ASSIGNMENTS_PER_REQUEST_MAX}; send the rest in another",
            ),
        )
    records: list[Record] = []
    refused: list[RefusedReplica] = []
    seen: set[tuple[bytes, int]] = set()
    for asked in request.replicas:
        key = (asked.topic_id, asked.partition_id)
        partition = image.partition(*key)
        error = _problem(image, broker, asked, partition)
        if error is ErrorCode.NONE and key in seen:
            error = ErrorCode.INVALID_REQUEST
        if error is ErrorCode.NONE and partition is not None:
            seen.add(key)
            rules = eligible.rules(image, image.topics[asked.topic_id].name)
            record = _assigned(key, partition, broker, asked.directory_id, rules)
            if record is not None:
                records.append(record)
        if error is not ErrorCode.NONE:
            refused.append(
                RefusedReplica(
                    topic_id=asked.topic_id, partition_id=asked.partition_id, error=error
                )
            )
    if not _records_directories(image):
        records = [r for r in map(_without_directories, records) if r is not None]
    return Decision(tuple(records), tuple(refused))


def _changes_without(
    image: ClusterImage, broker_id: int, failed: frozenset[bytes], eligible: EligibleBrokers
) -> Iterator[PartitionChange]:
    for topic_id, topic in image.topics.items():
        rules: ElectionRules | None = None
        for partition_id, partition in topic.partitions.items():
            if not partition.directories or partition.directory_of(broker_id) not in failed:
                continue
            if broker_id in partition.isr or broker_id == partition.leader:
                rules = rules or eligible.rules(image, topic.name)
                record = dropped((topic_id, partition_id), partition, {broker_id}, rules)
                if record is not None:
                    yield record


def _problem(
    image: ClusterImage,
    broker: BrokerImage,
    asked: ReplicaDirectory,
    partition: PartitionImage | None,
) -> ErrorCode:
    if asked.topic_id not in image.topics:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker.broker_id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if len(asked.directory_id) != 16 or asked.directory_id == UNASSIGNED_DIRECTORY:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _assigned(
    key: tuple[bytes, int],
    partition: PartitionImage,
    broker: BrokerImage,
    directory: bytes,
    rules: ElectionRules,
) -> PartitionChange | None:
    broker_id = broker.broker_id
    before = partition.directory_of(broker_id)
    if before == directory:
        return None

    def of(replicas: tuple[int, ...]) -> tuple[bytes, ...]:
        return tuple(directory if r == broker_id else partition.directory_of(r) for r in replicas)

    # A replica that appears in another directory, or again after it was lost, may be empty: it is
    # no eligible leader replica any more. The first report of a replica's directory does not mean
    # that.
    is_lost = directory == LOST_DIRECTORY or before != UNASSIGNED_DIRECTORY
    partition_target = PartitionTarget(lost=frozenset((broker_id,)) if is_lost else frozenset())
    if not broker.has_online(directory):
        partition_target = without(partition, {broker_id}, is_lost=is_lost)
    moved = dataclasses.replace(partition, directories=of(partition.replicas))
    record = change(key, moved, partition_target, rules) or PartitionChange(*key)
    # The same record may complete a reassignment, which leaves fewer replicas.
    return dataclasses.replace(record, directories=of(record.replicas or partition.replicas))


def _without_directories(record: Record) -> Record | None:
    """The record without its directories, for a level of metadata.version that cannot record them.
    A damaged replica still loses its leadership, but may be elected again."""
    if not isinstance(record, PartitionChange):
        return record
    plain = dataclasses.replace(record, directories=None)
    empty = PartitionChange(record.topic_id, record.partition_id)
    return None if plain == empty else plain


def _records_directories(image: ClusterImage) -> bool:
    return level_of(image.features, METADATA_VERSION) >= REASSIGNMENT_LEVEL


def _unfit(message: str) -> Rejected:
    return Rejected(ErrorCode.INVALID_REGISTRATION, message)
