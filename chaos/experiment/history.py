"""The history of a run: one JSON object a line, in the order in which things were seen.

Keys of a line (absent ones are null):
  index      int     number of the line, from 0
  time_ms    float   monotonic milliseconds since the run began, to the microsecond
  wall_ms    int     milliseconds since 1970
  process    str     who: producer-1, consumer-1, final-read, nemesis, observer, topic-creator
  type       str     invoke | ok | fail | info; info means the outcome is unknown
  f          str     produce | consume | create-topic | fault-begin | fault-end | observe
  partition  int     of the experiment's topic
  value      produce: the int written. consume: list of ints read. faults, observe: an object
  offset     produce: the offset acknowledged. consume: list of offsets, as long as value
  latency_ms float   on the outcome of a produce or create-topic: since its invocation
  error      str     Kafka's error name and text

A produce that timed out may or may not be in the log: it is info, never fail.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

from kvorum.runtime.errors import CorruptData

HISTORY_FILE = "history.jsonl"

PRODUCE = "produce"
CONSUME = "consume"
CREATE_TOPIC = "create-topic"
FAULT_BEGIN = "fault-begin"
FAULT_END = "fault-end"
OBSERVE = "observe"

INVOKE = "invoke"
OK = "ok"
FAIL = "fail"
INFO = "info"

TYPES = (INVOKE, OK, FAIL, INFO)
FUNCTIONS = (PRODUCE, CONSUME, CREATE_TOPIC, FAULT_BEGIN, FAULT_END, OBSERVE)

FINAL_READ = "final-read"
NEMESIS = "nemesis"
OBSERVER = "observer"

Value = int | str | list[int] | dict[str, object] | None

#: Bytes that are buffered before they are written to the file.
_BUFFER_BYTES = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of a history; the module docstring says what each field holds."""

    index: int
    time_ms: float
    wall_ms: int
    process: str
    type: str
    f: str
    partition: int | None = None
    value: Value = None
    offset: int | list[int] | None = None
    latency_ms: float | None = None
    error: str | None = None


class HistoryWriter:
    """Appends events to a file; may be called from several threads.

    Lines get their number and time under one lock, so that index order is time order.
    """

    def __init__(self, path: str) -> None:
        self._file = open(path, "w", encoding="utf-8", buffering=_BUFFER_BYTES)  # noqa: SIM115
        self._lock = threading.Lock()
        self._index = 0
        self._start_ns = time.monotonic_ns()
        self._wall_start_ns = time.time_ns()

    def now_ms(self) -> float:
        """Milliseconds since the history began."""
        return (time.monotonic_ns() - self._start_ns) / 1e6

    def produce_invoked(self, process: str, partition: int, value: int) -> float:
        """Record that the load hands a record to the client. Returns the event's time_ms, for its
        outcome."""
        tail = f'"{process}","type":"invoke","f":"produce","partition":{partition},"value":{value}'
        return self._write(tail)

    def produce_acknowledged(
        self, process: str, partition: int, value: int, offset: int, invoked_ms: float
    ) -> None:
        """Record that the cluster acknowledged the record at that offset."""
        head = f'"{process}","type":"ok","f":"produce","partition":{partition},"value":{value}'
        latency_ms = self.now_ms() - invoked_ms
        self._write(f'{head},"offset":{offset},"latency_ms":{latency_ms:.3f}')

    def append(
        self,
        *,
        process: str,
        type: str,
        f: str,
        partition: int | None = None,
        value: Value = None,
        offset: int | Sequence[int] | None = None,
        latency_ms: float | None = None,
        error: str | None = None,
    ) -> float:
        """Append any other event. Returns its time_ms."""
        fields: dict[str, object] = {"type": type, "f": f}
        for key, item in (
            ("partition", partition),
            ("value", value),
            ("offset", offset),
            ("latency_ms", None if latency_ms is None else round(latency_ms, 3)),
            ("error", error),
        ):
            if item is not None:
                fields[key] = item
        body = json.dumps(fields, separators=(",", ":"), allow_nan=False)
        return self._write(f"{json.dumps(process)},{body[1:-1]}")

    def flush(self) -> None:
        """Hand everything written so far to the operating system."""
        with self._lock:
            self._file.flush()

    def close(self) -> None:
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

    def _write(self, tail: str) -> float:
        with self._lock:
            elapsed_ns = time.monotonic_ns() - self._start_ns
            # Both times come from one start time, so that a step of the wall clock cannot reorder a
            # history.
            wall_ms = (self._wall_start_ns + elapsed_ns) // 1_000_000
            self._file.write(
                f'{{"index":{self._index},"time_ms":{elapsed_ns / 1e6:.3f},'
                f'"wall_ms":{wall_ms},"process":{tail}}}\n'
            )
            self._index += 1
        return elapsed_ns / 1e6


def read_history(path: str) -> Iterator[Event]:
    """The events of a file, in order.

    A last line without its newline is left by a killed run and is skipped. Raises CorruptData, with
    the line number from 1, for any other line that is not an event.
    """
    position = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield _parse(line)
            except (ValueError, TypeError) as error:
                reason = f"line {number} is no history event: {error}"
                raise CorruptData(path, position, reason) from error
            position += len(line)


def _parse(line: bytes) -> Event:
    """Raises ValueError, TypeError."""
    event = Event(**json.loads(line))
    if event.type not in TYPES or event.f not in FUNCTIONS:
        raise ValueError(f"unknown type {event.type!r} or f {event.f!r}")
    if not isinstance(event.time_ms, int | float) or not isinstance(event.wall_ms, int):
        raise TypeError(f"time_ms {event.time_ms!r} and wall_ms {event.wall_ms!r} must be numbers")
    if event.partition is not None and not isinstance(event.partition, int):
        raise TypeError(f"partition {event.partition!r} must be a number")
    if isinstance(event.value, list) and event.f == CONSUME:
        offsets = event.offset
        if not isinstance(offsets, list) or len(offsets) != len(event.value):
            raise ValueError("values and offsets of a consume must be as many")
    return event


def records_of(event: Event) -> Iterator[tuple[int, int]]:
    """(value, offset) pairs of a consume or of an acknowledged produce."""
    if isinstance(event.value, list) and isinstance(event.offset, list):
        yield from zip(event.value, event.offset, strict=True)
    elif isinstance(event.value, int) and isinstance(event.offset, int):
        yield event.value, event.offset


def details_of(event: Event) -> Mapping[str, object]:
    """The object that a fault or an observation carries; empty when there is none."""
    return event.value if isinstance(event.value, dict) else {}
