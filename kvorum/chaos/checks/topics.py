"""Topic administration: each name is a register, absent or present.

Creations and deletions are decided by the active controller alone, so they are linearizable. A
creation refused with TOPIC_ALREADY_EXISTS saw the topic present, a deletion refused with
UNKNOWN_TOPIC_OR_PARTITION saw it absent. The answers to describe-topic and list-topics come from a
broker's metadata, which may be behind: they must show some earlier state (`topic-anomaly`), and
`stale-topic-read` counts the names where only an earlier one fits.

The answers in `details`: `exists` of describe-topic, a bool; `topics` of list-topics, all names.
"""

from __future__ import annotations

from kvorum.chaos.checks import catalogue
from kvorum.chaos.checks.gather import Fold
from kvorum.chaos.checks.linearizability import (
    NEVER,
    SearchTooLong,
    TimedCall,
    is_linearizable,
)
from kvorum.chaos.checks.results import Board
from kvorum.chaos.history import (
    CREATE_TOPIC,
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
    FAIL,
    INFO,
    INVOKE,
    LIST_TOPICS,
    OK,
    Event,
    details_of,
)

CREATE, DELETE, IS_PRESENT, IS_ABSENT = "create", "delete", "is-present", "is-absent"
LEAVE_PRESENT, LEAVE_ABSENT = "leave-present", "leave-absent"
"""A creation or deletion, or a retry that saw what its first try had done."""

_ABSENT, _PRESENT = False, True
_EXISTS = "TOPIC_ALREADY_EXISTS"
#: librdkafka's name of the error lacks the end.
_UNKNOWN = "UNKNOWN_TOPIC_OR_PART"


def step(is_present: bool, operation: str) -> tuple[bool, ...]:
    """The register: the state after an operation, none if it cannot happen in this state."""
    if operation == CREATE:
        return () if is_present else (_PRESENT,)
    if operation == DELETE:
        return (_ABSENT,) if is_present else ()
    if operation == LEAVE_PRESENT:
        return (_PRESENT,)
    if operation == LEAVE_ABSENT:
        return (_ABSENT,)
    return (is_present,) if is_present == (operation == IS_PRESENT) else ()


class Topics:
    """The fold. It keeps the administrators' operations, by name."""

    def __init__(self, board: Board) -> None:
        self._anomaly = board[catalogue.TOPIC_ANOMALY]
        self._stale = board[catalogue.STALE_TOPIC_READ]
        self._decided: dict[str, list[TimedCall[str]]] = {}
        self._read: dict[str, list[TimedCall[str]]] = {}
        self._created: set[str] = set()
        self._lists: list[tuple[float, float, frozenset[str]]] = []

    def folds(self) -> dict[str, Fold]:
        """By the function of the events that each takes."""
        return {
            CREATE_TOPIC: self._change,
            DELETE_TOPIC: self._change,
            DESCRIBE_TOPIC: self._describe,
            LIST_TOPICS: self._list,
        }

    def _change(self, event: Event) -> None:
        name = event.topic or ""
        if event.type == INVOKE:
            if event.f == CREATE_TOPIC:
                self._created.add(name)
            return
        operation = _operation_of(event)
        if operation is None:
            return
        self._decided.setdefault(name, []).append(
            TimedCall(
                operation=operation,
                invoked=event.invoked_ms,
                returned=NEVER if event.type == INFO else event.time_ms,
                is_read=operation in (IS_PRESENT, IS_ABSENT),
            )
        )

    def _describe(self, event: Event) -> None:
        exists = details_of(event).get("exists")
        if event.type == OK and isinstance(exists, bool):
            reads = self._read.setdefault(event.topic or "", [])
            reads.append(_read(event.invoked_ms, event.time_ms, is_present=exists))

    def _list(self, event: Event) -> None:
        topics = details_of(event).get("topics")
        if event.type == OK and isinstance(topics, list):
            self._lists.append((event.invoked_ms, event.time_ms, frozenset(map(str, topics))))

    def finish(self) -> None:
        """Search for an order of each name's operations."""
        listed = frozenset().union(*(topics for _, _, topics in self._lists))
        for name in sorted(self._decided.keys() | self._read.keys() | listed):
            decided = self._decided.get(name, [])
            reads = self._read.get(name, []) + [
                _read(invoked, returned, is_present=name in topics)
                for invoked, returned, topics in self._lists
            ]
            try:
                self._judge(name, decided, reads)
            except SearchTooLong as error:
                # Not examined is not passed: the note says so.
                self._anomaly.note(f"topic {name}: {error}")

    def _judge(self, name: str, decided: list[TimedCall[str]], reads: list[TimedCall[str]]) -> None:
        # A topic that nobody created during the run may have been there before.
        initial = (_ABSENT,) if name in self._created else (_ABSENT, _PRESENT)
        late = [_read(-NEVER, call.returned, is_present=_shows(call)) for call in reads]
        is_explained = is_linearizable(decided + late, initial, step)
        self._anomaly.examined += len(decided) + len(reads)
        if not is_explained:
            self._anomaly.add(
                f"no order of the {len(decided)} creations and deletions and {len(reads)} reads "
                f"of topic {name} explains their answers",
                topic=name,
            )
        elif reads:
            is_fresh = is_linearizable(decided + reads, initial, step)
            self._stale.examined += len(reads)
            if not is_fresh:
                self._stale.add(f"reads of topic {name} showed an earlier state", topic=name)


def _operation_of(event: Event) -> str | None:
    """The effect of a creation or deletion, or the topic's state by its refusal; None if the
    event tells neither."""
    error = event.error or ""
    is_creation = event.f == CREATE_TOPIC
    is_refusal = error.startswith(_EXISTS if is_creation else _UNKNOWN)
    if event.type == FAIL:
        if not is_refusal:
            return None
        return IS_PRESENT if is_creation else IS_ABSENT
    if event.type == OK and is_refusal:
        return LEAVE_PRESENT if is_creation else LEAVE_ABSENT
    return CREATE if is_creation else DELETE


def _read(invoked: float, returned: float, *, is_present: bool) -> TimedCall[str]:
    operation = IS_PRESENT if is_present else IS_ABSENT
    return TimedCall(operation=operation, invoked=invoked, returned=returned, is_read=True)


def _shows(call: TimedCall[str]) -> bool:
    return call.operation == IS_PRESENT
