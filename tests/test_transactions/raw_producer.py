"""A transactional producer by hand, against two brokers: one leads `t`, one coordinates."""

from __future__ import annotations

from typing import Any

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import build_batch
from tests.polling import eventually
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient, produce_values

OLD, NEW = 11, 12
"""Produce versions: with a client that adds its partitions itself, and with one that does not."""


class Client:
    """A transactional producer by raw requests. version: of Produce, from which the versions of the
    other requests follow."""

    def __init__(self, harness: Harness, version: int, transactional_id: str = "x") -> None:
        self.harness = harness
        self.version = version
        self.id = transactional_id
        self.leader = RawClient(harness.cluster.brokers[1].port)
        self.coordinator = RawClient(harness.cluster.brokers[2].port)
        self.producer_id = self.epoch = -1
        self.sequence = {0: 0, 1: 0}

    def close(self) -> None:
        self.leader.close()
        self.coordinator.close()

    def until_free(self, name: str, version: int, values: dict[str, Any]) -> Any:
        """Repeat the request while the last transaction is not complete; its answer."""
        answers: list[Any] = []

        def is_free() -> bool:
            answers[:] = [self.coordinator.call(name, version, values)]
            code = answers[0].error_code
            return code not in (
                ErrorCode.CONCURRENT_TRANSACTIONS,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
            )

        eventually(is_free, f"{name} is answered")
        return answers[0]

    def init(self, *, goes_on: bool = False) -> int:
        answer = self.until_free("init_producer_id", 4, {
            "transactional_id": self.id, "transaction_timeout": 60_000,
            "producer_id": self.producer_id if goes_on else -1,
            "producer_epoch": self.epoch if goes_on else -1,
        })  # fmt: skip
        if answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequence = {0: 0, 1: 0}
        return int(answer.error_code)

    def add(self, partition: int = 0) -> int:
        answer = self.coordinator.call("add_partitions_to_txn", 3, {
            "v3_and_below_transactional_id": self.id,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": "t", "partitions": [partition]}],
        })  # fmt: skip
        (row,) = answer.results_by_topic_v3_and_below[0].results_by_partition
        return int(row.partition_error_code)

    def produce_later(
        self, value: str, partition: int = 0, *, sequence: int | None = None, **changes: Any
    ) -> None:
        """Send without waiting for the answer."""
        if sequence is None:
            sequence = self.sequence[partition]
        fields: dict[str, Any] = {
            "producer_id": self.producer_id, "producer_epoch": self.epoch,
            "is_transactional": True, **changes,
        }  # fmt: skip
        batch = build_batch(
            [(None, value.encode())], timestamp_ms=1000, base_sequence=sequence, **fields
        )
        self.sequence[partition] = sequence + 1
        values = produce_values("t", bytes(batch), partition=partition)
        values["transactional_id"] = self.id
        self.leader.send("produce", self.version, values)

    def produced(self) -> int:
        row = self.leader.answer("produce", self.version).responses[0].partition_responses[0]
        return int(row.error_code)

    def produce(self, value: str, partition: int = 0, **changes: Any) -> int:
        self.produce_later(value, partition, **changes)
        return self.produced()

    def end(self, *, is_commit: bool = True) -> int:
        version = 5 if self.version >= NEW else 3
        answer = self.until_free("end_txn", version, {
            "transactional_id": self.id, "producer_id": self.producer_id,
            "producer_epoch": self.epoch, "committed": is_commit,
        })  # fmt: skip
        if version == 5 and answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequence = {0: 0, 1: 0}
        return int(answer.error_code)

    def mark(self, *, is_commit: bool, coordinator_epoch: int = 0, version: int = 1) -> int:
        """A marker by hand, as a coordinator or a repair tool sends it."""
        answer = self.leader.call("write_txn_markers", version, {
            "markers": [{
                "producer_id": self.producer_id, "producer_epoch": self.epoch,
                "transaction_result": is_commit, "coordinator_epoch": coordinator_epoch,
                "topics": [{"name": "t", "partition_indexes": [0]}], "transaction_version": 2,
            }]
        })  # fmt: skip
        return int(answer.markers[0].topics[0].partitions[0].error_code)


def open_at(harness: Harness, partition: int = 0) -> list[int]:
    """First offsets of the transactions that are open in a partition."""
    return harness.call(
        lambda: list(harness.cluster.replica(1, "t", partition).log.producers.ongoing)
    )


def at_rest(harness: Harness) -> None:
    """Wait until the markers of all ended transactions are written."""
    eventually(lambda: not open_at(harness) and not open_at(harness, 1), "nothing is open")


def describe(client: Client) -> Any:
    answer = client.coordinator.call("describe_transactions", 0, {"transactional_ids": [client.id]})
    return answer.transaction_states[0]


def state_of(client: Client) -> str:
    return str(describe(client).transaction_state)


CONFIG = BrokerConfig(
    offsets_topic_num_partitions=4,
    offsets_topic_replication_factor=2,
    transaction_state_log_num_partitions=4,
    transaction_state_log_min_isr=1,
    replica_fetch_wait_max_ms=50,
    transaction_abort_timed_out_transaction_cleanup_interval_ms=100,
)
