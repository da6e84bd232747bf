"""The history of a run, version 2: one JSON object a line, in the order in which things were seen.

The first line is a `Header`, every other line an `Event`. An operation of a client is a list of
sends, polls and committed offsets, as in Jepsen's Kafka tests, with its transaction, group and
generation where there are any. It has two events: `invoke`, then its outcome `ok`, `fail`
(certainly no effect) or `info` (unknown). A send that timed out is `info`: its record may be in the
log. A client may have many operations under way; an outcome states `latency_ms`, so its invocation
was at `time_ms - latency_ms`.

Functions (`f`), and the fields that they use:
  send          ops: Send; invoked without offset, acknowledged with it
  poll          ops: Poll, with group and generation if the reader is a member of a group
  transaction   ops: Send, Poll and Commit; transaction: the transactional id; ok is committed, fail
                is aborted
  commit        ops: Commit; group, generation
  assign        partitions: those that a member of a group gets; ops: Commit, the offsets it found
  revoke        partitions: those that it gives up before another member may own them; info: it lost
                them, and another member may own them already
  join          a member of a share group begins, written before it asks for anything; group;
                details: lock_duration_ms and delivery_count_limit of the group
  leave         ok: it leaves the group, written before it says so to the cluster; info: it was
                killed, or said that it leaves and got an error
  deliver       ops: Delivery; group
  acknowledge   ops: one Acknowledgement, of one partition; group; invoked before it is sent
  create-topic, delete-topic, describe-topic, list-topics
                topic; details: the answer
  observe       details: an observation, named by its key `what`; topic and partition if it is of
                one partition. The kinds: `chaos.outages.observations`
  fault-begin, fault-end
                details: the fault (`chaos.live.faults.injector`)
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal

import msgspec

from kvorum.runtime.errors import CorruptData

HISTORY_FILE = "history.jsonl"
HISTORY_VERSION = 2

SEND: Final = "send"
POLL: Final = "poll"
TRANSACTION: Final = "transaction"
COMMIT: Final = "commit"
ASSIGN: Final = "assign"
REVOKE: Final = "revoke"
JOIN: Final = "join"
LEAVE: Final = "leave"
DELIVER: Final = "deliver"
ACKNOWLEDGE: Final = "acknowledge"
CREATE_TOPIC: Final = "create-topic"
DELETE_TOPIC: Final = "delete-topic"
DESCRIBE_TOPIC: Final = "describe-topic"
LIST_TOPICS: Final = "list-topics"
OBSERVE: Final = "observe"
FAULT_BEGIN: Final = "fault-begin"
FAULT_END: Final = "fault-end"

INVOKE: Final = "invoke"
OK: Final = "ok"
FAIL: Final = "fail"
INFO: Final = "info"

#: Processes that are no load.
FINAL_READ = "final-read"
NEMESIS = "nemesis"
OBSERVER = "observer"

Type = Literal["invoke", "ok", "fail", "info"]
Function = Literal[
    "send", "poll", "transaction", "commit", "assign", "revoke", "join", "leave", "deliver",
    "acknowledge", "create-topic", "delete-topic", "describe-topic", "list-topics", "observe",
    "fault-begin", "fault-end",
]  # fmt: skip

#: Functions whose outcome has an invocation: always if it is ok, else if it has a latency.
_INVOKED = frozenset(
    {
        SEND, TRANSACTION, COMMIT, ACKNOWLEDGE, CREATE_TOPIC, DELETE_TOPIC, DESCRIBE_TOPIC,
        LIST_TOPICS,
    }
)  # fmt: skip

#: Events younger than this may be lost if the process is killed.
_FLUSH_INTERVAL_NS = 1_000_000_000
_BUFFER_BYTES = 1 << 18


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line.

    wall_start_ms: milliseconds since 1970 at time_ms 0.
    system: the name and version of the system under test.
    run_id: the run's name in exported tables.
    """

    history: int
    run_id: str
    system: str
    wall_start_ms: int


class Send(msgspec.Struct, frozen=True, array_like=True, tag="send", gc=False):
    """One record written.

    value: unique in its partition.
    offset: -1 until it is acknowledged, and after an acknowledgement without one.
    partition: -1 if the client's partitioner chooses it and has not told.
    """

    topic: str
    partition: int
    value: int
    offset: int = -1
    key: str | None = None


class Poll(msgspec.Struct, frozen=True, array_like=True, tag="poll", gc=False):
    """Records of one partition that one poll returned. values[i] was read at offsets[i]; a value
    is -1 if the record is not the load's."""

    topic: str
    partition: int
    offsets: tuple[int, ...]
    values: tuple[int, ...]

    def records(self) -> Iterator[tuple[int, int]]:
        """(value, offset) pairs, in the order read."""
        return zip(self.values, self.offsets, strict=True)


class Commit(msgspec.Struct, frozen=True, array_like=True, tag="commit", gc=False):
    """A committed offset of a group: the next offset to read."""

    topic: str
    partition: int
    offset: int


class Delivery(msgspec.Struct, frozen=True, array_like=True, tag="delivery", gc=False):
    """Records of one partition that a member of a share group got in one poll. counts[i] is the
    delivery count that came with offsets[i]; 0 if the client does not show it."""

    topic: str
    partition: int
    offsets: tuple[int, ...]
    counts: tuple[int, ...]


class Acknowledgement(
    msgspec.Struct, frozen=True, array_like=True, tag="acknowledgement", gc=False
):
    """The answer of a member of a share group to records of one partition: types[i] is ACCEPT,
    RELEASE or REJECT of offsets[i]."""

    topic: str
    partition: int
    offsets: tuple[int, ...]
    types: tuple[str, ...]


ACCEPT: Final = "accept"
RELEASE: Final = "release"
REJECT: Final = "reject"

Operation = Send | Poll | Commit | Delivery | Acknowledgement


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One line of a history; the module docstring says which fields a function uses.

    index: number of the event, from 0.
    time_ms: monotonic milliseconds since the run began, to the microsecond.
    process: the client, for example producer-1.
    error: Kafka's error name and text.
    """

    index: int
    time_ms: float
    process: str
    type: Type
    f: Function
    ops: tuple[Operation, ...] = ()
    topic: str | None = None
    partition: int | None = None
    partitions: tuple[tuple[str, int], ...] = ()
    transaction: str | None = None
    group: str | None = None
    generation: int | None = None
    details: dict[str, Any] | None = None
    latency_ms: float | None = None
    error: str | None = None

    @property
    def invoked_ms(self) -> float:
        """The time of an outcome's invocation; of any other event its own time."""
        return self.time_ms - (self.latency_ms or 0.0)


class HistoryWriter:
    """Appends events to a file; may be called from several threads.

    Events get their index and time under one lock, so that index order is time order.
    """

    def __init__(self, path: str, *, run_id: str = "", system: str = "") -> None:
        self._file = open(path, "wb", buffering=_BUFFER_BYTES)  # noqa: SIM115
        self._lock = threading.Lock()
        self._encode = msgspec.json.Encoder().encode
        self._index = 0
        self._start_ns = time.monotonic_ns()
        self._flushed_ns = 0
        header = Header(
            history=HISTORY_VERSION,
            run_id=run_id,
            system=system,
            wall_start_ms=time.time_ns() // 1_000_000,
        )
        self._file.write(self._encode(header) + b"\n")

    def now_ms(self) -> float:
        """Milliseconds since the history began."""
        return (time.monotonic_ns() - self._start_ns) / 1e6

    def append(
        self,
        *,
        process: str,
        type: Type,
        f: Function,
        ops: Sequence[Operation] = (),
        topic: str | None = None,
        partition: int | None = None,
        partitions: Sequence[tuple[str, int]] = (),
        transaction: str | None = None,
        group: str | None = None,
        generation: int | None = None,
        details: dict[str, Any] | None = None,
        invoked_ms: float | None = None,
        error: str | None = None,
    ) -> float:
        """Append one event. Returns its time_ms.

        invoked_ms: what append returned for the invocation of this outcome.
        """
        with self._lock:
            now_ns = time.monotonic_ns()
            elapsed_ns = now_ns - self._start_ns
            # Rounded to the microsecond here, so that what is returned is what is written.
            time_ms = round(elapsed_ns / 1e6, 3)
            event = Event(
                index=self._index,
                time_ms=time_ms,
                process=process,
                type=type,
                f=f,
                ops=tuple(ops),
                topic=topic,
                partition=partition,
                partitions=tuple(partitions),
                transaction=transaction,
                group=group,
                generation=generation,
                details=details,
                latency_ms=None if invoked_ms is None else round(time_ms - invoked_ms, 3),
                error=error,
            )
            self._file.write(self._encode(event) + b"\n")
            self._index += 1
            if now_ns - self._flushed_ns >= _FLUSH_INTERVAL_NS:
                self._file.flush()
                self._flushed_ns = now_ns
        return time_ms

    def flush(self) -> None:
        """Hand everything to the operating system."""
        with self._lock:
            self._file.flush()

    def close(self) -> None:
        """Flush and close; the file is complete afterwards."""
        with self._lock:
            self._file.close()

    def __enter__(self) -> HistoryWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def read_header(path: str) -> Header:
    """The first line of a history. Raises CorruptData for a file of another version, or one that is
    no history."""
    with open(path, "rb") as file:
        return _header(path, file.readline())


def has_events(path: str) -> bool:
    """True if a file holds more than the header that a run writes when it begins."""
    with open(path, "rb") as file:
        return len(file.readline()) > 0 and bool(file.readline())


def read_history(path: str) -> Iterator[Event]:
    """The events of a file, in order.

    A last line without its newline is left by a killed run and is skipped. Raises CorruptData for a
    file of another version, and, with the line number from 1, for any other line that is no event
    or that shows that lines are missing.
    """
    order = _Order()
    decode = msgspec.json.Decoder(Event).decode
    with open(path, "rb") as file:
        line = file.readline()
        _header(path, line)
        position = len(line)
        for number, line in enumerate(file, 2):
            if not line.endswith(b"\n"):
                return
            try:
                event = decode(line)
                for op in event.ops:
                    _check_lengths(op)
            except ValueError as error:
                reason = f"line {number} is no history event: {error}"
                raise CorruptData(path, position, reason) from error
            if missing := order.take(event):
                reason = f"the history is damaged at line {number}: {missing}"
                raise CorruptData(path, position, reason)
            position += len(line)
            yield event


def _check_lengths(op: Operation) -> None:
    """Raise ValueError if the columns of an operation have different lengths."""
    if isinstance(op, Poll) and len(op.offsets) != len(op.values):
        raise ValueError("values and offsets of a poll must be as many")
    if isinstance(op, Delivery) and len(op.offsets) != len(op.counts):
        raise ValueError("counts and offsets of a delivery must be as many")
    if isinstance(op, Acknowledgement) and len(op.offsets) != len(op.types):
        raise ValueError("types and offsets of an acknowledgement must be as many")


class _Order:
    """Sees lines that are missing in a history, from the lines that are there. Without it a removed
    acknowledgement would only weaken the verdict. Memory: a number for each process and function,
    and the ids of the faults."""

    def __init__(self) -> None:
        self._next_index = 0
        self._open: Counter[tuple[str, str]] = Counter()
        self._faults: set[Any] = set()

    def take(self, event: Event) -> str:
        """Take in the next event; says what is missing before it, "" for nothing."""
        wanted, self._next_index = self._next_index, event.index + 1
        if event.index != wanted:
            return f"event {event.index} follows where event {wanted} belongs"
        operation = (event.process, event.f)
        if event.type == INVOKE:
            self._open[operation] += 1
        elif event.f in _INVOKED and (event.type == OK or event.latency_ms is not None):
            if not self._open[operation]:
                return f"event {event.index}, {event.type} of a {event.f}, has no invocation"
            self._open[operation] -= 1
        elif event.f == FAULT_BEGIN:
            self._faults.add(details_of(event).get("id"))
        elif event.f == FAULT_END and details_of(event).get("id") not in self._faults:
            return f"event {event.index}, the end of a fault, has no {FAULT_BEGIN}"
        return ""


def check_whole(path: str, size_bytes: int | None) -> None:
    """Raise CorruptData if the file is shorter than it was when its run ended.

    size_bytes: the size then; None for a run that was killed, which leaves what it has written.
    Without this check the lost part would look like records that no consumer got.
    """
    found = os.path.getsize(path)
    if size_bytes is not None and found < size_bytes:
        raise CorruptData(
            path,
            found,
            f"the history was cut off: it had {size_bytes} bytes when its run ended; copy the "
            "run's folder again",
        )


def _header(path: str, line: bytes) -> Header:
    try:
        document = msgspec.json.decode(line)
    except ValueError as error:
        raise CorruptData(path, 0, f"line 1 is no header of a history: {error}") from error
    version = document.get("history", 1) if isinstance(document, dict) else None
    if version != HISTORY_VERSION:
        raise CorruptData(
            path,
            0,
            f"a history of version {version}, this Kvorum reads version {HISTORY_VERSION}; "
            "judge it with the release that wrote it, or run the experiment again",
        )
    try:
        return msgspec.convert(document, Header)
    except msgspec.ValidationError as error:
        raise CorruptData(path, 0, f"line 1 is no header of a history: {error}") from error


def details_of(event: Event) -> Mapping[str, Any]:
    """The object that a fault or an observation carries; empty when there is none."""
    return event.details if event.details is not None else {}
