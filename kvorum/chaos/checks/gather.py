"""One pass over a history: the records of every partition go into spooled columns, all other events
to the folds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvorum.chaos.checks.columns import Spool
from kvorum.chaos.checks.results import whole
from kvorum.chaos.history import (
    ACCEPT,
    ACKNOWLEDGE,
    ASSIGN,
    DELIVER,
    FAIL,
    FINAL_READ,
    INFO,
    INVOKE,
    OBSERVE,
    OK,
    POLL,
    REJECT,
    RELEASE,
    REVOKE,
    SEND,
    TRANSACTION,
    Acknowledgement,
    Commit,
    Delivery,
    Event,
    Poll,
    Send,
    details_of,
)

Key = tuple[str, int]
"""A topic and a partition number; -1 for records whose partition is not known yet."""
Fold = Callable[[Event], None]
"""Takes every event of the functions that it is registered for, in their order."""

#: States of a transaction's records.
COMMITTED, UNKNOWN, ABORTED = 0, 1, 2
_STATES = {OK: COMMITTED, INFO: UNKNOWN, FAIL: ABORTED}
#: Marks of a poll: its records count for a committed transaction or a plain poll; a transaction's;
#: the consumer continues after its records.
IS_OK, IS_TRANSACTION, IS_POSITION = 1, 2, 4
#: Kinds of a row of a share group: a member got a record, and it begins to acknowledge it.
DELIVERED, ACKNOWLEDGING = 0, 1
#: The other kinds: an acknowledgement that was confirmed, by its type.
CONFIRMED = {ACCEPT: 2, RELEASE: 3, REJECT: 4}
#: Events, and records polled, between two looks at the memory in use.
_TRIM_EVERY = 1 << 14
_TRIM_RECORDS = 1 << 19


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalRead:
    """The result of the read after healing, whose goal was the offsets [start_offset, end_offset).

    end_offset is -1 if the partition did not answer.
    """

    start_offset: int
    end_offset: int
    next_offset: int

    @property
    def is_complete(self) -> bool:
        return 0 <= self.end_offset <= self.next_offset


class Columns:
    """The columns that one partition's checks need, by kind. The widths name the numbers of a row:

    - acked: value, offset, process, event, time and latency in microseconds
    - written, of transactions only: value, offset, event, state
    - polls: process, segment, event, invocation in microseconds, count of records, marks
    - committed, of transactions only: event, group, offset, state
    - keyed, of compacted topics only: value, key
    - shared, of share groups only: kind, time and invocation in microseconds, process, group,
      offset, delivery count (0 if it is not known, and of acknowledgements)
    """

    __slots__ = (
        "acked", "committed", "failed", "final_offsets", "final_values", "invoked", "keyed",
        "polls", "read_offsets", "read_values", "shared", "written",
    )  # fmt: skip

    def __init__(self, spool: Spool) -> None:
        self.acked = spool.column(6)
        self.invoked = spool.column()
        self.failed = spool.column()
        self.written = spool.column(4)
        self.polls = spool.column(6)
        self.read_offsets = spool.column()
        self.read_values = spool.column()
        self.final_offsets = spool.column()
        self.final_values = spool.column()
        self.committed = spool.column(4)
        self.keyed = spool.column(2)
        self.shared = spool.column(7)


class Gathered:
    """A history after its pass. columns: of each partition that has any. Use as a context manager:
    leaving it removes the spooled files."""

    def __init__(
        self,
        *,
        compacted_topics: frozenset[str] = frozenset(),
        trimmed_topics: frozenset[str] = frozenset(),
        retried_topics: frozenset[str] = frozenset(),
        spool: Spool | None = None,
    ) -> None:
        self.compacted_topics = compacted_topics
        self.trimmed_topics = trimmed_topics
        self.retried_topics = retried_topics
        self.columns: dict[Key, Columns] = {}
        self.final_reads: dict[Key, FinalRead] = {}
        self.processes: list[str] = []
        self.groups: list[str] = []
        #: Topics that a consumer polled during the run, outside transactions.
        self.polled_topics: set[str] = set()
        self._spool = Spool() if spool is None else spool
        self._process_numbers: dict[str, int] = {}
        self._group_numbers: dict[str, int] = {}
        self._group_of: dict[int, str] = {}
        self._keys: dict[str, int] = {}
        #: The partitions of each member, and the number of its tenure of each partition.
        self._owned: dict[int, set[Key]] = {}
        self._segments: dict[tuple[int, Key], int] = {}
        self._untrimmed = 0

    def __enter__(self) -> Gathered:
        return self

    def __exit__(self, *_: object) -> None:
        self._spool.close()

    def partitions(self) -> list[Key]:
        """The partitions, in order."""
        return sorted(key for key in self.columns if key[1] >= 0)

    def seer(self, process: int) -> tuple[str, bool]:
        """The name under which a process's reads count: its group's, with True, if it has one."""
        group = self._group_of.get(process)
        return (self.processes[process], False) if group is None else (f"group {group}", True)

    def read(self, events: Iterable[Event], folds: dict[str, list[Fold]]) -> None:
        """Take in all events. folds: by the function of the events that they take."""
        for count, event in enumerate(events, 1):
            f = event.f
            if f == SEND:
                self._send(event)
            elif f == POLL:
                if event.type != INVOKE:
                    self._poll(event, 0)
            elif f == TRANSACTION:
                self._transaction(event)
            elif f in (ASSIGN, REVOKE):
                self._assign(event)
            elif f in (DELIVER, ACKNOWLEDGE):
                self._share(event)
            elif f == OBSERVE:
                self._observe(event)
            for fold in folds.get(f, ()):
                fold(event)
            if not count % _TRIM_EVERY or self._untrimmed > _TRIM_RECORDS:
                self._spool.trim()
                self._untrimmed = 0

    # --- records -----------------------------------------------------------------------------

    def _of(self, key: Key) -> Columns:
        columns = self.columns.get(key)
        if columns is None:
            columns = self.columns[key] = Columns(self._spool)
        return columns

    def _number(self, process: str) -> int:
        number = self._process_numbers.get(process)
        if number is None:
            number = self._process_numbers[process] = len(self.processes)
            self.processes.append(process)
        return number

    def _send(self, event: Event) -> None:
        kind = event.type
        for op in event.ops:
            if type(op) is not Send:
                continue
            columns = self.columns.get((op.topic, op.partition))
            if columns is None:
                columns = self._of((op.topic, op.partition))
            if kind == OK:
                columns.acked.extend(
                    (
                        op.value,
                        op.offset,
                        self._number(event.process),
                        event.index,
                        int(event.time_ms * 1000),
                        int((event.latency_ms or 0.0) * 1000),
                    )
                )
            elif kind == FAIL:
                columns.failed.extend((op.value,))
            else:
                columns.invoked.extend((op.value,))
            if op.topic in self.compacted_topics and op.key is not None:
                columns.keyed.extend((op.value, self._keys.setdefault(op.key, len(self._keys))))

    def _poll(self, event: Event, marks: int) -> None:
        process = self._number(event.process)
        if event.type == OK:
            marks |= IS_OK | IS_POSITION
        if event.group is not None:
            self._group_of[process] = event.group
        elif event.type == FAIL:
            # A member of a group goes back to the committed offsets when its transaction is
            # aborted; a consumer that assigned itself reads on.
            marks |= IS_POSITION
        # Without its assignments nobody knows which polls of a member follow each other.
        is_judged = event.type != INFO and (event.group is None or process in self._owned)
        for op in event.ops:
            if type(op) is not Poll:
                continue
            key = (op.topic, op.partition)
            columns = self._of(key)
            self._untrimmed += len(op.offsets)
            if event.process == FINAL_READ:
                columns.final_offsets.extend(op.offsets)
                columns.final_values.extend(op.values)
                continue
            if not marks & IS_TRANSACTION:
                self.polled_topics.add(op.topic)
            columns.read_offsets.extend(op.offsets)
            columns.read_values.extend(op.values)
            segment = self._segments.get((process, key), 0)
            invoked_us = int(event.invoked_ms * 1000)
            columns.polls.extend(
                (process, segment, event.index, invoked_us, len(op.offsets), marks)
            )
            if not is_judged:
                self._segments[process, key] = segment + 1

    def _transaction(self, event: Event) -> None:
        self._send(event)
        state = _STATES.get(event.type)
        if state is None:
            return
        self._poll(event, IS_TRANSACTION)
        for op in event.ops:
            if type(op) is Send:
                columns = self._of((op.topic, op.partition))
                columns.written.extend((op.value, op.offset, event.index, state))
            elif type(op) is Commit:
                columns = self._of((op.topic, op.partition))
                columns.committed.extend(
                    (event.index, self._group_number(event.group or ""), op.offset, state)
                )

    def _share(self, event: Event) -> None:
        """Records that a member of a share group got or acknowledges. Outcomes other than ok prove
        nothing, and are left out."""
        process, group = self._number(event.process), self._group_number(event.group or "")
        times = (int(event.time_ms * 1000), int(event.invoked_ms * 1000))
        for op in event.ops:
            rows: Iterable[tuple[int, int, int]] = ()
            if type(op) is Delivery and event.type == OK:
                rows = ((DELIVERED, *row) for row in zip(op.offsets, op.counts, strict=True))
            elif type(op) is Acknowledgement and event.type == INVOKE:
                rows = ((ACKNOWLEDGING, offset, 0) for offset in op.offsets)
            elif type(op) is Acknowledgement and event.type == OK:
                pairs = zip(op.offsets, op.types, strict=True)
                rows = ((CONFIRMED[kind], offset, 0) for offset, kind in pairs)
            else:
                continue
            shared = self._of((op.topic, op.partition)).shared
            for kind, offset, count in rows:
                shared.extend((kind, *times, process, group, offset, count))

    def _group_number(self, group: str) -> int:
        number = self._group_numbers.get(group)
        if number is None:
            number = self._group_numbers[group] = len(self.groups)
            self.groups.append(group)
        return number

    # --- what says how to judge the records --------------------------------------------------

    def _assign(self, event: Event) -> None:
        """A member that gets a partition, or gives it up, does not continue its last poll there."""
        process = self._number(event.process)
        if event.group is not None:
            self._group_of[process] = event.group
        owned = self._owned.setdefault(process, set())
        for key in event.partitions:
            if event.f == ASSIGN:
                owned.add(key)
            else:
                owned.discard(key)
            self._segments[process, key] = self._segments.get((process, key), 0) + 1

    def _observe(self, event: Event) -> None:
        details = details_of(event)
        if details.get("what") != FINAL_READ or event.partition is None:
            return
        key = (event.topic or "", event.partition)
        self._of(key)
        self.final_reads[key] = FinalRead(
            start_offset=whole(details.get("start_offset")),
            end_offset=whole(details.get("end_offset")),
            next_offset=whole(details.get("next_offset")),
        )
