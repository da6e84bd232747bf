"""Members of share groups on two brokers, request by request."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.polling import eventually
from tests.test_broker.harness import QUICK, Harness
from tests.test_broker.raw_client import RawClient, batch, produce_values

CONFIG = dataclasses.replace(
    QUICK,
    offsets_topic_replication_factor=2,
    offsets_topic_num_partitions=4,
    share_coordinator_state_topic_replication_factor=2,
    share_coordinator_state_topic_num_partitions=4,
    group_share_heartbeat_interval_ms=700,
    group_share_max_size=2,
    group_share_max_share_sessions=3,
    group_share_record_lock_duration_ms=1_000,
)
RESOURCE_GROUP = 32


def beat(client: RawClient, group_id: str, member_id: str, epoch: int, **more: Any) -> Any:
    values = {"group_id": group_id, "member_id": member_id, "member_epoch": epoch, **more}
    return client.call("share_group_heartbeat", 1, values)


def joined(client: RawClient, group_id: str, member_id: str, topic: str) -> Any:
    """The member's heartbeat that brings it partitions."""
    answer = beat(client, group_id, member_id, 0, subscribed_topic_names=[topic])
    assert answer.error_code == 0, answer

    def assigned() -> Any:
        nonlocal answer
        if answer.assignment is None or not answer.assignment.topic_partitions:
            answer = beat(client, group_id, member_id, answer.member_epoch)
            return False
        return True

    eventually(assigned, "the member has partitions")
    return answer


def id_of(harness: Harness, topic: str) -> bytes:
    found = harness.cluster.controller.image.topic(topic)
    assert found is not None
    return found.topic_id


class Member:
    """A share session of a member with broker 1."""

    def __init__(self, client: RawClient, group_id: str, member_id: str, topic_id: bytes) -> None:
        self.client = client
        self.group_id = group_id
        self.member_id = member_id
        self.topic_id = topic_id
        self.epoch = 0

    def fetch(self, acks: Any = (), **more: Any) -> Any:
        """The answer to a ShareFetch. acks: (first, last, type or types)."""
        self.send_fetch(acks, **more)
        return self.client.answer("share_fetch", 2)

    def send_fetch(self, acks: Any = (), **more: Any) -> None:
        values = {
            **self._session(acks),
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "share_acquire_mode": 0,
            "forgotten_topics_data": (),
            **more,
        }
        self.epoch = values["share_session_epoch"] + 1
        self.client.send("share_fetch", 2, values)

    def acknowledge(self, acks: Any, **more: Any) -> Any:
        self.send_acknowledge(acks, **more)
        return self.client.answer("share_acknowledge", 2)

    def send_acknowledge(self, acks: Any, **more: Any) -> None:
        values = {**self._session(acks), **more}
        self.epoch = values["share_session_epoch"] + 1
        self.client.send("share_acknowledge", 2, values)

    def _session(self, acks: Any) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "share_session_epoch": self.epoch,
            "is_renew_ack": False,
            "topics": self.topics(acks),
        }

    def topics(self, acks: Any) -> Any:
        rows = [
            {
                "first_offset": first,
                "last_offset": last,
                "acknowledge_types": kind if isinstance(kind, tuple) else (kind,),
            }
            for first, last, kind in acks
        ]
        partition = {"partition_index": 0, "acknowledgement_batches": rows}
        return [{"topic_id": self.topic_id, "partitions": [partition]}]

    def take(self, **more: Any) -> list[tuple[int, int, int]]:
        """The acquired records, once there are some."""
        found: list[tuple[int, int, int]] = []

        def some() -> bool:
            answer = self.fetch(max_wait=200, **more)
            assert answer.error_code == 0, answer
            found.extend(acquired(answer))
            return bool(found)

        eventually(some, "records are acquired")
        return found


def row_of(answer: Any) -> Any:
    ((row,),) = [topic.partitions for topic in answer.responses]
    return row


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    rows = [row for topic in answer.responses for row in topic.partitions]
    return [
        (r.first_offset, r.last_offset, r.delivery_count)
        for row in rows
        for r in row.acquired_records
    ]


def produce(client: RawClient, topic: str, count: int = 10) -> None:
    answer = client.call("produce", 7, produce_values(topic, batch(count)))
    assert answer.responses[0].partition_responses[0].error_code == 0
