"""The partitions that the members' endpoints serve, for interactive queries (KIP-1071). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from kvorum.broker.groups.streams.configuring import ConfiguredTopology
from kvorum.broker.groups.streams.group import StreamsGroup
from kvorum.broker.groups.streams.requests import EndpointPartitions
from kvorum.broker.groups.streams.tasks import Task, by_subtopology
from kvorum.metadata.image.image import ClusterImage


def all_endpoints(
    group: StreamsGroup, image: ClusterImage, asking: str
) -> tuple[EndpointPartitions, ...]:
    """One entry for each member with an endpoint: the inputs of its tasks. Several members of an
    instance have the same endpoint. The member `asking` comes last, as in Kafka."""
    configured = group.configured
    if configured is None:
        return ()
    members = sorted(group.members.values(), key=lambda member: member.member_id == asking)
    return tuple(
        EndpointPartitions(
            endpoint=member.user_endpoint,
            active=_partitions(member.assigned.active, configured, image),
            standby=_partitions(
                member.assigned.standby | member.assigned.warmup, configured, image
            ),
        )
        for member in members
        if member.user_endpoint is not None
    )


def _partitions(
    tasks: Iterable[Task], configured: ConfiguredTopology, image: ClusterImage
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    rows = []
    for subtopology_id, partitions in by_subtopology(tasks):
        part = configured.subtopologies.get(subtopology_id)
        for name in () if part is None else part.inputs:
            topic = image.topic(name)
            count = 0 if topic is None else len(topic.partitions)
            there = tuple(partition for partition in partitions if partition < count)
            if there:
                rows.append((name, there))
    return tuple(rows)
