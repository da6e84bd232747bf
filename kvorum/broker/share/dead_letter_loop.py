"""Writes the dead letters of one share-partition until there are none. The driver of
`core.dead_letter_attempts`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from kvorum.broker.metrics.share_counters import ShareMetrics
from kvorum.broker.partition.replica import Replica
from kvorum.broker.share.core.dead_letter_attempts import DeadLetterAttempts, Verdict
from kvorum.broker.share.core.states import DeadLetters, count_up_to
from kvorum.broker.share.dead_letters import DeadLetterWriter
from kvorum.broker.share_state.records import ShareKey
from kvorum.runtime.errors import Rejected

_log = logging.getLogger(__name__)


class DeadLetterLoop:
    """See the docstring of this module."""

    def __init__(self, writer: DeadLetterWriter, metrics: ShareMetrics, key: ShareKey) -> None:
        self._writer = writer
        self._metrics = metrics
        self._key = key

    async def run(
        self,
        replica: Replica,
        due: Callable[[int], Sequence[DeadLetters]],
        archive: Callable[[int, int], None],
    ) -> None:
        """Return once none is due.

        due: the first dead letters, so many records at most; none once the share-partition ends.
        archive: called with the first and the last offset of records that need none any more.
        """
        attempts = DeadLetterAttempts()
        while letters := due(attempts.letters_max):
            answer = await self._writer.write(self._key, replica, letters)
            verdict = attempts.verdict(letters, answer)
            self._note(letters, answer, verdict)
            if verdict.archive_to is not None:
                archive(letters[0].first_offset, verdict.archive_to)
            elif verdict.pause_ms:
                await asyncio.sleep(verdict.pause_ms / 1000)

    def _note(
        self, letters: Sequence[DeadLetters], answer: int | Rejected, verdict: Verdict
    ) -> None:
        metrics = self._metrics
        if not isinstance(answer, Rejected):
            metrics.dead_letters += count_up_to(letters, answer)
            return
        metrics.failed_dead_letter_writes += 1
        first, last = letters[0].first_offset, letters[-1].last_offset
        if verdict.is_lost:
            lost = count_up_to(letters, last)
            metrics.lost_dead_letters += lost
            _log.warning(
                "%d dead letters of %s, records %d to %d, are lost: %s",
                lost, self._key, first, last, answer.message,
            )  # fmt: skip
        elif verdict.pause_ms:
            _log.warning(
                "dead letters of %s, from record %d on, wait and are tried again: %s",
                self._key, first, answer.message,
            )  # fmt: skip
