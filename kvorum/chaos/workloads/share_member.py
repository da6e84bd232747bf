"""One member of a share group: it joins, takes records, acknowledges each, and leaves.

`python -m kvorum.chaos.workloads.share_member` is a member as a process of its own, which can be
killed with records in hand. It writes each event to its standard output and waits for an answer
before it goes on, so that an acknowledgement stands in the history before it is sent. It ends when
its standard input does.
"""

from __future__ import annotations

import contextlib
import json
import random
import select
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from kvorum.chaos.experiment_file.workloads import ShareGroupPlan
from kvorum.chaos.history import (
    ACCEPT,
    ACKNOWLEDGE,
    DELIVER,
    FAIL,
    INFO,
    INVOKE,
    JOIN,
    LEAVE,
    OK,
    REJECT,
    RELEASE,
    Acknowledgement,
    Delivery,
    Function,
    Operation,
    Type,
)

POLL_S = 0.1
_COMMIT_TIMEOUT_S = 15.0
#: The leader did not count the acknowledgement: it is certain that the member held nothing.
_REFUSALS = frozenset({"INVALID_RECORD_STATE"})


class EventSink(Protocol):
    """The part of HistoryWriter that a member needs."""

    def append(
        self,
        *,
        process: str,
        type: Type,
        f: Function,
        ops: Sequence[Operation] = (),
        group: str | None = None,
        details: dict[str, Any] | None = None,
        invoked_ms: float | None = None,
        error: str | None = None,
    ) -> float:
        """Append one event. Returns its time_ms."""
        ...


class ShareSession:
    """A member from its join to its end. It is used by one thread.

    process: its name in the history, which no other session has.
    settings: librdkafka's, of the connection.
    """

    def __init__(
        self,
        *,
        process: str,
        settings: Mapping[str, Any],
        plan: ShareGroupPlan,
        topic: str,
        history: EventSink,
        rng: random.Random,
    ) -> None:
        self._process = process
        self._settings = settings
        self._plan = plan
        self._topic = topic
        self._history = history
        self._rng = rng
        self._consumer: Any = None

    def join(self) -> None:
        """Join the group. Raises KafkaException."""
        from confluent_kafka import ShareConsumer

        plan = self._plan
        limits = {
            "lock_duration_ms": plan.lock_duration_ms,
            "delivery_count_limit": plan.delivery_count_limit,
        }
        self._note(OK, JOIN, details=limits)
        self._consumer = ShareConsumer(
            {
                **self._settings,
                "group.id": plan.group,
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": plan.records_per_poll,
            }
        )
        self._consumer.subscribe([self._topic])

    def turn(self) -> int:
        """Take records and acknowledge them. Returns the number of records."""
        messages = list(self._consumer.poll(POLL_S))
        for message in messages:
            if message.error() is not None:
                self._note(INFO, DELIVER, error=str(message.error()))
        records = [message for message in messages if message.error() is None]
        if records:
            self._note(OK, DELIVER, ops=deliveries_of(records))
            self._acknowledge(records)
        return len(records)

    def leave(self) -> None:
        """Leave the group."""
        from confluent_kafka import KafkaException

        self._note(OK, LEAVE)
        try:
            self._consumer.close()
        except KafkaException as error:
            # The coordinator did not hear it: the session ends by its timeout.
            self._note(INFO, LEAVE, error=error.args[0].name())

    def _acknowledge(self, records: Sequence[Any]) -> None:
        """Acknowledge every record, partition by partition in the history, by one commit."""
        from confluent_kafka import IllegalStateException, KafkaException

        types = [self._draw() for _ in records]
        asked = acknowledgements_of(records, types)
        invoked = {
            (ack.topic, ack.partition): self._note(INVOKE, ACKNOWLEDGE, ops=[ack]) for ack in asked
        }
        problems: dict[tuple[str, int], str] = {}
        for record, kind in zip(records, types, strict=True):
            try:
                self._consumer.acknowledge(record, _number_of(kind))
            except IllegalStateException as error:
                # The client knows already that the member holds the record no longer.
                problems[record.topic(), record.partition()] = str(error)
        answers: dict[tuple[str, int], str | None] = {}
        try:
            for place, failure in self._consumer.commit_sync(_COMMIT_TIMEOUT_S).items():
                reason = None if failure is None else failure.args[0].name()
                answers[place.topic, place.partition] = reason
        except KafkaException as error:
            answers |= dict.fromkeys(invoked, error.args[0].name())
        for ack in asked:
            where = (ack.topic, ack.partition)
            reason = problems.get(where, answers.get(where, "no answer"))
            self._note(
                outcome_of(reason), ACKNOWLEDGE, ops=[ack], invoked_ms=invoked[where], error=reason
            )

    def _draw(self) -> str:
        drawn = self._rng.randrange(100)
        if drawn < self._plan.rejected_percent:
            return REJECT
        released = self._plan.rejected_percent + self._plan.released_percent
        return RELEASE if drawn < released else ACCEPT

    def _note(self, type: Type, f: Function, **fields: Any) -> float:
        return self._history.append(
            process=self._process, type=type, f=f, group=self._plan.group, **fields
        )


def deliveries_of(records: Sequence[Any]) -> list[Delivery]:
    """Messages of a share consumer as deliveries, one of each partition."""
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for record in records:
        row = (record.offset(), record.delivery_count() or 0)
        found.setdefault((record.topic(), record.partition()), []).append(row)
    return [
        Delivery(*where, tuple(offset for offset, _ in rows), tuple(count for _, count in rows))
        for where, rows in sorted(found.items())
    ]


def acknowledgements_of(records: Sequence[Any], types: Sequence[str]) -> list[Acknowledgement]:
    """The acknowledgements of messages, one of each partition."""
    found: dict[tuple[str, int], list[tuple[int, str]]] = {}
    for record, kind in zip(records, types, strict=True):
        where = (record.topic(), record.partition())
        found.setdefault(where, []).append((record.offset(), kind))
    return [
        Acknowledgement(*where, tuple(at for at, _ in rows), tuple(kind for _, kind in rows))
        for where, rows in sorted(found.items())
    ]


def outcome_of(error: str | None) -> Type:
    """The type of an acknowledgement's outcome. error: the name of its error, None without one."""
    if error is None:
        return OK
    return FAIL if error in _REFUSALS else INFO


def _number_of(kind: str) -> Any:
    from confluent_kafka import AcknowledgeType

    return AcknowledgeType[kind.upper()]


class _Stopped(Exception):
    """The process that reads the events has ended, or wants no more."""


class _PipedHistory:
    """An EventSink on standard output. Each line has the arguments of `append`; the answer is the
    event's time_ms."""

    def append(self, **fields: Any) -> float:
        sys.stdout.write(msgspec.json.encode(fields).decode() + "\n")
        sys.stdout.flush()
        answer = sys.stdin.readline()
        if not answer:
            raise _Stopped
        return float(answer)


def piped_event(line: bytes) -> dict[str, Any]:
    """The arguments of `append` in a line of the process. Raises ValueError."""
    fields: dict[str, Any] = json.loads(line)
    if "ops" in fields:
        fields["ops"] = msgspec.convert(fields["ops"], list[Operation])
    return fields


def start_line(
    *, process: str, settings: Mapping[str, Any], plan: ShareGroupPlan, topic: str, seed: int
) -> bytes:
    """The first line that the process reads. It is no argument, because it may have a password."""
    start = {
        "process": process, "settings": dict(settings), "topic": topic, "seed": seed,
        "plan": msgspec.to_builtins(plan),
    }  # fmt: skip
    return msgspec.json.encode(start) + b"\n"


def main() -> int:
    """A member as a process, until it is killed or its standard input ends. Returns 1 if its client
    cannot go on, with the reason on standard error."""
    from confluent_kafka import KafkaException

    start = json.loads(sys.stdin.readline())
    session = ShareSession(
        process=start["process"],
        settings=start["settings"],
        plan=msgspec.convert(start["plan"], ShareGroupPlan),
        topic=start["topic"],
        history=_PipedHistory(),
        rng=random.Random(start["seed"]),
    )
    try:
        with contextlib.suppress(_Stopped):
            session.join()
            while not _is_at_end():
                session.turn()
    except KafkaException as error:
        sys.stderr.write(f"{error.args[0].str()}\n")
        return 1
    return 0


def _is_at_end() -> bool:
    """True if standard input has ended: between two events no answer is due. A member that gets no
    records would otherwise outlive a run that was killed."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


if __name__ == "__main__":
    sys.exit(main())
