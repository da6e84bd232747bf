"""Transactional batches that wait to be let in."""

from __future__ import annotations

import pytest

from broker.transactions.verification import SEQUENCES_KEPT_MAX, Verifications
from runtime.errors import ErrorCode


@pytest.fixture
def waiting() -> Verifications[str]:
    return Verifications()


def test_the_first_asks_and_those_behind_it_share_the_verdict(waiting: Verifications[str]) -> None:
    assert waiting.wait(7, 0, 0, leader_epoch=3, item="a")
    assert not waiting.wait(7, 0, 5, leader_epoch=3, item="b")
    assert waiting.is_pending(7, 0) and not waiting.is_pending(7, 1)
    assert waiting.settle(7, 0, ErrorCode.NONE, leader_epoch=3) == (["a", "b"], ErrorCode.NONE)
    assert not waiting.is_pending(7, 0)


def test_another_producer_or_epoch_asks_for_itself(waiting: Verifications[str]) -> None:
    assert waiting.wait(7, 0, 0, leader_epoch=3, item="a")
    assert waiting.wait(7, 1, 0, leader_epoch=3, item="b")
    assert waiting.wait(8, 0, 0, leader_epoch=3, item="c")


@pytest.mark.parametrize(
    ("marker", "is_epoch_raised", "expected"),
    [
        ((7, 0), False, ErrorCode.INVALID_TXN_STATE),
        ((7, 1), False, ErrorCode.INVALID_TXN_STATE),
        ((7, 1), True, ErrorCode.INVALID_TXN_STATE),
        # What waits in the epoch of such a marker is of the next transaction.
        ((7, 0), True, ErrorCode.NONE),
        ((8, 0), False, ErrorCode.NONE),
    ],
)
def test_a_marker_makes_a_verdict_of_before_void(
    waiting: Verifications[str], marker: tuple[int, int], is_epoch_raised: bool, expected: ErrorCode
) -> None:
    waiting.wait(7, 0, 0, leader_epoch=3, item="a")
    waiting.on_marker(*marker, is_epoch_raised=is_epoch_raised)
    assert waiting.settle(7, 0, ErrorCode.NONE, leader_epoch=3) == (["a"], expected)


def test_a_marker_of_an_older_epoch_changes_nothing(waiting: Verifications[str]) -> None:
    waiting.wait(7, 2, 0, leader_epoch=3, item="a")
    waiting.on_marker(7, 1, is_epoch_raised=False)
    assert waiting.settle(7, 2, ErrorCode.NONE, leader_epoch=3)[1] == ErrorCode.NONE


def test_a_verdict_does_not_outlive_the_leadership(waiting: Verifications[str]) -> None:
    waiting.wait(7, 0, 0, leader_epoch=3, item="a")
    verdict = waiting.settle(7, 0, ErrorCode.NONE, leader_epoch=5)[1]
    assert verdict == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_refusal_stays_what_it_is(waiting: Verifications[str]) -> None:
    waiting.wait(7, 0, 0, leader_epoch=3, item="a")
    waiting.on_marker(7, 0, is_epoch_raised=False)
    verdict = waiting.settle(7, 0, ErrorCode.PRODUCER_FENCED, leader_epoch=5)[1]
    assert verdict == ErrorCode.PRODUCER_FENCED


def test_a_later_batch_does_not_come_before_the_first_that_failed(
    waiting: Verifications[str],
) -> None:
    waiting.wait(7, 0, 0, leader_epoch=3, item="a")
    waiting.settle(7, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE, leader_epoch=3)
    waiting.wait(7, 0, 5, leader_epoch=3, item="b")
    assert not waiting.is_first(7, 0, 5)
    assert waiting.is_first(7, 0, 0)
    waiting.on_append(7, 0)
    assert waiting.is_first(7, 0, 5)


def test_memory_of_sequences_is_bounded(waiting: Verifications[str]) -> None:
    for producer_id in range(SEQUENCES_KEPT_MAX + 1):
        waiting.wait(producer_id, 0, 0, leader_epoch=0, item="a")
    assert waiting.is_first(0, 0, 5)
    assert not waiting.is_first(1, 0, 5)
