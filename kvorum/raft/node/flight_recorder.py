"""The flight recorder: keeps the last events and effects of a node's core, and replays them.

The events lie in a ring of chapters. Each chapter begins with a checkpoint of the whole core, so
that a replay can start there once older chapters have been dropped. Nothing is encoded or written
in normal operation; `lines` and `dump_to` encode the ring on request. Line format:
../docs/protocol/flight-recorder.md.

Only `step` may change the core. A change that the driver makes in another way appears as a
difference at the next checkpoint.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kvorum import __version__
from kvorum.raft.core.raft_core import RaftCore
from kvorum.raft.model.effects import Effect
from kvorum.raft.model.events import Event, RequestReceived, ResponseReceived
from kvorum.raft.node.flight_codec import (
    UndecodableValue,
    decode,
    dumps,
    encode,
    encode_attributes,
    restore_attributes,
)
from kvorum.runtime.clock import SYSTEM_CLOCK, Clock, monotonic_ms
from kvorum.runtime.disk import Disk, OsDisk
from kvorum.runtime.errors import KvorumError

FORMAT_VERSION = 1

EVENTS_MAX = 5_000
PAYLOAD_BYTES_MAX = 4 << 20
CHAPTERS = 8
"""A full ring drops an eighth of its events at a time, and takes a new checkpoint as often."""
CHECKPOINT_USUAL_BYTES = 32 << 10
CHECKPOINT_BYTES_AN_EVENT = 50
"""A larger checkpoint is taken less often, and the ring then keeps more events: that of a leader of
1,000 brokers takes 20 ms."""

DUMPS_MAX = 8
"""Number of files that `dump_to` leaves in a folder. A node that fails at each start must not fill
the disk."""

DUMP_PREFIX, DUMP_SUFFIX = "flight-", ".jsonl"


class FlightRecordError(KvorumError):
    """A record that cannot be replayed; the message names the line and its fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayDifference:
    """The first point at which the replayed core differs from the record.

    line_number: of the record, from 1.
    event: JSON text of the event, empty for a checkpoint.
    recorded, now: JSON texts of the effects in order, of the core's attributes, or of the error
        that was raised.
    """

    line_number: int
    at_ms: int
    event: str
    recorded: tuple[str, ...]
    now: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """The result of a replay.

    events: number of events stepped.
    is_whole: the record's last line was read.
    """

    node_id: int
    version: str
    reason: str
    events: int
    first_difference: ReplayDifference | None
    is_whole: bool


@dataclass(frozen=True, slots=True)
class _Raised:
    """Takes the place of the effects of a step that ended in an error."""

    text: str


_Entry = tuple[int, Event, list[Effect] | _Raised]


@dataclass(slots=True)
class _Chapter:
    checkpoint: str
    entries: list[_Entry] = field(default_factory=list)
    payload_bytes: int = 0


class FlightRecorder:
    """The ring of one core. Create it before the core's first step.

    events_max: maximum number of events kept.
    payload_bytes_max: limit of the record bytes in them.
    """

    def __init__(
        self,
        core: RaftCore,
        *,
        events_max: int = EVENTS_MAX,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """clock: the node's, for the wall times of records."""
        # If other parts drew from the same generator between two steps, the core's draws could not
        # be repeated from its checkpoint.
        core.rng = random.Random(core.rng.getrandbits(128))
        self._core = core
        self._clock = clock
        self._events_max = events_max
        self._payload_bytes_max = payload_bytes_max
        self._chapter_events_max = 1
        self._chapter_bytes_max = max(payload_bytes_max // CHAPTERS, 1)
        self._chapters: deque[_Chapter] = deque()
        self._events = 0
        self._payload_bytes = 0
        self._chapter: _Chapter
        self._begin_chapter()

    def __len__(self) -> int:
        """The number of events in the ring."""
        return self._events + len(self._chapter.entries)

    @property
    def payload_bytes(self) -> int:
        """The record bytes in the events of the ring."""
        return self._payload_bytes + self._chapter.payload_bytes

    def note(self, now_ms: int, event: Event, effects: list[Effect]) -> None:
        """Keep a step that has just been made. The caller must not change `effects` afterwards."""
        chapter = self._chapter
        chapter.entries.append((now_ms, event, effects))
        size = _payload_bytes_of(event)
        if size:
            chapter.payload_bytes += size
        if (
            len(chapter.entries) >= self._chapter_events_max
            or chapter.payload_bytes >= self._chapter_bytes_max
        ):
            self._begin_chapter()

    def note_failure(self, now_ms: int, event: Event, error: BaseException) -> None:
        """Keep a step that ended in an error. It is the last step of this core."""
        self._chapter.entries.append((now_ms, event, _Raised(_error_text(error))))

    def lines(self, *, reason: str = "asked for") -> Iterator[str]:
        """The ring as it is now, one JSON text a line, oldest first; each line is encoded when it
        is read."""
        chapters = [(c.checkpoint, list(c.entries)) for c in (*self._chapters, self._chapter)]
        return _encoded(self._header(reason), chapters)

    def dump_to(self, directory: str, reason: str, *, disk: Disk | None = None) -> str:
        """Write the ring to `directory`/flight-<milliseconds since 1970>.jsonl and return that
        path.

        The file is fsynced on return. Of the older files the newest `DUMPS_MAX` - 1 are kept.
        Raises OSError.
        """
        disk = disk or OsDisk()
        path = os.path.join(directory, f"{DUMP_PREFIX}{self._clock.wall_ms()}{DUMP_SUFFIX}")
        text = "".join(f"{line}\n" for line in self.lines(reason=reason))
        disk.write_atomic(path, text.encode())
        # Leave out the new file by its name: if the clock was set back, it does not sort last.
        others = [
            name
            for name in disk.list_dir(directory)
            if name.startswith(DUMP_PREFIX)
            and name.endswith(DUMP_SUFFIX)
            and name != os.path.basename(path)
        ]
        for name in others[: 1 - DUMPS_MAX]:
            disk.remove(os.path.join(directory, name))
        return path

    def _header(self, reason: str) -> dict[str, Any]:
        config = self._core.config
        return {
            "flight": FORMAT_VERSION,
            "node_id": config.node_id,
            "cluster_id": config.cluster_id,
            "version": __version__,
            "reason": reason,
            "wall_ms": self._clock.wall_ms(),
            "now_ms": monotonic_ms(),
        }

    def _begin_chapter(self) -> None:
        if hasattr(self, "_chapter"):
            self._chapters.append(self._chapter)
            self._events += len(self._chapter.entries)
            self._payload_bytes += self._chapter.payload_bytes
        while self._chapters and (
            (len(self._chapters) > 1 and self._events + self._chapter_events_max > self._events_max)
            or self._payload_bytes + self._chapter_bytes_max > self._payload_bytes_max
        ):
            oldest = self._chapters.popleft()
            self._events -= len(oldest.entries)
            self._payload_bytes -= oldest.payload_bytes
        # The checkpoint is encoded at once, because the core goes on changing the objects in it.
        self._chapter = _Chapter(dumps(encode_attributes(self._core)))
        excess = len(self._chapter.checkpoint) - CHECKPOINT_USUAL_BYTES
        self._chapter_events_max = max(
            self._events_max // CHAPTERS, excess // CHECKPOINT_BYTES_AN_EVENT, 1
        )


def replay(lines: Iterable[str]) -> ReplayOutcome:
    """Step a core through a record again, up to the first difference.

    Raises FlightRecordError for a line that is damaged, that has a newer format, or whose values
    this version does not know.
    """
    return _Replay().run(lines)


def restore(checkpoint: dict[str, Any]) -> RaftCore:
    """A core in the state of a checkpoint. Raises UndecodableValue."""
    core = RaftCore.__new__(RaftCore)
    restore_attributes(core, checkpoint)
    return core


def _encoded(header: dict[str, Any], chapters: list[tuple[str, list[_Entry]]]) -> Iterator[str]:
    yield dumps(header)
    events = 0
    for checkpoint, entries in chapters:
        yield f'{{"checkpoint":{checkpoint}}}'
        for now_ms, event, effects in entries:
            line: dict[str, Any] = {"at": now_ms, "event": encode(event)}
            if isinstance(effects, _Raised):
                line["raised"] = effects.text
            else:
                line["effects"] = [encode(effect) for effect in effects]
            yield dumps(line)
        events += len(entries)
    yield dumps({"end": events})


class _Replay:
    """One replay of the lines of a record."""

    def __init__(self) -> None:
        self._header: dict[str, Any] = {}
        self._core: RaftCore | None = None
        self._events = 0
        self._last_ms = 0
        self._is_whole = False

    def run(self, lines: Iterable[str]) -> ReplayOutcome:
        difference = None
        for number, text in enumerate(lines, 1):
            try:
                difference = self._replay_line(number, text)
            except _BadLine as error:
                raise FlightRecordError(f"line {number}: {error}") from error
            except UndecodableValue as error:
                made_by = self._header.get("version")
                other = f" (recorded by kvorum {made_by})" if made_by != __version__ else ""
                raise FlightRecordError(f"line {number}: {error}{other}") from error
            if difference is not None:
                break
        if not self._header:
            raise FlightRecordError("line 1: the record is empty")
        return ReplayOutcome(
            node_id=self._header["node_id"],
            version=self._header["version"],
            reason=self._header["reason"],
            events=self._events,
            first_difference=difference,
            is_whole=self._is_whole,
        )

    def _replay_line(self, number: int, text: str) -> ReplayDifference | None:
        try:
            line = json.loads(text)
        except ValueError as error:
            raise _BadLine(f"damaged, not JSON: {error}") from error
        if not isinstance(line, dict):
            raise _BadLine("damaged, not an object")
        if number == 1:
            self._take_header(line)
            return None
        if self._is_whole:
            raise _BadLine("damaged, it follows the last line")
        match line:
            case {"checkpoint": dict(checkpoint)}:
                return self._take_checkpoint(number, checkpoint)
            case {"at": int(at_ms), "event": event, "effects": list(effects)}:
                return self._step(number, at_ms, event, tuple(map(dumps, effects)))
            case {"at": int(at_ms), "event": event, "raised": str(raised)}:
                return self._step(number, at_ms, event, (raised,))
            case {"end": int(events)}:
                if events != self._events:
                    raise _BadLine(f"damaged, {events} events were written, {self._events} read")
                self._is_whole = True
                return None
            case _:
                raise _BadLine(f"damaged, neither event nor checkpoint: {text[:80]!r}")

    def _take_header(self, line: dict[str, Any]) -> None:
        match line:
            case {"flight": int(version)} if version > FORMAT_VERSION:
                raise _BadLine(
                    f"format {version} is newer than this version of kvorum, "
                    f"which reads up to {FORMAT_VERSION}"
                )
            case {"flight": int(), "node_id": int(), "version": str(), "reason": str()}:
                self._header = line
            case _:
                raise _BadLine("not the first line of a flight record")

    def _take_checkpoint(self, number: int, checkpoint: dict[str, Any]) -> ReplayDifference | None:
        if self._core is None:
            self._core = restore(checkpoint)
            return None
        now = {name: dumps(value) for name, value in encode_attributes(self._core).items()}
        recorded = {name: dumps(value) for name, value in checkpoint.items()}
        differing = [n for n in {**recorded, **now} if recorded.get(n) != now.get(n)]
        if not differing:
            return None
        return ReplayDifference(
            line_number=number,
            at_ms=self._last_ms,
            event="",
            recorded=tuple(f"{name} = {recorded.get(name, 'not there')}" for name in differing),
            now=tuple(f"{name} = {now.get(name, 'not there')}" for name in differing),
        )

    def _step(
        self, number: int, at_ms: int, form: Any, recorded: tuple[str, ...]
    ) -> ReplayDifference | None:
        if self._core is None:
            raise _BadLine("damaged, an event comes before the first checkpoint")
        event = decode(form)
        now: tuple[str, ...]
        try:
            now = tuple(dumps(encode(effect)) for effect in self._core.step(event, at_ms))
        except Exception as error:  # noqa: BLE001 - what it raises is what it does
            now = (_error_text(error),)
        self._events += 1
        self._last_ms = at_ms
        if now == recorded:
            return None
        return ReplayDifference(
            line_number=number, at_ms=at_ms, event=dumps(form), recorded=recorded, now=now
        )


class _BadLine(Exception):
    """The line being read has a fault."""


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


_PAYLOAD_FIELDS: dict[type, tuple[str, ...]] = {}


def _payload_bytes_of(event: Event) -> int:
    """The record bytes in an event: the fields of type bytes, or tuple of bytes."""
    carrier: Any = event
    if isinstance(event, ResponseReceived):
        carrier = event.response
    elif isinstance(event, RequestReceived):
        carrier = event.request
    kind = type(carrier)
    names = _PAYLOAD_FIELDS.get(kind)
    if names is None:
        names = _PAYLOAD_FIELDS[kind] = tuple(
            item.name for item in dataclasses.fields(kind) if "bytes" in str(item.type)
        )
    size = 0
    for name in names:
        value = getattr(carrier, name)
        size += len(value) if isinstance(value, bytes | bytearray) else sum(map(len, value))
    return size
