"""DeleteRecords at the leaders of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvorum.client.cluster.brokers import Brokers, LeaderRequest, Partition, ask_leaders, by_topic
from kvorum.runtime.errors import ErrorCode


def delete_records(
    brokers: Brokers, offsets: Mapping[Partition, int]
) -> dict[Partition, tuple[ErrorCode, int]]:
    """(error, new log start) of each partition, once all its live replicas have trimmed. offsets:
    the first that stays. Raises CommandFailed for a partition without a leader."""

    def values(partitions: list[Partition]) -> dict[str, Any]:
        return {
            "topics": [
                {
                    "name": topic,
                    "partitions": [
                        {"partition_index": number, "offset": offsets[topic, number]}
                        for number in numbers
                    ],
                }
                for topic, numbers in by_topic(partitions).items()
            ],
            "timeout": int(brokers.timeout_s * 1000),
        }

    request = LeaderRequest(
        name="delete_records",
        key=21,
        version=2,
        values=values,
        rows=lambda reply: [
            ((topic.name, row.partition_index), row.error_code, row)
            for topic in reply.topics
            for row in topic.partitions
        ],
    )
    found = ask_leaders(brokers, list(offsets), request)
    return {p: (ErrorCode(row.error_code), row.low_watermark) for p, row in found.items()}
