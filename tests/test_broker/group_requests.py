"""Requests of classic groups, field by field, for a raw client."""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.registry import SERVED
from kvorum.runtime.errors import ErrorCode
from tests.test_broker.raw_client import RawClient
from tests.test_groups.world import subscription


def find(client: RawClient, group_id: str) -> Any:
    values = {"key_type": 0, "coordinator_keys": [group_id]}
    return client.call("find_coordinator", 4, values).coordinators[0]


def group_led_by(client: RawClient, broker_id: int, prefix: str) -> str:
    return next(
        name
        for name in (f"{prefix}-{i}" for i in range(1000))
        if find(client, name).node_id == broker_id
    )


def versions(name: str) -> list[int]:
    api = next(api for key, _, _ in SERVED.advertised() if (api := SERVED.get(key)).name == name)
    return list(range(api.min_version, api.max_version + 1))


def join_values(group_id: str, member_id: str = "", **more: Any) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription("orders")}],
        "reason": None,
        **more,
    }


def join(client: RawClient, group_id: str, version: int = 9) -> tuple[str, int]:
    """Join as the only member, and so as leader: (member id, generation)."""
    answer = client.call("join_group", version, join_values(group_id))
    if version >= 4:
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        answer = client.call("join_group", version, join_values(group_id, answer.member_id))
    assert answer.error_code == 0
    assert answer.leader == answer.member_id
    return answer.member_id, answer.generation_id


def sync_values(group_id: str, member_id: str, generation_id: int, **more: Any) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "generation_id": generation_id,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": member_id, "assignment": b"all"}],
        **more,
    }


def commit_values(group_id: str, rows: dict[str, dict[int, int]], **more: Any) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time": -1,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": partition,
                        "committed_offset": offset,
                        "committed_leader_epoch": 3,
                        "commit_timestamp": -1,
                        "committed_metadata": "m",
                    }
                    for partition, offset in partitions.items()
                ],
            }
            for topic, partitions in rows.items()
        ],
        **more,
    }


def fetch(client: RawClient, group_id: str, version: int = 9, topics: Any = ()) -> Any:
    rows = (
        None
        if topics is None
        else [{"name": topic, "partition_indexes": list(found)} for topic, found in topics]
    )
    if version >= 8:
        groups = [{"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": rows}]
        return client.call(
            "offset_fetch", version, {"groups": groups, "require_stable": True}
        ).groups[0]
    values = {"group_id": group_id, "topics": rows, "require_stable": True}
    return client.call("offset_fetch", version, values)


def offsets_of(answer: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, row.partition_index): row.committed_offset
        for topic in answer.topics
        for row in topic.partitions
    }
