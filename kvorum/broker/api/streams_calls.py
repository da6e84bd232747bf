"""The shared part of the APIs of Streams groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.groups.streams.tasks import Task, by_subtopology
from kvorum.broker.groups.streams.topology import (
    CopartitionGroup,
    InternalTopic,
    Subtopology,
    Topology,
)
from kvorum.metadata.image.features import STREAMS_VERSION, level_of
from kvorum.runtime.errors import ErrorCode, Rejected


def feature_refusal(context: RequestContext) -> Rejected | None:
    """The error of every API of Streams groups while streams.version is 0."""
    if level_of(context.services.image().features, STREAMS_VERSION) >= 1:
        return None
    text = (
        "Streams groups are off: streams.version is 0; switch them on with "
        "`kvorum features upgrade --feature streams.version=1`"
    )
    return Rejected(ErrorCode.UNSUPPORTED_VERSION, text)


def task_rows(tasks: Iterable[Task]) -> list[dict[str, Any]]:
    return [
        {"subtopology_id": subtopology_id, "partitions": partitions}
        for subtopology_id, partitions in by_subtopology(tasks)
    ]


def topology_of(told: Any) -> Topology:
    """The topology of a request, as the coordinator has it."""
    parts = [
        Subtopology(
            subtopology_id=part.subtopology_id,
            source_topics=tuple(part.source_topics),
            source_topic_regex=tuple(part.source_topic_regex),
            state_changelog_topics=_internal_topics(part.state_changelog_topics),
            repartition_sink_topics=tuple(part.repartition_sink_topics),
            repartition_source_topics=_internal_topics(part.repartition_source_topics),
            copartition_groups=tuple(
                CopartitionGroup(
                    tuple(group.source_topics),
                    tuple(group.source_topic_regex),
                    tuple(group.repartition_source_topics),
                )
                for group in part.copartition_groups
            ),
        )
        for part in told.subtopologies
    ]
    parts.sort(key=lambda part: part.subtopology_id)
    return Topology(epoch=told.epoch, subtopologies=tuple(parts))


def _internal_topics(topics: Iterable[Any]) -> tuple[InternalTopic, ...]:
    return tuple(
        InternalTopic(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            tuple((config.key, config.value) for config in topic.topic_configs),
        )
        for topic in topics
    )
