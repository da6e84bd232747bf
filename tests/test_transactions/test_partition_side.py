"""Transactional batches that a leader accepts, byte by byte: clients with and without KIP-890."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kvorum.broker.transactions import marking
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import build_batch
from tests.polling import eventually
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient, produce_values
from tests.test_transactions.raw_producer import (
    NEW,
    OLD,
    Client,
    at_rest,
    describe,
    open_at,
    state_of,
)

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
    # Hold the coordinator's answer back until the marker has arrived.
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
    if client.version < NEW:
        client.add()
    # A transaction that is open here does not let it in either.
    for is_open in (False, True):
        if is_open:
            assert client.produce("a") == 0
        answer = client.leader.call("produce", 9, produce_values("t", bytes(batch)))
        row = answer.responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


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
    eventually(
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
            eventually(lambda: client.add() == 0, "the last markers are written")
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
    eventually(lambda: state_of(new) == "CompleteCommit", "it is complete")
    assert new.end(is_commit=False) == 0 and new.epoch == first + 2


def test_the_first_batch_after_a_marker_begins_the_sequence(harness: Harness, new: Client) -> None:
    new.produce("a")
    assert new.end() == 0
    eventually(lambda: state_of(new) == "CompleteCommit", "it is complete")
    assert new.produce("c", sequence=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert new.produce("b", sequence=0) == 0
    assert new.produce("c", sequence=1) == 0


# --- markers --------------------------------------------------------------------------------------


def test_an_older_coordinator_writes_no_marker(harness: Harness, old: Client) -> None:
    old.add()
    assert old.produce("a") == 0
    assert old.mark(is_commit=True, coordinator_epoch=0) == 0
    assert (
        old.mark(is_commit=False, coordinator_epoch=-1) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
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
    eventually(lambda: state_of(new) == "CompleteCommit", "it is complete")
    assert new.produce("b") == 0
    # A marker of the first transaction comes again, in the epoch that the second one has now.
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
