"""The coordinator's APIs, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from kvorum.runtime.errors import ErrorCode
from tests.polling import eventually
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient
from tests.test_transactions.raw_producer import Client, describe, state_of

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


def test_requests_of_one_connection_are_decided_in_their_order(
    harness: Harness, old: Client
) -> None:
    who = {"producer_id": old.producer_id, "producer_epoch": old.epoch}
    assert old.add(0) == 0
    rows = [{"name": "t", "partitions": [1]}]
    added = {f"v3_and_below_{name}": value for name, value in who.items()}
    added |= {"v3_and_below_transactional_id": "x", "v3_and_below_topics": rows}
    ended = {"transactional_id": "x", **who}
    old.coordinator.send("end_txn", 3, {**ended, "committed": True})
    old.coordinator.send("add_partitions_to_txn", 3, added)
    old.coordinator.send("end_txn", 3, {**ended, "committed": False})
    assert old.coordinator.answer("end_txn", 3).error_code == 0
    (row,) = (
        old.coordinator.answer("add_partitions_to_txn", 3)
        .results_by_topic_v3_and_below[0]
        .results_by_partition
    )
    aborted = old.coordinator.answer("end_txn", 3).error_code
    # The markers may take longer than the requests wait.
    assert (row.partition_error_code, aborted) in (
        (0, 0), (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
    )  # fmt: skip
    ending = ("CompleteAbort",) if aborted == 0 else ("CompleteCommit",)
    eventually(lambda: state_of(old) in ending, "the last transaction is complete")


@pytest.mark.parametrize("transactional_id", ["x", None])
@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 3), (0, -1)])
def test_half_an_identity_is_refused_and_fences_nobody(
    harness: Harness, old: Client, transactional_id: str | None, producer_id: int, epoch: int
) -> None:
    values = {
        "transactional_id": transactional_id, "transaction_timeout": 60_000,
        "producer_id": producer_id, "producer_epoch": epoch,
    }  # fmt: skip
    answer = old.coordinator.call("init_producer_id", 4, values)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (42, -1, -1)
    values = {
        "transactional_id": "x", "producer_id": old.producer_id, "producer_epoch": old.epoch,
        "committed": False,
    }  # fmt: skip
    # Its owner has nothing to abort, and is not fenced.
    assert old.coordinator.call("end_txn", 3, values).error_code == ErrorCode.INVALID_TXN_STATE


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


@pytest.mark.parametrize(
    ("pattern", "is_listed"),
    [(None, True), ("", True), (".*", True), ("nobody.*", False), ("{id}", True), ("{id}.", False)],
)
def test_transactions_are_listed_by_a_pattern_of_the_whole_id(
    harness: Harness, new: Client, pattern: str | None, is_listed: bool
) -> None:
    new.produce("a")
    answer = _list_by(new, pattern and pattern.replace("{id}", new.id))
    assert answer.error_code == 0
    assert [row.transactional_id for row in answer.transaction_states] == [new.id] * is_listed


@pytest.mark.parametrize("pattern", ["(", "(?=a)b"])
def test_a_pattern_that_re2_does_not_take_is_refused(
    harness: Harness, new: Client, pattern: str
) -> None:
    answer = _list_by(new, pattern)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.transaction_states == ()


def _list_by(client: Client, pattern: str | None) -> Any:
    values = {
        "state_filters": [], "producer_id_filters": [], "duration_filter": -1,
        "transactional_id_pattern": pattern,
    }  # fmt: skip
    return client.coordinator.call("list_transactions", 2, values)


def test_an_unknown_id_is_not_described(harness: Harness, old: Client) -> None:
    answer = old.coordinator.call("describe_transactions", 0, {"transactional_ids": ["y", ""]})
    assert [row.error_code for row in answer.transaction_states] == [
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.INVALID_REQUEST,
    ]  # fmt: skip


def test_producers_are_described_by_every_replica(harness: Harness, new: Client) -> None:
    """kafka-transactions --broker-id asks a follower as often as the leader."""
    harness.call(lambda: harness.cluster.controller.create("elsewhere", [(1,)]))
    new.produce("a")
    topics = {"topics": [
        {"name": "t", "partition_indexes": [0, 9]}, {"name": "elsewhere", "partition_indexes": [0]},
    ]}  # fmt: skip

    def described(broker: RawClient) -> Any:
        return broker.call("describe_producers", 0, topics).topics

    known, unknown = described(new.leader)[0].partitions
    assert (known.error_code, unknown.error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    (row,) = known.active_producers
    assert (row.producer_id, row.producer_epoch, row.last_sequence) == (new.producer_id, 0, 0)
    assert row.current_txn_start_offset == 0
    eventually(
        lambda: described(new.coordinator)[0].partitions == (known, unknown),
        "the follower has replicated the batch and tells the same",
    )
    (absent,) = described(new.coordinator)[1].partitions
    assert absent.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert absent.error_message is not None
    assert absent.error_message.startswith("broker 2 has no replica of elsewhere-0")


def test_offsets_need_the_group_s_partition(harness: Harness, old: Client) -> None:
    values = {
        "transactional_id": "x", "producer_id": old.producer_id, "producer_epoch": old.epoch,
        "group_id": "g",
    }  # fmt: skip
    eventually(
        lambda: old.coordinator.call("add_offsets_to_txn", 3, values).error_code == 0,
        "__consumer_offsets is made, and the group's partition is in the transaction",
    )
    (topic,) = describe(old).topics
    assert topic.topic == "__consumer_offsets"
    assert state_of(old) == "Ongoing"
