"""What partitions' leaders let in, byte by byte: clients with and without KIP-890."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.transactions import marking
from runtime.errors import ErrorCode
from storage.batch import build_batch
from tests.test_broker.harness import Harness, wait_until
from tests.test_broker.raw_client import RawClient, produce_values
from tests.test_transactions.test_clients import CONFIG

OLD, NEW = 11, 12
"""Produce versions: with a client that adds its partitions itself, and with one that does not."""


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path, count=2, config=CONFIG)
    harness.call(lambda: harness.cluster.controller.create("t", [(1, 2), (1, 2)]))
    topic = "__transaction_state"
    # Led by the other broker, so that the two have to talk.
    harness.call(lambda: harness.cluster.controller.create(topic, [(2, 1)]))
    yield harness
    harness.close()
    assert not harness.failures, harness.failures


class Client:
    """A transactional producer by hand. version: of Produce; the rest follows from it."""

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
        """Ask again while markers are being written."""
        answers: list[Any] = []

        def is_free() -> bool:
            answers[:] = [self.coordinator.call(name, version, values)]
            code = answers[0].error_code
            return code not in (
                ErrorCode.CONCURRENT_TRANSACTIONS,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
            )

        wait_until(is_free, f"{name} is answered")
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


@pytest.fixture(params=[OLD, NEW])
def client(harness: Harness, request: pytest.FixtureRequest) -> Iterator[Client]:
    made = Client(harness, request.param)
    assert made.init() == 0
    yield made
    made.close()


@pytest.fixture
def old(harness: Harness) -> Iterator[Client]:
    made = Client(harness, OLD)
    assert made.init() == 0
    yield made
    made.close()


@pytest.fixture
def new(harness: Harness) -> Iterator[Client]:
    made = Client(harness, NEW)
    assert made.init() == 0
    yield made
    made.close()


def open_at(harness: Harness, partition: int = 0) -> list[int]:
    """First offsets of the transactions that are open in a partition."""
    return harness.call(
        lambda: list(harness.cluster.replica(1, "t", partition).log.producers.ongoing)
    )


def at_rest(harness: Harness) -> None:
    """Wait until the markers of what was ended are written."""
    wait_until(lambda: not open_at(harness) and not open_at(harness, 1), "nothing is open")


def describe(client: Client) -> Any:
    answer = client.coordinator.call("describe_transactions", 0, {"transactional_ids": [client.id]})
    return answer.transaction_states[0]


def state_of(client: Client) -> str:
    return str(describe(client).transaction_state)


# --- letting in -----------------------------------------------------------------------------------


def test_a_new_client_never_adds_a_partition_itself(harness: Harness, new: Client) -> None:
    assert new.produce("a") == 0
    assert new.produce("b", 1) == 0
    assert open_at(harness) == [0]
    assert [(t.topic, list(t.partitions)) for t in describe(new).topics] == [("t", [0, 1])]
    assert new.end() == 0
    at_rest(harness)


def test_an_older_client_must_have_added_the_partition(harness: Harness, old: Client) -> None:
    assert old.produce("a") == ErrorCode.TRANSACTION_ABORTABLE
    assert open_at(harness) == []
    assert old.add() == 0
    assert old.produce("a", sequence=0) == 0
    assert open_at(harness) == [0]


def test_before_version_11_the_refusal_is_invalid_txn_state(harness: Harness, old: Client) -> None:
    old.version = 10
    assert old.produce("a") == ErrorCode.INVALID_TXN_STATE


def test_batches_sent_at_once_are_let_in_in_their_order(harness: Harness, client: Client) -> None:
    if client.version < NEW:
        assert client.add() == 0
    for number in range(5):
        client.produce_later(f"v{number}")
    assert [client.produced() for _ in range(5)] == [0] * 5
    assert harness.call(lambda: harness.cluster.replica(1, "t").log.end_offset) == 5


def test_a_batch_of_the_last_transaction_does_not_slip_in_behind_its_marker(
    harness: Harness, client: Client
) -> None:
    if client.version < NEW:
        client.add()
    assert client.produce("a") == 0
    late = {"producer_id": client.producer_id, "producer_epoch": client.epoch}
    assert client.end(is_commit=False) == 0
    at_rest(harness)
    assert client.produce("late", sequence=1, **late) in (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_ABORTABLE,
    )
    assert open_at(harness) == []


def test_a_marker_between_verdict_and_append_keeps_the_batch_out(
    harness: Harness, old: Client
) -> None:
    old.add()
    # The coordinator's verdict is held back until the marker is here.
    coordinators = harness.cluster.brokers[1].server.services.transaction_driver.coordinators
    original = coordinators._ask
    marked: list[int] = []

    async def ask_and_wait(body: Any) -> Any:
        verdict = await original(body)
        marked.append(await asyncio.to_thread(other.mark, is_commit=False))
        return verdict

    other = Client(harness, OLD)
    other.producer_id, other.epoch = old.producer_id, old.epoch
    coordinators._ask = ask_and_wait
    assert old.produce("a") == ErrorCode.INVALID_TXN_STATE
    coordinators._ask = original
    other.close()
    assert marked == [0]
    assert open_at(harness) == []


def test_a_fenced_producer_writes_nothing(harness: Harness, client: Client) -> None:
    second = Client(harness, client.version)
    assert second.init() == 0
    if client.version < NEW:
        assert client.add() == ErrorCode.PRODUCER_FENCED
    assert client.produce("a") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.end() == ErrorCode.PRODUCER_FENCED
    second.close()


def test_outside_of_its_open_transaction_a_producer_may_not_write(
    harness: Harness, client: Client
) -> None:
    if client.version < NEW:
        client.add()
    assert client.produce("a") == 0
    assert client.produce("b", is_transactional=False) == ErrorCode.INVALID_TXN_STATE


def test_a_transactional_batch_without_transactional_id_is_refused(
    harness: Harness, client: Client
) -> None:
    batch = build_batch(
        [(None, b"a")], timestamp_ms=1000, producer_id=client.producer_id,
        producer_epoch=client.epoch, base_sequence=0, is_transactional=True,
    )  # fmt: skip
    answer = client.leader.call("produce", 9, produce_values("t", bytes(batch)))
    row = answer.responses[0].partition_responses[0]
    assert row.error_code == ErrorCode.INVALID_TXN_STATE


def test_a_batch_that_is_here_already_is_answered_without_asking_anybody(
    harness: Harness, client: Client
) -> None:
    if client.version < NEW:
        client.add()
    assert client.produce("a") == 0
    before = harness.call(lambda: harness.cluster.replica(1, "t").log.end_offset)
    assert client.produce("a", sequence=0) == 0
    assert harness.call(lambda: harness.cluster.replica(1, "t").log.end_offset) == before


def test_without_a_coordinator_the_client_is_told_to_try_again(
    harness: Harness, client: Client
) -> None:
    harness.call(lambda: harness.cluster.unreachable.add((1, 2)))
    assert client.produce("a") == ErrorCode.NOT_ENOUGH_REPLICAS
    harness.call(lambda: harness.cluster.unreachable.clear())


def test_what_is_behind_a_batch_that_comes_again_is_not_told_of_a_gap(
    harness: Harness, client: Client
) -> None:
    if client.version < NEW:
        client.add()
    harness.call(lambda: harness.cluster.unreachable.add((1, 2)))
    assert client.produce("a") == ErrorCode.NOT_ENOUGH_REPLICAS
    harness.call(lambda: harness.cluster.unreachable.clear())
    wait_until(
        lambda: (
            client.produce("b", sequence=1) == ErrorCode.NOT_ENOUGH_REPLICAS
            and open_at(harness) == []
        ),
        "the second batch waits for the first",
    )
    assert client.produce("a", sequence=0) == 0
    assert client.produce("b", sequence=1) == 0


# --- the next transaction -------------------------------------------------------------------------


def test_transactions_follow_each_other(harness: Harness, client: Client) -> None:
    for number in range(5):
        if client.version < NEW:
            wait_until(lambda: client.add() == 0, "the last markers are written")
        code = client.produce(f"v{number}")
        while code == ErrorCode.CONCURRENT_TRANSACTIONS:
            client.sequence[0] -= 1
            code = client.produce(f"v{number}")
        assert code == 0
        assert client.end(is_commit=number % 2 == 0) == 0
    at_rest(harness)
    assert harness.call(lambda: harness.cluster.replica(1, "t").log.end_offset) == 10


def test_the_epoch_of_a_new_client_rises_with_each_end(harness: Harness, new: Client) -> None:
    first = new.epoch
    new.produce("a")
    assert new.end() == 0 and new.epoch == first + 1
    at_rest(harness)
    wait_until(lambda: state_of(new) == "CompleteCommit", "it is complete")
    assert new.end(is_commit=False) == 0 and new.epoch == first + 2


def test_the_first_batch_after_a_marker_begins_the_sequence(harness: Harness, new: Client) -> None:
    new.produce("a")
    assert new.end() == 0
    wait_until(lambda: state_of(new) == "CompleteCommit", "it is complete")
    assert new.produce("c", sequence=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert new.produce("b", sequence=0) == 0
    assert new.produce("c", sequence=1) == 0


# --- markers --------------------------------------------------------------------------------------


def test_an_older_coordinator_writes_no_marker(harness: Harness, old: Client) -> None:
    old.add()
    assert old.produce("a") == 0
    assert old.mark(is_commit=True, coordinator_epoch=9) == 0
    assert (
        old.mark(is_commit=False, coordinator_epoch=8) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    )


def test_a_marker_counts_once_it_is_replicated(
    harness: Harness, old: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marking, "REPLICATION_TIMEOUT_MS", 100)
    old.add()
    assert old.produce("a") == 0
    harness.run(harness.cluster.brokers[2].manager.fetchers.stop())
    assert old.mark(is_commit=True) == ErrorCode.REQUEST_TIMED_OUT


def test_a_marker_of_an_older_epoch_is_refused(harness: Harness, old: Client) -> None:
    second = Client(harness, OLD)
    second.init()
    second.add()
    assert second.produce("a") == 0
    assert old.mark(is_commit=True) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert open_at(harness) == [0]
    second.close()


def test_a_marker_that_comes_twice_does_not_end_the_next_transaction(
    harness: Harness, new: Client
) -> None:
    assert new.produce("a") == 0
    assert new.end() == 0
    wait_until(lambda: state_of(new) == "CompleteCommit", "it is complete")
    assert new.produce("b") == 0
    # The one of the first transaction, in the epoch that the second one has now.
    assert new.mark(is_commit=False, version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert open_at(harness) == [2]


def test_markers_of_unknown_partitions_and_of_followers_are_refused(
    harness: Harness, old: Client
) -> None:
    def mark(where: RawClient, topic: str) -> int:
        marker = {
            "producer_id": 1, "producer_epoch": 0, "transaction_result": True,
            "coordinator_epoch": 0, "topics": [{"name": topic, "partition_indexes": [0]}],
        }  # fmt: skip
        answer = where.call("write_txn_markers", 1, {"markers": [marker]})
        return int(answer.markers[0].topics[0].partitions[0].error_code)

    assert mark(old.leader, "nothing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert mark(old.coordinator, "t") == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert mark(old.leader, "t") == 0


# --- the coordinator's APIs -----------------------------------------------------------------------


def test_a_partition_that_does_not_exist_spoils_the_whole_request(
    harness: Harness, old: Client
) -> None:
    values = {
        "v3_and_below_transactional_id": "x", "v3_and_below_producer_id": old.producer_id,
        "v3_and_below_producer_epoch": old.epoch,
        "v3_and_below_topics": [{"name": "t", "partitions": [0, 7]}],
    }  # fmt: skip
    answer = old.coordinator.call("add_partitions_to_txn", 1, values)
    rows = answer.results_by_topic_v3_and_below[0].results_by_partition
    assert [(row.partition_index, row.partition_error_code) for row in rows] == [
        (0, ErrorCode.OPERATION_NOT_ATTEMPTED), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]  # fmt: skip
    values = {"state_filters": [], "producer_id_filters": []}
    listed = old.coordinator.call("list_transactions", 0, values)
    assert [row.transaction_state for row in listed.transaction_states] == ["Empty"]


@pytest.mark.parametrize(("version", "code"), [(1, 47), (2, 90)])
def test_a_fenced_producer_hears_so_in_words_of_its_version(
    harness: Harness, old: Client, version: int, code: int
) -> None:
    values = {
        "transactional_id": "x", "producer_id": old.producer_id,
        "producer_epoch": old.epoch + 1, "committed": True,
    }  # fmt: skip
    assert old.coordinator.call("end_txn", version, values).error_code == code
    values = {
        "v3_and_below_transactional_id": "x", "v3_and_below_producer_id": old.producer_id,
        "v3_and_below_producer_epoch": old.epoch + 1,
        "v3_and_below_topics": [{"name": "t", "partitions": [0]}],
    }  # fmt: skip
    answer = old.coordinator.call("add_partitions_to_txn", version, values)
    (row,) = answer.results_by_topic_v3_and_below[0].results_by_partition
    assert row.partition_error_code == code


def test_who_does_not_coordinate_says_so(harness: Harness, old: Client) -> None:
    values = {
        "transactional_id": "x", "producer_id": old.producer_id, "producer_epoch": old.epoch,
        "committed": True,
    }  # fmt: skip
    assert old.leader.call("end_txn", 3, values).error_code == ErrorCode.NOT_COORDINATOR


def test_transactions_are_listed_with_filters(harness: Harness, new: Client) -> None:
    new.produce("a")

    def listed(**filters: Any) -> tuple[list[str], list[str]]:
        values = {
            "state_filters": [], "producer_id_filters": [], "duration_filter": -1, **filters,
        }  # fmt: skip
        answer = new.coordinator.call("list_transactions", 1, values)
        assert answer.error_code == 0
        return (
            [row.transaction_state for row in answer.transaction_states],
            list(answer.unknown_state_filters),
        )

    assert listed() == (["Ongoing"], [])
    assert listed(state_filters=["Ongoing", "Sleeping"]) == (["Ongoing"], ["Sleeping"])
    assert listed(state_filters=["Sleeping"]) == ([], ["Sleeping"])
    assert listed(producer_id_filters=[new.producer_id + 1]) == ([], [])
    assert listed(duration_filter=3_600_000) == ([], [])


def test_an_unknown_id_is_not_described(harness: Harness, old: Client) -> None:
    answer = old.coordinator.call("describe_transactions", 0, {"transactional_ids": ["y", ""]})
    assert [row.error_code for row in answer.transaction_states] == [
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.INVALID_REQUEST,
    ]  # fmt: skip


def test_producers_are_described_by_the_leader_alone(harness: Harness, new: Client) -> None:
    new.produce("a")
    topics = {"topics": [{"name": "t", "partition_indexes": [0, 9]}]}
    known, unknown = new.leader.call("describe_producers", 0, topics).topics[0].partitions
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (row,) = known.active_producers
    assert (row.producer_id, row.producer_epoch, row.last_sequence) == (new.producer_id, 0, 0)
    assert row.current_txn_start_offset == 0
    follower, _ = new.coordinator.call("describe_producers", 0, topics).topics[0].partitions
    assert follower.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_offsets_need_the_group_s_partition(harness: Harness, old: Client) -> None:
    values = {
        "transactional_id": "x", "producer_id": old.producer_id, "producer_epoch": old.epoch,
        "group_id": "g",
    }  # fmt: skip
    wait_until(
        lambda: old.coordinator.call("add_offsets_to_txn", 3, values).error_code == 0,
        "__consumer_offsets is made, and the group's partition is in the transaction",
    )
    (topic,) = describe(old).topics
    assert topic.topic == "__consumer_offsets"
    assert state_of(old) == "Ongoing"
