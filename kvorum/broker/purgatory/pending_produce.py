"""Requests that wait for the replication of what they appended (acks=all)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kvorum.broker.purgatory.deadlines import Deadlines
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.produce_codec import ProducedPartition


class PendingAcks:
    """One request, and those of its appends that wait, each by its number in the request.

    on_done: called once, when the last one is complete or the deadline has passed.
    errors: of the appends that failed.
    """

    __slots__ = ("_deadlines", "_on_done", "_waiting", "deadline_bucket", "errors")

    def __init__(self, on_done: Callable[[], None], deadlines: Deadlines) -> None:
        self.deadline_bucket = -1
        self.errors: dict[int, ErrorCode] = {}
        self._on_done = on_done
        self._deadlines = deadlines
        self._waiting: dict[int, None] = {}

    @property
    def is_done(self) -> bool:
        return not self._waiting

    def wait_for(self, number: int) -> None:
        """Wait for one more append."""
        self._waiting[number] = None

    def complete(self, number: int, error: ErrorCode) -> None:
        """Complete one append; the last one ends the request. Repeats are ignored."""
        waiting = self._waiting
        if number not in waiting:
            return
        del waiting[number]
        if error != ErrorCode.NONE:
            self.errors[number] = error
        if not waiting:
            self._deadlines.remove(self)
            self._on_done()

    def expire(self) -> None:
        self.errors |= dict.fromkeys(self._waiting, ErrorCode.REQUEST_TIMED_OUT)
        self._waiting.clear()
        self._on_done()

    def cancel(self) -> None:
        """Forget the request: its connection is closed."""
        self._deadlines.remove(self)
        self._waiting.clear()


class PendingProduce(PendingAcks):
    """A Produce request that waits. answers: of its partitions, by their number in the request."""

    __slots__ = ("_respond", "answers")

    def __init__(
        self,
        answers: list[ProducedPartition],
        respond: Callable[[list[ProducedPartition]], None],
        deadlines: Deadlines,
    ) -> None:
        super().__init__(self._finish, deadlines)
        self.answers = answers
        self._respond = respond

    def put(self, number: int, answer: ProducedPartition) -> None:
        """Set the answer of a partition that still waits; `complete` may turn it into an error."""
        if number in self._waiting:
            self.answers[number] = answer

    def _finish(self) -> None:
        answers = self.answers
        for number, error in self.errors.items():
            answers[number] = ProducedPartition(answers[number].partition_id, error.value)
        self._respond(answers)


class PendingAck(NamedTuple):
    """An acks=-1 append, one of a request's, waiting until the high watermark reaches
    required_offset (exclusive)."""

    required_offset: int
    pending: PendingAcks
    number: int
