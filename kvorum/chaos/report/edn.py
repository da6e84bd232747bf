"""A history as Jepsen's, in EDN: one operation map a line, for `jepsen.tests.kafka` and Elle.

    {:index 3 :time 1500000 :process 0 :type :ok :f :send :value [[:send 0 [7 42]]]}

Differences from a history of version 2:
- A Jepsen process has one operation under way, and none after one of unknown outcome. So the
  operations of one of our processes are spread over as many numbers as it needs, the lowest free
  one first: a client that waits for its answers keeps its number.
- Keys are numbers; a comment names the topic and partition of each before its first use.
- Polls and assignments are written when they end; their invocation comes directly before.
- An `:assign` names all partitions that a member owns from then on, after a revoke too.
- Offsets are committed by polls and transactions implicitly; commits, share groups, observations
  and topic administration have no operation there and are left out.
"""

from __future__ import annotations

import heapq
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from kvorum.chaos.history import (
    ASSIGN,
    FAIL,
    FAULT_BEGIN,
    FAULT_END,
    INFO,
    INVOKE,
    OK,
    POLL,
    REVOKE,
    SEND,
    TRANSACTION,
    Event,
    Operation,
    Poll,
    Send,
    details_of,
    read_history,
)

_NS_PER_MS = 1_000_000


def write_edn(history_path: str, out_path: str) -> int:
    """Write the history of a file as EDN. Returns the number of operations written.

    The file appears when it is complete. Raises CorruptData for a damaged history, OSError.
    """
    beside = f"{out_path}.tmp"
    count = 0
    try:
        with open(beside, "w", encoding="utf-8") as file:
            for line in edn_lines(read_history(history_path)):
                count += not line.startswith(";")
                file.write(line + "\n")
        os.replace(beside, out_path)
    finally:
        Path(beside).unlink(missing_ok=True)
    return count


def edn_lines(events: Iterable[Event]) -> Iterator[str]:
    """The lines of the EDN file: operations, and a comment before each new key."""
    writer = _Writer()
    for event in events:
        if event.f in (SEND, POLL, TRANSACTION):
            yield from writer.operation(event)
        elif event.f in (ASSIGN, REVOKE):
            yield from writer.assignment(event)
        elif event.f in (FAULT_BEGIN, FAULT_END):
            yield from writer.fault(event)


class _Processes:
    """The EDN process numbers of one client. A Jepsen process has one operation at a time, so a
    client with several open operations needs several numbers.

    free: a heap.
    open: by operation.
    """

    def __init__(self) -> None:
        self.free: list[int] = []
        self.open: dict[object, int] = {}


class _Writer:
    """Numbers operations, processes and keys."""

    def __init__(self) -> None:
        self._index = 0
        self._time_ns = 0
        self._numbers = 0
        self._processes: dict[str, _Processes] = {}
        self._keys: dict[tuple[str, int], int] = {}
        self._owned: dict[str, set[tuple[str, int]]] = {}

    def operation(self, event: Event) -> Iterator[str]:
        """A send, poll or transaction."""
        if not event.ops:
            # An error of the client itself, or a transaction that did nothing.
            return
        yield from self._new_keys(
            [(op.topic, op.partition) for op in event.ops if isinstance(op, Send | Poll)]
        )
        identity = _identity(event)
        f = ":txn" if event.f == TRANSACTION else f":{event.f}"
        if event.type == INVOKE:
            yield self._invoke(event, identity, f, self._value(event.ops, INVOKE))
            return
        processes = self._processes_of(event.process)
        if identity not in processes.open:
            yield self._invoke(event, identity, f, self._value(event.ops, INVOKE))
        yield self._complete(event, identity, f, self._value(event.ops, event.type))

    def assignment(self, event: Event) -> Iterator[str]:
        """A change of what a member owns."""
        if event.type in (INVOKE, FAIL):
            return
        yield from self._new_keys(event.partitions)
        owned = self._owned.setdefault(event.process, set())
        if event.f == ASSIGN:
            owned.update(event.partitions)
        else:
            owned.difference_update(event.partitions)
        value = _vector(str(number) for number in sorted(self._keys[key] for key in owned))
        identity = (ASSIGN, event.index)
        yield self._invoke(event, identity, ":assign", value)
        number = self._processes_of(event.process).open[identity]
        self._free(event.process, identity)
        yield self._line(event.time_ms, str(number), OK, ":assign", value)

    def fault(self, event: Event) -> Iterator[str]:
        """A fault begins or ends. Jepsen's nemesis states each of its operations twice."""
        details = details_of(event)
        fields = (("fault", details.get("fault")), ("description", details.get("description")))
        words = [f":{name} {_text(str(value))}" for name, value in fields if value is not None]
        for _ in range(2):
            yield self._line(
                event.time_ms, ":nemesis", INFO, f":{event.f}", "{" + " ".join(words) + "}"
            )

    # --- parts of a line ---------------------------------------------------------------------

    def _invoke(self, event: Event, identity: object, f: str, value: str) -> str:
        processes = self._processes_of(event.process)
        if processes.free:
            number = heapq.heappop(processes.free)
        else:
            number = self._numbers
            self._numbers += 1
        processes.open[identity] = number
        return self._line(event.invoked_ms, str(number), INVOKE, f, value)

    def _complete(self, event: Event, identity: object, f: str, value: str) -> str:
        number = self._processes_of(event.process).open[identity]
        if event.type == INFO:
            # As in Jepsen: a process whose operation has an unknown outcome is not used again.
            del self._processes_of(event.process).open[identity]
        else:
            self._free(event.process, identity)
        return self._line(event.time_ms, str(number), event.type, f, value, event.error)

    def _free(self, process: str, identity: object) -> None:
        processes = self._processes_of(process)
        heapq.heappush(processes.free, processes.open.pop(identity))

    def _processes_of(self, process: str) -> _Processes:
        return self._processes.setdefault(process, _Processes())

    def _new_keys(self, keys: Iterable[tuple[str, int]]) -> Iterator[str]:
        for key in keys:
            if key not in self._keys:
                self._keys[key] = len(self._keys)
                yield f"; key {self._keys[key]} is {key[0]}-{key[1]}"

    def _value(self, ops: tuple[Operation, ...], type: str) -> str:
        """The micro-operations: one poll of all partitions, and the sends."""
        parts: list[str] = []
        polled: dict[int, list[str]] = {}
        for op in ops:
            if isinstance(op, Poll):
                pairs = polled.setdefault(self._keys[op.topic, op.partition], [])
                pairs += [f"[{offset} {value}]" for value, offset in op.records()]
        if polled and type == INVOKE:
            parts.append("[:poll]")
        elif polled:
            entries = (f"{key} {_vector(pairs)}" for key, pairs in polled.items())
            parts.append("[:poll {" + ", ".join(entries) + "}]")
        for op in ops:
            if isinstance(op, Send):
                key = self._keys[op.topic, op.partition]
                if type == OK or (type == INFO and op.offset >= 0):
                    offset = str(op.offset) if op.offset >= 0 else "nil"
                    parts.append(f"[:send {key} [{offset} {op.value}]]")
                else:
                    parts.append(f"[:send {key} {op.value}]")
        return _vector(parts)

    def _line(
        self,
        time_ms: float,
        process: str,
        type: str,
        f: str,
        value: str,
        error: str | None = None,
    ) -> str:
        # An invocation may be written after later events: its time is raised to theirs, since times
        # must not fall.
        self._time_ns = max(self._time_ns, round(time_ms * _NS_PER_MS))
        told = "" if error is None else f" :error {_text(error)}"
        line = (
            f"{{:index {self._index} :time {self._time_ns} :process {process} :type :{type} "
            f":f {f} :value {value}{told}}}"
        )
        self._index += 1
        return line


def _identity(event: Event) -> object:
    """The values that an outcome shares with its invocation among the operations of one process."""
    if event.f == SEND:
        return (SEND, tuple((op.topic, op.value) for op in event.ops if isinstance(op, Send)))
    return event.f


def _vector(parts: Iterable[str]) -> str:
    return "[" + " ".join(parts) + "]"


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
