"""Creation and deletion of topics (KIP-631)."""

from __future__ import annotations

import re

from kvorum.metadata.configs.config_keys import topic_config_problem, topic_configs_conflict
from kvorum.metadata.controller.decide import RECORDS_PER_BATCH_MAX, Context, Decision
from kvorum.metadata.controller.decide.cordons import cordon_problem, is_cordoned
from kvorum.metadata.controller.decide.placement import UsableBroker, place
from kvorum.metadata.image.image import RESOURCE_TOPIC, ClusterImage, TopicImage
from kvorum.metadata.image.records import Config, Partition, Record, RemoveTopic, Topic
from kvorum.metadata.requests.controller_requests import (
    CreatedTopic,
    CreateTopics,
    DeletedTopic,
    DeleteTopics,
    NewTopic,
    TopicReference,
)
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.ids import new_uuid

TOPIC_NAME_LENGTH_MAX = 249
PARTITIONS_MAX = 40_000
"""Partitions that a topic may be created with. They are one batch of the log, with its configs."""

METADATA_TOPIC = "__cluster_metadata"
"""The name of the metadata log, whose folder is beside the replicas' folders."""

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def create_topics(
    image: ClusterImage, request: CreateTopics, context: Context
) -> Decision[tuple[CreatedTopic, ...]]:
    """Create each topic for which it is possible; each topic is refused on its own."""
    records: list[Record] = []
    results: list[CreatedTopic] = []
    # `.` and `_` are the same in metric names; Kafka refuses names that differ only in them. Only a
    # request with such a name walks over all names.
    collisions: dict[str, str] = {}
    if any(_collides(topic.name) for topic in request.topics):
        collisions = {_collision_key(name): name for name in image.topic_ids if _collides(name)}
    new_names: set[str] = set()
    for topic in request.topics:
        outcome = _name_problem(image, topic.name, collisions)
        if outcome is None and topic.name in new_names:
            outcome = Rejected(ErrorCode.INVALID_REQUEST, "topic stands twice in the request")
        made = outcome if outcome is not None else _create_one(image, topic, context)
        if isinstance(made, Rejected):
            results.append(CreatedTopic(name=topic.name, error=made.code, message=made.message))
            continue
        new_names.add(topic.name)
        if _collides(topic.name):
            collisions[_collision_key(topic.name)] = topic.name
        topic_records, result = made
        if len(records) + len(topic_records) > RECORDS_PER_BATCH_MAX:
            message = f"more than {RECORDS_PER_BATCH_MAX} partitions in one request"
            results.append(
                CreatedTopic(name=topic.name, error=ErrorCode.POLICY_VIOLATION, message=message)
            )
            continue
        if not request.validate_only:
            records.extend(topic_records)
        results.append(result)
    return Decision(tuple(records), tuple(results))


def delete_topics(
    image: ClusterImage, request: DeleteTopics, *, is_enabled: bool = True
) -> Decision[tuple[DeletedTopic, ...]]:
    """Delete each topic that exists, by name or by id. is_enabled: delete.topic.enable of this
    controller; if False, no topic is deleted."""
    if not is_enabled:
        return Decision(
            (),
            tuple(
                DeletedTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    error=ErrorCode.TOPIC_DELETION_DISABLED,
                    message="the active controller has delete.topic.enable=false",
                )
                for topic in request.topics
            ),
        )
    records: list[Record] = []
    results: list[DeletedTopic] = []
    gone: set[bytes] = set()
    for reference in request.topics:
        topic = _find(image, reference)
        if topic is None or topic.topic_id in gone:
            by_name = bool(reference.name)
            results.append(
                DeletedTopic(
                    name=reference.name,
                    topic_id=reference.topic_id,
                    error=(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        if by_name
                        else ErrorCode.UNKNOWN_TOPIC_ID
                    ),
                    message="no such topic",
                )
            )
            continue
        gone.add(topic.topic_id)
        records.append(RemoveTopic(topic.topic_id))
        results.append(DeletedTopic(name=topic.name, topic_id=topic.topic_id))
    return Decision(tuple(records), tuple(results))


def _find(image: ClusterImage, reference: TopicReference) -> TopicImage | None:
    if reference.name:
        return image.topic(reference.name)
    return image.topics.get(reference.topic_id)


def _create_one(
    image: ClusterImage, topic: NewTopic, context: Context
) -> tuple[list[Record], CreatedTopic] | Rejected:
    for name, value in topic.configs:
        problem = topic_config_problem(name, value)
        if problem is not None:
            return problem
    conflict = topic_configs_conflict(dict(topic.configs))
    if conflict is not None:
        return conflict
    placements = _placements(image, topic, context)
    if isinstance(placements, Rejected):
        return placements
    topic_id = new_uuid(context.rng)
    while topic_id in image.topics:
        topic_id = new_uuid(context.rng)
    records: list[Record] = [Topic(topic.name, topic_id)]
    records += [Config(RESOURCE_TOPIC, topic.name, name, value) for name, value in topic.configs]
    active = set(image.active_broker_ids())
    for partition_id, replicas in enumerate(placements):
        isr = tuple(replica for replica in replicas if replica in active)
        if not isr:
            return Rejected(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"all replicas {list(replicas)} of partition {partition_id} are fenced",
            )
        records.append(Partition(topic_id, partition_id, replicas, isr, isr[0]))
    result = CreatedTopic(
        name=topic.name,
        topic_id=topic_id,
        num_partitions=len(placements),
        replication_factor=len(placements[0]),
    )
    return records, result


def _placements(
    image: ClusterImage, topic: NewTopic, context: Context
) -> list[tuple[int, ...]] | Rejected:
    if topic.assignments:
        if topic.num_partitions != -1 or topic.replication_factor != -1:
            return Rejected(
                ErrorCode.INVALID_REQUEST,
                "the request has assignments, so its partition count and its replication "
                "factor must both be -1",
            )
        return assignments_by_hand(image, topic.assignments)
    count = topic.num_partitions
    if count == -1:
        count = context.default_num_partitions
    if count < 1:
        return Rejected(
            ErrorCode.INVALID_PARTITIONS, f"number of partitions {count} must be 1 or more"
        )
    if count > PARTITIONS_MAX:
        return Rejected(
            ErrorCode.POLICY_VIOLATION,
            f"number of partitions {count} is over {PARTITIONS_MAX}; create the topic with fewer, "
            "and add others later",
        )
    factor = topic.replication_factor
    if factor == -1:
        factor = context.default_replication_factor
    return place(
        placeable_brokers(image),
        partition_count=count,
        replication_factor=factor,
        rng=context.rng,
    )


def placeable_brokers(image: ClusterImage) -> list[UsableBroker]:
    """The brokers that new replicas may be placed on: all but those that are shutting down, and
    those that have cordoned all their directories.

    A broker that has ended is fenced, also after a controlled shutdown, of which its registration
    keeps the mark. It gets replicas as any fenced broker does, or a planned stop of one of three
    brokers would stop the creation of topics. The host of a broker's client listener stands for its
    machine.
    """
    return [
        UsableBroker(broker.broker_id, broker.rack, broker.is_active, broker.endpoint.host)
        for broker in image.brokers.values()
        if broker.is_fenced or not broker.in_controlled_shutdown
        if not is_cordoned(image, broker.broker_id)
    ]


def assignments_by_hand(
    image: ClusterImage,
    assignments: tuple[tuple[int, ...], ...],
    *,
    first_id: int = 0,
    size: int | None = None,
) -> list[tuple[int, ...]] | Rejected:
    """Check manual assignments for partitions from `first_id` on.

    size: number of replicas of each; None takes it from the first.
    """
    size = len(assignments[0]) if size is None else size
    for partition_id, replicas in enumerate(assignments, start=first_id):
        problem = ""
        if not replicas or len(set(replicas)) != len(replicas):
            problem = "is empty or names a broker twice"
        elif len(replicas) != size:
            problem = f"has {len(replicas)} replicas, partition 0 has {size}"
        elif unknown := [r for r in replicas if r not in image.brokers]:
            problem = f"names brokers that are not registered: {unknown}"
        elif cordoned := [r for r in replicas if is_cordoned(image, r)]:
            problem = cordon_problem(cordoned)
        if problem:
            return Rejected(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"assignment {list(replicas)} of partition {partition_id} {problem}",
            )
    return list(assignments)


def _name_problem(image: ClusterImage, name: str, collisions: dict[str, str]) -> Rejected | None:
    if name in image.topic_ids:
        return Rejected(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
    if name == METADATA_TOPIC:
        return Rejected(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited."
        )
    code = ErrorCode.INVALID_TOPIC_EXCEPTION
    if not name:
        return Rejected(code, "a topic name may not be empty")
    if name in (".", ".."):
        return Rejected(code, f"a topic may not be called {name!r}")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return Rejected(
            code, f"topic name of {len(name)} characters is over {TOPIC_NAME_LENGTH_MAX}"
        )
    if not _LEGAL_NAME.fullmatch(name):
        return Rejected(code, f"topic name {name!r} holds characters other than a-z A-Z 0-9 . _ -")
    if _collides(name) and (other := collisions.get(_collision_key(name))):
        return Rejected(code, f"topic name {name!r} collides with existing topic {other!r}")
    return None


def _collides(name: str) -> bool:
    return "." in name or "_" in name


def _collision_key(name: str) -> str:
    return name.replace(".", "_")
