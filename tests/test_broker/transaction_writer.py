"""Transactions written into a leader's log without a coordinator, and what consumers see."""

from __future__ import annotations

from kvorum.broker.partition.replica import Replica
from kvorum.runtime.clock import monotonic_ms
from kvorum.storage.format.batch import build_batch
from kvorum.storage.format.markers import build_marker
from tests.polling import eventually
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient


class Writer:
    """Appends to the leader of partition 0 on broker 1, on the loop of the harness."""

    def __init__(self, harness: Harness, topic: str) -> None:
        self.harness = harness
        self.replica: Replica = harness.cluster.replica(1, topic)

    def append(self, batch: bytearray) -> int:
        """Append a batch; its base offset. The high watermark rises as after a Produce request."""

        def work() -> int:
            replica = self.replica
            done = replica.log.append_as_leader(batch, leader_epoch=0, now_ms=1000)
            if not replica.has_identity:
                replica.write_identity()
            replica._on_appended(done.last_offset + 1, monotonic_ms())
            return done.base_offset

        return self.harness.call(work)

    def put(self, value: bytes, producer_id: int, sequence: int = 0) -> int:
        """One record of the producer's open transaction; its offset."""
        fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        return self.append(
            build_batch([(None, value)], timestamp_ms=1000, is_transactional=True, **fields)
        )

    def end(self, producer_id: int, *, is_commit: bool) -> int:
        """The marker that ends the transaction; its offset."""
        return self.append(
            build_marker(
                is_commit=is_commit,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp_ms=1000,
            )
        )

    def wait_replicated(self) -> None:
        """Return when the high watermark of both brokers has reached the end of the log."""
        end_offset = self.replica.log.end_offset
        for broker_id in (1, 2):
            core = self.harness.cluster.replica(broker_id, self.replica.core.topic).core
            eventually(lambda c=core: c.high_watermark == end_offset, "it is replicated")


def offsets(client: RawClient, topic: str, isolation_level: int) -> int:
    """The latest offset of partition 0 for a consumer of this isolation level."""
    partition = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    answer = client.call("list_offsets", 7, {
        "replica_id": -1, "isolation_level": isolation_level,
        "topics": [{"name": topic, "partitions": [partition]}],
    })  # fmt: skip
    return answer.topics[0].partitions[0].offset
