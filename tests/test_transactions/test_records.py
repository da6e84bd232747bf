"""Keys and values of __transaction_state: Kafka's bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.broker.transactions.core.model import State, TopicPartition, Transaction
from kvorum.broker.transactions.core.records import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    value_text,
)
from kvorum.runtime.errors import CorruptData

#: Read from the log of Apache Kafka 4.1.0, which had no previous producer id in the first records.
EARLIER_EMPTY = bytes.fromhex(
    "000100000000000003e900000000ea600000000001a1fd30ebaaffffffffffffffff00"
)
#: Read from the log of Apache Kafka 4.4.0.
EMPTY = bytes.fromhex(
    "0001000000000000000000000000ea600000000001a2227d126dffffffffffffffff0100080000000000000000"
)
ONGOING = bytes.fromhex(
    "0001000000000000000000000000ea600102"
    + "13" + b"__consumer_offsets".hex() + "020000000000"
    + "000001a2227d12a4000001a2227d12a40100080000000000000000"
)  # fmt: skip
COMPLETE_COMMIT = bytes.fromhex(
    "0001000000000000000000000000ea600401000001a2227d13d4000001a2227d12a40100080000000000000000"
)
SECOND_INSTANCE = bytes.fromhex(
    "0001000000000000000000010000ea600000000001a2227d1617ffffffffffffffff0100080000000000000000"
)


def test_the_records_are_those_of_kafka() -> None:
    empty = decode_value("t", EMPTY)
    assert empty == Transaction(
        transactional_id="t", producer_id=0, producer_epoch=0, timeout_ms=60_000,
        state=State.EMPTY, updated_ms=0x1A2227D126D,
    )  # fmt: skip
    committed = decode_value("t", COMPLETE_COMMIT)
    assert (committed.state, committed.producer_epoch) == (State.COMPLETE_COMMIT, 0)
    second = decode_value("t", SECOND_INSTANCE)
    assert (second.producer_epoch, second.previous_producer_id) == (1, -1)
    ongoing = decode_value("t", ONGOING)
    assert ongoing.partitions == {TopicPartition("__consumer_offsets", 0)}
    for held, value in (
        (empty, EMPTY), (committed, COMPLETE_COMMIT), (second, SECOND_INSTANCE), (ongoing, ONGOING),
    ):  # fmt: skip
        assert encode_value(held, 1) == value


def test_a_record_of_an_earlier_version_has_no_previous_producer_id() -> None:
    held = decode_value("t", EARLIER_EMPTY)
    assert (held.producer_id, held.previous_producer_id) == (1001, -1)
    assert "previousProducerId" not in value_text(EARLIER_EMPTY)
    # The same transactional id, written again, has what Kafka 4.4 writes.
    again = encode_value(held, 1)
    assert again[:-1] == EARLIER_EMPTY[:-1] + b"\x01\x00\x08" + (1001).to_bytes(8)[:-1]
    assert decode_value("t", again) == held


def test_a_value_is_printed_as_kafka_prints_it() -> None:
    assert value_text(COMPLETE_COMMIT) == (
        '{"version":"1","data":{"producerId":0,"previousProducerId":0,"producerEpoch":0,'
        '"transactionTimeoutMs":60000,"transactionStatus":"CompleteCommit",'
        '"transactionPartitions":[],"transactionLastUpdateTimestampMs":1795874952148,'
        '"transactionStartTimestampMs":1795874951844}}'
    )


def test_the_key_is_that_of_kafka() -> None:
    assert encode_key("my-id") == bytes.fromhex("00000005") + b"my-id"
    assert decode_key(bytes.fromhex("00000005") + b"my-id") == "my-id"


def test_a_key_of_a_later_kind_is_passed_over() -> None:
    assert decode_key(bytes.fromhex("00010005") + b"my-id") is None


TRANSACTIONS = st.builds(
    Transaction,
    transactional_id=st.just("t"),
    producer_id=st.integers(0, 1 << 62),
    producer_epoch=st.integers(0, 32_767),
    timeout_ms=st.integers(1, 1 << 30),
    state=st.sampled_from([state for state in State if state != State.EMPTY]),
    partitions=st.frozensets(
        st.builds(TopicPartition, st.sampled_from(["a", "b", "ä" * 200]), st.integers(0, 300)),
        max_size=9,
    ),
    updated_ms=st.integers(0, 1 << 50),
    start_ms=st.integers(-1, 1 << 50),
    previous_producer_id=st.integers(-1, 1 << 62),
    next_producer_id=st.integers(-1, 1 << 62),
    client_version=st.sampled_from([0, 2]),
).filter(lambda held: held.previous_producer_id != held.producer_id)


@settings(deadline=None)
@given(TRANSACTIONS)
def test_what_is_written_is_read_again(transaction: Transaction) -> None:
    assert decode_value("t", encode_value(transaction, 1)) == transaction


@settings(deadline=None)
@given(TRANSACTIONS)
def test_the_first_version_of_the_value_lacks_only_the_tagged_fields(held: Transaction) -> None:
    read = decode_value("t", encode_value(held, 0))
    assert (read.previous_producer_id, read.next_producer_id, read.client_version) == (-1, -1, 0)
    assert (read.partitions, read.state, read.start_ms) == (
        held.partitions, held.state, held.start_ms,
    )  # fmt: skip


@pytest.mark.parametrize(
    "damage",
    [b"", b"\x00", EMPTY[:-9], b"\x00\x02" + EMPTY[2:], EMPTY[:16] + b"\x09" + EMPTY[17:]],
)
def test_damaged_values_are_told_and_not_guessed(damage: bytes) -> None:
    with pytest.raises(CorruptData):
        decode_value("t", damage)


def test_a_damaged_key_is_told() -> None:
    with pytest.raises(CorruptData):
        decode_key(b"\x00\x00\x00\x09abc")
