"""The members of a Streams group, from the answer of StreamsGroupDescribe. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kvorum.client.failures import Row

STREAMS_TYPE = "streams"


def topics_read(group: Any) -> set[str]:
    """Names of the topics that the group's tasks read."""
    return {name for names in _inputs(group).values() for name in names}


def _inputs(group: Any) -> dict[str, list[str]]:
    """The topics that each subtopology reads."""
    parts = () if group.topology is None else group.topology.subtopologies or ()
    return {
        part.subtopology_id: [
            *part.source_topics,
            *(topic.name for topic in part.repartition_source_topics),
        ]
        for part in parts
    }


def streams_members(group: Any, counts: Mapping[str, int]) -> list[Row]:
    """A row for each member. counts: partitions of the topics that exist."""
    inputs = _inputs(group)
    return [
        {
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "member_epoch": member.member_epoch,
            "partitions": [
                f"{topic}-{partition}"
                for row in member.assignment.active_tasks
                for topic in inputs.get(row.subtopology_id, ())
                for partition in row.partitions
                if partition < counts.get(topic, 0)
            ],
            "active_tasks": _names(member.assignment.active_tasks),
            "standby_tasks": _names(member.assignment.standby_tasks),
            "process_id": member.process_id,
        }
        for member in group.members
    ]


def _names(rows: Iterable[Any]) -> list[str]:
    """Tasks as Kafka Streams writes them: `0_1`."""
    return [f"{row.subtopology_id}_{partition}" for row in rows for partition in row.partitions]
