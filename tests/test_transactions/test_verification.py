"""Transactional batches that wait for their verification (KIP-890)."""

from __future__ import annotations

import pytest

from kvorum.broker.partition.core.verification import SEQUENCES_KEPT_MAX, Verifications, admit
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.files.producer_state import ProducerStateTable
from kvorum.storage.format.batch import BatchError, build_batch, read_header


@pytest.fixture
def waiting() -> Verifications[str]:
    return Verifications()


def test_the_first_asks_and_those_behind_it_share_the_verdict(waiting: Verifications[str]) -> None:
    assert waiting.wait(7, 0, 0, "a")
    assert not waiting.wait(7, 0, 5, "b")
    assert waiting.is_pending(7, 0) and not waiting.is_pending(7, 1)
    assert waiting.settle(7, 0, ErrorCode.NONE) == (["a", "b"], ErrorCode.NONE)
    assert not waiting.is_pending(7, 0)


def test_another_producer_or_epoch_asks_for_itself(waiting: Verifications[str]) -> None:
    assert waiting.wait(7, 0, 0, "a")
    assert waiting.wait(7, 1, 0, "b")
    assert waiting.wait(8, 0, 0, "c")


@pytest.mark.parametrize(
    ("marker", "is_epoch_raised", "expected"),
    [
        ((7, 0), False, ErrorCode.INVALID_TXN_STATE),
        ((7, 1), False, ErrorCode.INVALID_TXN_STATE),
        ((7, 1), True, ErrorCode.INVALID_TXN_STATE),
        # Requests that wait in the epoch of such a marker belong to the next transaction.
        ((7, 0), True, ErrorCode.NONE),
        ((8, 0), False, ErrorCode.NONE),
    ],
)
def test_a_marker_makes_a_verdict_of_before_void(
    waiting: Verifications[str], marker: tuple[int, int], is_epoch_raised: bool, expected: ErrorCode
) -> None:
    waiting.wait(7, 0, 0, "a")
    waiting.on_marker(*marker, is_epoch_raised=is_epoch_raised)
    assert waiting.settle(7, 0, ErrorCode.NONE) == (["a"], expected)


def test_a_marker_of_an_older_epoch_changes_nothing(waiting: Verifications[str]) -> None:
    waiting.wait(7, 2, 0, "a")
    waiting.on_marker(7, 1, is_epoch_raised=False)
    assert waiting.settle(7, 2, ErrorCode.NONE)[1] == ErrorCode.NONE


def test_a_verdict_does_not_outlive_the_leadership(waiting: Verifications[str]) -> None:
    waiting.wait(7, 0, 0, "a")
    waiting.on_leadership()
    verdict = waiting.settle(7, 0, ErrorCode.NONE)[1]
    assert verdict == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_refusal_stays_what_it_is(waiting: Verifications[str]) -> None:
    waiting.wait(7, 0, 0, "a")
    waiting.on_marker(7, 0, is_epoch_raised=False)
    waiting.on_leadership()
    verdict = waiting.settle(7, 0, ErrorCode.PRODUCER_FENCED)[1]
    assert verdict == ErrorCode.PRODUCER_FENCED


def test_a_later_batch_does_not_come_before_the_first_that_failed(
    waiting: Verifications[str],
) -> None:
    waiting.wait(7, 0, 0, "a")
    waiting.settle(7, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    waiting.wait(7, 0, 5, "b")
    assert not waiting.is_first(7, 0, 5)
    assert waiting.is_first(7, 0, 0)
    waiting.on_append(7, 0)
    assert waiting.is_first(7, 0, 5)


def test_memory_of_sequences_is_bounded(waiting: Verifications[str]) -> None:
    for producer_id in range(SEQUENCES_KEPT_MAX + 1):
        waiting.wait(producer_id, 0, 0, "a")
    assert waiting.is_first(0, 0, 5)
    assert not waiting.is_first(1, 0, 5)


@pytest.mark.parametrize(
    ("sequence", "version", "code"),
    [(0, 12, None), (5, 11, None), (5, 12, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)],
)
def test_an_epoch_of_one_transaction_begins_with_sequence_0(
    waiting: Verifications[str], sequence: int, version: int, code: ErrorCode | None
) -> None:
    # Bad sequence: 1. Batch 0 is on its way to the old leader. 2. Batch 1 comes to the new leader
    # and is appended. 3. Batch 0 comes again: it is out of order, and the transaction is lost.
    producers = ProducerStateTable()
    batch = build_batch(
        [(b"k", b"v")],
        timestamp_ms=0,
        producer_id=7,
        producer_epoch=3,
        base_sequence=sequence,
        is_transactional=True,
    )
    header = read_header(batch, 0)
    if code is None:
        admit(producers, waiting, header, version, is_verified=True)
    else:
        with pytest.raises(BatchError) as refused:
            admit(producers, waiting, header, version, is_verified=True)
        assert refused.value.code is code


def test_what_waited_for_another_leader_is_no_earlier_batch(waiting: Verifications[str]) -> None:
    # Bad sequence: the earlier batch was appended by another leader, and the log then forgot its
    # producer; a later batch was refused for ever.
    waiting.wait(7, 0, 11, "a")
    waiting.on_leadership()
    waiting.settle(7, 0, ErrorCode.NONE)
    waiting.wait(7, 0, 90, "b")
    assert waiting.is_first(7, 0, 90)
    waiting.settle(7, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    waiting.wait(7, 0, 95, "c")
    assert not waiting.is_first(7, 0, 95)


@pytest.mark.parametrize(("marker_epoch", "is_epoch_raised"), [(4, False), (5, True)])
def test_a_marker_ends_what_is_known_of_its_transaction(
    waiting: Verifications[str], marker_epoch: int, is_epoch_raised: bool
) -> None:
    waiting.wait(7, 4, 11, "a")
    waiting.settle(7, 4, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    waiting.on_marker(7, marker_epoch, is_epoch_raised=is_epoch_raised)
    assert waiting.is_first(7, 4, 90)
