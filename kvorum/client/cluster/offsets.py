"""Places in partitions, and the leaders' answers about them (ListOffsets)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvorum.client.cluster.brokers import (
    Brokers,
    LeaderRequest,
    Partition,
    ask_leaders,
    by_topic,
)
from kvorum.client.connection import KafkaConnection
from kvorum.client.failures import refusal
from kvorum.client.rights import on_topic
from kvorum.runtime.errors import ErrorCode

EARLIEST, LATEST = -2, -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
CONSUMER, DEBUG_CONSUMER = -1, -2
"""Replica ids of readers. The second is answered by followers too, with their own log's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in every partition. kind: start, end, offset, or time; number: the offset, what is
    added to the start or the end, or milliseconds since 1970."""

    kind: str
    number: int = 0


START, END = Position(kind="start"), Position(kind="end")


def list_offsets(
    brokers: Brokers, timestamps: Mapping[Partition, int], *, isolation: int = READ_UNCOMMITTED
) -> dict[Partition, int]:
    """The first offset at or after each timestamp in ms, -1 if there is none; EARLIEST and LATEST
    give log start and end (the last stable offset under READ_COMMITTED). Raises CommandFailed."""

    request = LeaderRequest(
        name="list_offsets",
        key=2,
        version=7,
        values=lambda partitions: offsets_request(
            {p: timestamps[p] for p in partitions}, isolation=isolation
        ),
        rows=lambda reply: [
            ((topic.name, row.partition_index), row.error_code, row)
            for topic in reply.topics
            for row in topic.partitions
        ],
    )
    found = ask_leaders(brokers, list(timestamps), request)
    for (topic, number), row in found.items():
        if row.error_code != ErrorCode.NONE:
            right = on_topic("DESCRIBE", topic)
            raise refusal(row.error_code, None, f"{topic}-{number}", right)
    return {partition: row.offset for partition, row in found.items()}


def ends_at(leader: KafkaConnection, partitions: list[Partition]) -> dict[Partition, int]:
    """High watermarks of these partitions, without those that the broker does not lead any more.
    Raises BrokerGone."""
    values = offsets_request(dict.fromkeys(partitions, LATEST))
    reply = leader.call("list_offsets", 2, 7, values, flexible=True)
    return {
        (topic.name, row.partition_index): row.offset
        for topic in reply.topics
        for row in topic.partitions
        if row.error_code == ErrorCode.NONE
    }


def offsets_request(
    timestamps: Mapping[Partition, int],
    *,
    isolation: int = READ_UNCOMMITTED,
    replica_id: int = CONSUMER,
) -> dict[str, Any]:
    """The fields of a ListOffsets (v7)."""
    return {
        "replica_id": replica_id,
        "isolation_level": isolation,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": number,
                        "current_leader_epoch": -1,
                        "timestamp": timestamps[topic, number],
                    }
                    for number in numbers
                ],
            }
            for topic, numbers in by_topic(list(timestamps)).items()
        ],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Log start and end of a partition."""

    start: int
    end: int


def bounds_of(
    brokers: Brokers, partitions: list[Partition], *, isolation: int = READ_UNCOMMITTED
) -> dict[Partition, Bounds]:
    """Log start and end of each partition. Raises CommandFailed."""
    starts = list_offsets(brokers, dict.fromkeys(partitions, EARLIEST))
    ends = list_offsets(brokers, dict.fromkeys(partitions, LATEST), isolation=isolation)
    return {p: Bounds(start=starts[p], end=ends[p]) for p in partitions}


def resolve(
    brokers: Brokers, position: Position, bounds: Mapping[Partition, Bounds]
) -> dict[Partition, int]:
    """The offset of a position in each partition; +N and -N stay within the bounds, an offset may
    lie outside. A time after the last record is the end. Raises CommandFailed."""
    if position.kind == "time":
        found = list_offsets(brokers, dict.fromkeys(bounds, position.number))
        return {p: bounds[p].end if at < 0 else at for p, at in found.items()}
    resolved = {}
    for partition, of_log in bounds.items():
        match position.kind:
            case "offset":
                resolved[partition] = position.number
            case "start":
                resolved[partition] = min(of_log.start + position.number, of_log.end)
            case _:
                resolved[partition] = max(of_log.end + position.number, of_log.start)
    return resolved
