"""Fetch requests of a reader without a session or a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvorum.client.cluster.brokers import Partition, by_topic

FETCH_KEY, FETCH_VERSION = 1, 12


def fetch_request(places: Mapping[Partition, tuple[int, int]], *, bytes_max: int) -> dict[str, Any]:
    """The fields of a Fetch (v12) that is answered at once. places: offset, and last fetched epoch
    (-1 for none), of each partition. bytes_max: of the answer, and of each partition in it."""
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": bytes_max,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": number,
                        "current_leader_epoch": -1,
                        "fetch_offset": places[topic, number][0],
                        "last_fetched_epoch": places[topic, number][1],
                        "log_start_offset": -1,
                        "partition_max_bytes": bytes_max,
                    }
                    for number in numbers
                ],
            }
            for topic, numbers in by_topic(list(places)).items()
        ],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
