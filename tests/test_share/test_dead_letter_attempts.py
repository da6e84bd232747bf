"""The rule of which dead letters are tried again, and the loop that obeys it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kvorum.broker.metrics.share_counters import ShareMetrics
from kvorum.broker.share import dead_letter_loop
from kvorum.broker.share.core.dead_letter_attempts import (
    LETTERS_MAX,
    PAUSE_MAX_MS,
    PAUSE_MIN_MS,
    DeadLetterAttempts,
    Verdict,
)
from kvorum.broker.share.core.states import DeadLetters
from kvorum.broker.share.dead_letter_loop import DeadLetterLoop
from kvorum.broker.share_state.records import ShareKey
from kvorum.runtime.errors import ErrorCode, Rejected

SEVERAL = [DeadLetters(5, 8, 1, True), DeadLetters(10, 12, 5, False)]
ONE = [DeadLetters(5, 5, 1, True)]
AWAY = Rejected(ErrorCode.LEADER_NOT_AVAILABLE, "no leader")
REFUSED = Rejected(ErrorCode.INVALID_RECORD, "a record without a key")
WRONG = Rejected(ErrorCode.INVALID_CONFIG, "another name")


def test_records_whose_dead_letters_are_written_are_archived():
    attempts = DeadLetterAttempts()
    assert attempts.verdict(SEVERAL, 7) == Verdict(archive_to=7)
    assert attempts.letters_max == LETTERS_MAX


def test_dead_letters_without_a_place_for_now_are_tried_again_after_pauses_that_double():
    attempts = DeadLetterAttempts()
    pauses = [attempts.verdict(SEVERAL, AWAY).pause_ms for _ in range(9)]
    assert pauses == [*(PAUSE_MIN_MS * 2**n for n in range(7)), PAUSE_MAX_MS, PAUSE_MAX_MS]
    attempts.verdict(SEVERAL, 12)
    assert attempts.verdict(SEVERAL, AWAY) == Verdict(pause_ms=PAUSE_MIN_MS)


def test_dead_letters_that_the_topic_can_never_take_are_lost():
    assert DeadLetterAttempts().verdict(SEVERAL, WRONG) == Verdict(archive_to=12, is_lost=True)


def test_a_record_that_the_topic_refuses_is_lost_alone():
    attempts = DeadLetterAttempts()
    assert attempts.verdict(SEVERAL, REFUSED) == Verdict()
    assert attempts.letters_max == 1
    assert attempts.verdict(ONE, REFUSED) == Verdict(archive_to=5, is_lost=True)


class Topic:
    """A dead-letter topic that gives these answers, in turn, and then takes everything."""

    def __init__(self, *answers: int | Rejected) -> None:
        self.answers = list(answers)
        self.asked: list[list[tuple[int, int]]] = []

    async def write(
        self, key: ShareKey, replica: Any, letters: Sequence[DeadLetters]
    ) -> int | Rejected:
        self.asked.append([(each.first_offset, each.last_offset) for each in letters])
        return self.answers.pop(0) if self.answers else letters[-1].last_offset


def run(
    topic: Any, first: int, last: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[ShareMetrics, list[int], list[float]]:
    """Write the dead letters of these records. Returns the counters, the records that were
    archived, and the pauses in seconds."""
    metrics, left = ShareMetrics(), list(range(first, last + 1))
    archived: list[int] = []
    pauses: list[float] = []

    def due(records_max: int) -> list[DeadLetters]:
        shown = left[:records_max]
        return [DeadLetters(shown[0], shown[-1], 1, True)] if shown else []

    def archive(begin: int, end: int) -> None:
        archived.extend(offset for offset in left if begin <= offset <= end)
        left[:] = [offset for offset in left if offset > end]

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(dead_letter_loop.asyncio, "sleep", sleep)
    loop = DeadLetterLoop(topic, metrics, ShareKey("g", bytes(16), 0))
    replica: Any = None
    asyncio.run(loop.run(replica, due, archive))
    return metrics, archived, pauses


def test_the_loop_pauses_while_the_topic_is_away_and_then_writes_all(monkeypatch, caplog):
    topic = Topic(AWAY, AWAY, 6)
    metrics, archived, pauses = run(topic, 5, 8, monkeypatch)
    assert topic.asked == [[(5, 8)], [(5, 8)], [(5, 8)], [(7, 8)]]
    assert (archived, pauses) == ([5, 6, 7, 8], [0.1, 0.2])
    assert (metrics.dead_letters, metrics.failed_dead_letter_writes) == (4, 2)
    assert metrics.lost_dead_letters == 0
    assert caplog.text.count("from record 5 on, wait and are tried again: no leader") == 2


def test_the_loop_tells_which_records_are_lost(monkeypatch, caplog):
    topic = Topic(REFUSED, 5, REFUSED)
    metrics, archived, pauses = run(topic, 5, 7, monkeypatch)
    assert topic.asked == [[(5, 7)], [(5, 5)], [(6, 6)], [(7, 7)]]
    assert (archived, pauses) == ([5, 6, 7], [])
    assert (metrics.dead_letters, metrics.lost_dead_letters) == (2, 1)
    assert "records 6 to 6, are lost: a record without a key" in caplog.text
