"""Idempotent producers while too few replicas are in sync: no duplicate, and no gap that the broker
itself caused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.partition.core.refused_sequences import PRODUCERS_KEPT_MAX, RefusedSequences
from kvorum.storage.format.batch import build_batch, read_header
from tests.polling import eventually
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient, produce_values

PRODUCER = 7000


def batch(sequence: int, producer: int = PRODUCER, epoch: int = 0, count: int = 1) -> bytes:
    return bytes(
        build_batch(
            [(None, b"v%d" % i) for i in range(count)],
            timestamp_ms=1_700_000_000_000,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
    )


def header(sequence: int, producer: int = PRODUCER, epoch: int = 0):
    return read_header(batch(sequence, producer, epoch), 0)


def test_only_what_was_refused_explains_a_gap() -> None:
    refused = RefusedSequences()
    refused.note(header(5))
    assert refused.explains(header(6), 5)
    assert not refused.explains(header(6), 4)
    assert not refused.explains(header(6, epoch=1), 5)
    assert not refused.explains(header(6, producer=1), 5)
    refused.clear()
    assert not refused.explains(header(6), 5)


def test_batches_without_a_producer_are_not_kept() -> None:
    refused = RefusedSequences()
    refused.note(header(-1, producer=-1, epoch=-1))
    assert refused._by_producer == {}


@given(st.lists(st.integers(0, 1_200), max_size=1_500))
def test_the_producers_refused_last_are_kept(producers: list[int]) -> None:
    refused = RefusedSequences()
    for producer in producers:
        refused.note(header(0, producer=producer)._replace(producer_id=producer))
    last = list(dict.fromkeys(reversed(producers)))[:PRODUCERS_KEPT_MAX]
    assert set(refused._by_producer) == set(last)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path, count=2)
    configs = {"min.insync.replicas": "2"}
    harness.call(lambda: harness.cluster.controller.create("t", [(1, 2)], configs))
    yield harness
    harness.close()


def produced(client: RawClient, data: bytes) -> tuple[KioError, int]:
    row = client.call("produce", 9, produce_values("t", data)).responses[0].partition_responses[0]
    return row.error_code, row.base_offset


def isr_of(harness: Harness) -> tuple[int, ...]:
    topic = harness.cluster.controller.image.topic("t")
    assert topic is not None
    return topic.partitions[0].isr


def lose_the_follower(harness: Harness) -> None:
    harness.run(harness.cluster.stop_broker(2))
    eventually(lambda: isr_of(harness) == (1,), "the follower is out")


def bring_the_follower_back(harness: Harness) -> None:
    harness.run(harness.cluster.start_broker(2, is_clean=True))
    eventually(lambda: len(isr_of(harness)) == 2, "the follower is back")


def test_a_repeat_is_answered_as_the_first_time_though_an_append_would_be_refused(
    harness: Harness, client: RawClient
) -> None:
    assert produced(client, batch(0, count=3)) == (KioError.none, 0)
    assert produced(client, batch(3)) == (KioError.none, 3)
    lose_the_follower(harness)
    assert produced(client, batch(4))[0] is KioError.not_enough_replicas
    assert produced(client, batch(3)) == (KioError.none, 3)
    assert produced(client, batch(0, count=3)) == (KioError.none, 0)
    assert harness.cluster.replica(1, "t").log.end_offset == 4


def test_what_was_sent_behind_a_refused_batch_is_no_gap(
    harness: Harness, client: RawClient
) -> None:
    assert produced(client, batch(0)) == (KioError.none, 0)
    lose_the_follower(harness)
    assert produced(client, batch(1))[0] is KioError.not_enough_replicas
    bring_the_follower_back(harness)
    for sequence in (2, 3):
        assert produced(client, batch(sequence))[0] is KioError.not_enough_replicas
    assert produced(client, batch(1)) == (KioError.none, 1)
    # The third was refused too, so the second is all that is missing before it.
    assert produced(client, batch(3))[0] is KioError.not_enough_replicas
    assert produced(client, batch(2)) == (KioError.none, 2)
    assert produced(client, batch(3)) == (KioError.none, 3)
    assert produced(client, batch(9))[0] is KioError.out_of_order_sequence_number


def lead(harness: Harness, broker_id: int) -> None:
    topic = harness.cluster.controller.image.topic("t")
    assert topic is not None
    harness.call(lambda: harness.cluster.controller.lead(topic.topic_id, 0, broker_id, (1, 2)))


def test_another_leader_has_refused_nothing(harness: Harness, client: RawClient) -> None:
    assert produced(client, batch(0)) == (KioError.none, 0)
    lose_the_follower(harness)
    assert produced(client, batch(1))[0] is KioError.not_enough_replicas
    bring_the_follower_back(harness)
    lead(harness, 2)
    lead(harness, 1)
    assert produced(client, batch(2))[0] is KioError.out_of_order_sequence_number


def test_the_same_leader_remembers_in_a_new_epoch(harness: Harness, client: RawClient) -> None:
    # Bad sequence: 1. A batch is refused. 2. A reassignment ends: the new replica is in the ISR,
    # and the leader epoch rises. 3. The next batch, sent before, is taken for the first one and
    # acknowledged.
    lose_the_follower(harness)
    assert produced(client, batch(0))[0] is KioError.not_enough_replicas
    bring_the_follower_back(harness)
    lead(harness, 1)
    assert produced(client, batch(1))[0] is KioError.not_enough_replicas
    assert produced(client, batch(0)) == (KioError.none, 0)
    assert produced(client, batch(1)) == (KioError.none, 1)


def test_a_producer_that_gives_a_batch_up_goes_on(harness: Harness, client: RawClient) -> None:
    # The retries of batch 0 are over, and the producer goes on in the same epoch. Bug: it was
    # refused for ever.
    lose_the_follower(harness)
    assert produced(client, batch(0))[0] is KioError.not_enough_replicas
    bring_the_follower_back(harness)
    for sequence in (1, 2):
        assert produced(client, batch(sequence))[0] is KioError.not_enough_replicas
    assert produced(client, batch(1)) == (KioError.none, 0)
    assert produced(client, batch(2)) == (KioError.none, 1)


def test_a_gap_that_stays_is_called_one(harness: Harness, client: RawClient) -> None:
    assert produced(client, batch(0)) == (KioError.none, 0)
    lose_the_follower(harness)
    assert produced(client, batch(1))[0] is KioError.not_enough_replicas
    bring_the_follower_back(harness)
    for sequence in (2, 3):
        assert produced(client, batch(sequence))[0] is KioError.not_enough_replicas
    # At this error clients raise their producer epoch.
    assert produced(client, batch(2))[0] is KioError.out_of_order_sequence_number
    assert produced(client, batch(0, epoch=1)) == (KioError.none, 1)


def test_what_is_behind_waits_again_when_the_earlier_one_is_refused_again() -> None:
    refused = RefusedSequences()
    refused.note(header(0))
    for _ in range(3):
        assert refused.holds_back(header(1)) and refused.holds_back(header(2))
        refused.note(header(0))
    assert refused.holds_back(header(1))
    refused.note(header(0, epoch=1))
    assert not refused.holds_back(header(1))


def test_a_producer_that_the_log_does_not_know_begins_with_what_was_refused(
    harness: Harness, client: RawClient
) -> None:
    # Bug: the second batch was accepted as the first one, which was then out of order for ever.
    lose_the_follower(harness)
    assert produced(client, batch(0))[0] is KioError.not_enough_replicas
    bring_the_follower_back(harness)
    assert produced(client, batch(1))[0] is KioError.not_enough_replicas
    assert produced(client, batch(0)) == (KioError.none, 0)
    assert produced(client, batch(1)) == (KioError.none, 1)


def test_what_came_again_holds_nobody_back() -> None:
    refused = RefusedSequences()
    last = (1 << 31) - 1
    for sequence in (last, 0):
        refused.note(header(sequence))
    assert refused.is_behind(header(0))
    assert refused.is_behind(header(5))
    assert not refused.is_behind(header(last))
    assert not refused.is_behind(header(5, epoch=1))
    assert not refused.is_behind(header(5, producer=1))
    for sequence in (last, 7, 0):
        refused.forget(header(sequence))
    assert not refused.is_behind(header(500))
    assert refused._by_producer == {}
