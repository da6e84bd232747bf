"""What follows an attempt to write dead letters: which are tried again, and when. Pure.

written           their records are archived
refused for now   all are tried again, after a pause that doubles
refused for ever  their records are archived without dead letters, as in Kafka. If the topic does
                  not take one record of several, each is tried alone: the others may be taken
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvorum.broker.share.core.states import DeadLetters
from kvorum.runtime.errors import ErrorCode, Rejected

LETTERS_MAX = 500
"""Dead letters of one batch."""
PAUSE_MIN_MS, PAUSE_MAX_MS = 100, 10_000
"""Between two attempts: the first, and the longest."""

_OF_RECORDS = frozenset(
    {ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}
)
_FINAL = _OF_RECORDS | {
    ErrorCode.INVALID_CONFIG,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.POLICY_VIOLATION,
}


class Verdict(NamedTuple):
    """archive_to: records up to this offset need no dead letter any more; None: all do.
    is_lost: those records have none.
    pause_ms: before the next attempt.
    """

    archive_to: int | None = None
    is_lost: bool = False
    pause_ms: int = 0


class DeadLetterAttempts:
    """The attempts of one share-partition, one after the other.

    letters_max: dead letters that the next attempt may have.
    """

    __slots__ = ("_pause_ms", "letters_max")

    def __init__(self) -> None:
        self.letters_max = LETTERS_MAX
        self._pause_ms = PAUSE_MIN_MS

    def verdict(self, letters: Sequence[DeadLetters], answer: int | Rejected) -> Verdict:
        """What follows. answer: the last offset that was written, or the reason why none was."""
        if isinstance(answer, Rejected) and answer.code not in _FINAL:
            pause_ms = self._pause_ms
            self._pause_ms = min(2 * pause_ms, PAUSE_MAX_MS)
            return Verdict(pause_ms=pause_ms)
        first, last = letters[0].first_offset, letters[-1].last_offset
        if isinstance(answer, Rejected) and answer.code in _OF_RECORDS and first < last:
            self.letters_max = 1
            return Verdict()
        self._pause_ms = PAUSE_MIN_MS
        if isinstance(answer, Rejected):
            return Verdict(archive_to=last, is_lost=True)
        return Verdict(archive_to=answer)
