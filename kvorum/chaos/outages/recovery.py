"""The way back after a fault, by partition: detected, fenced, elected, learnt, acknowledged. Pure.

The unavailable time of a partition is what clients saw: the spans without an acknowledgement
(`waits`) of the outages that belong to the fault (`blame`), counted from the fault's begin and up
to their own end. The aftermath of a fault lasts AFTERMATH_MS, and no longer than to the next fault.
Beside it stand the cluster's decisions (`milestones`), each as the time from the fault's begin:

  detect  the first of the decisions below
  fence   a struck broker is fenced
  isr     the partition's ISR loses a member
  elect   the partition has another leader
  learn   first acknowledgement of a record that was written after the election
  ack     the end of the longest of the spans; None without a span

Apart from that, next_ack is the first acknowledgement of a record sent since the fault began, with
or without a silence. It may come before the silence: a leader's batches that were under way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kvorum.chaos.history import Event, details_of
from kvorum.chaos.outages.blame import SKEW_MS, Blame, BlameWindow, Timed, first_fenced
from kvorum.chaos.outages.latencies import Latencies
from kvorum.chaos.outages.milestones import (
    ACTIVE_CONTROLLER,
    FENCED,
    ISR,
    LEADER,
)
from kvorum.chaos.outages.waits import WaitSpan

#: The effects of a fault may show this long after its end: restarts, ISRs that fill, stale clients.
AFTERMATH_MS = 3_000.0

#: Faults that are one request: the history has their begin and end after its answer.
_REQUESTS = ("elect_leaders", "add_voter", "remove_voter")
#: Faults that count what they hit. Histories of older builds have hits of a step of the clock too.
_COUNTED = ("slow_disk", "fill_disk", "fail_disk", "packet_loss")

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """One partition after one fault; times are from the fault's begin, None if it did not happen.

    is_led: a node that the fault struck led the partition when the fault began. unavailable_ms is
        the sum of the spans, longest_ms the longest of them as a whole. is_over is False if the
        partition was still unavailable when the load ended.
    continued_from: the names of the earlier faults to which an outage belongs that went on during
        this one.
    """

    topic: str
    partition: int
    is_led: bool
    unavailable_ms: float
    longest_ms: float
    is_over: bool
    detect_ms: float | None
    fence_ms: float | None
    isr_ms: float | None
    elect_ms: float | None
    learn_ms: float | None
    ack_ms: float | None
    next_ack_ms: float | None
    continued_from: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSpan:
    """One fault. end_ms is None if the run ended before the fault was undone.

    struck_ms: when its first part was in force.
    begin_ms: when all of it was.
    roles: what the nodes were at that moment.
    controller_elect_ms, controller_unavailable_ms: from the fault's begin to the next active
        controller, and the time in which no topic could be created or deleted; None if there was
        none.
    hits: of a fault of disks, the calls that it hit, by node and kind.
    lost_packets: of a fault that drops packets, their number, else None.
    """

    fault_id: int
    name: str
    fault: str
    description: str
    target: str
    nodes: tuple[str, ...]
    roles: tuple[str, ...]
    is_active_controller: bool
    struck_ms: float
    begin_ms: float
    end_ms: float | None
    recoveries: tuple[Recovery, ...]
    controller_elect_ms: float | None
    controller_unavailable_ms: float | None
    hits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    lost_packets: int | None = None

    @property
    def lasted_ms(self) -> float | None:
        """How long the fault was in force; of a request that ends at once, how long it took."""
        if self.end_ms is None:
            return None
        return self.end_ms - (self.struck_ms if self.fault in _REQUESTS else self.begin_ms)

    @property
    def is_without_hit(self) -> bool:
        """True for a fault of disks or packets that was in force, and hit none of them."""
        if self.fault not in _COUNTED:
            return False
        counts = [count for of_node in self.hits.values() for count in of_node.values()]
        if self.lost_packets is not None:
            counts.append(self.lost_packets)
        was_in_force = self.end_ms is not None and self.end_ms > self.begin_ms
        return was_in_force and bool(counts) and not any(counts)

    def covers(self, time_ms: float) -> bool:
        """True while the fault is in force."""
        return self.struck_ms <= time_ms and (self.end_ms is None or time_ms <= self.end_ms)


class PartitionAcks:
    """The acknowledgements of one partition: their latencies, and the first ones after elections
    and after faults began."""

    def __init__(self) -> None:
        self.latencies = Latencies()
        self._elections: list[float] = []
        self._begins: list[float] = []
        self.learnt: dict[float, float] = {}
        self.next_ack: dict[float, float] = {}

    def elected(self, time_ms: float) -> None:
        self._elections.append(time_ms)

    def fault_began(self, time_ms: float) -> None:
        self._begins.append(time_ms)

    def acknowledged(self, time_ms: float, invoked_ms: float) -> None:
        # Milestones of the metadata log are all known beforehand, so only a prefix is due.
        if self._elections and invoked_ms >= self._elections[0]:
            _resolve(self._elections, self.learnt, time_ms, invoked_ms)
        if self._begins and invoked_ms >= self._begins[0]:
            _resolve(self._begins, self.next_ack, time_ms, invoked_ms)


def _resolve(
    waiting: list[float], found: dict[float, float], time_ms: float, invoked_ms: float
) -> None:
    due = bisect_left(waiting, invoked_ms + 1e-9)
    for moment in waiting[:due]:
        found[moment] = time_ms
    del waiting[:due]


def fault_spans(
    begins: Iterable[Event],
    ends: Mapping[int, Event],
    *,
    partitions: Mapping[Partition, Sequence[WaitSpan]],
    records: Mapping[Partition, PartitionAcks],
    administration: Sequence[WaitSpan],
    milestones: Sequence[Timed],
) -> list[FaultSpan]:
    """Every fault, from its events.

    ends: by the fault's number.
    partitions: the spans without an acknowledgement of each partition of the load, ascending.
    milestones: ascending.
    """
    decided = _Decided(milestones)
    known = list(begins)
    struck = sorted(struck_ms_of(event) for event in known)
    windows = [_window_of(event, ends, struck) for event in known]
    blames = {key: Blame(partitions[key], windows) for key in sorted(partitions)}
    of_topics = Blame(administration, windows)
    return [
        replace(
            _fault(event, window, blames, of_topics, records, decided),
            **_hits_of(ends.get(whole(details_of(event).get("id")))),
        )
        for event, window in zip(known, windows, strict=True)
    ]


def struck_ms_of(event: Event) -> float:
    """When the first part of a fault was in force, of its event fault-begin."""
    injection = details_of(event).get("injection_ms")
    return event.time_ms - (injection if isinstance(injection, int | float) else 0.0)


def _window_of(event: Event, ends: Mapping[int, Event], struck: Sequence[float]) -> BlameWindow:
    details = details_of(event)
    end = ends.get(whole(details.get("id")))
    end_ms = None if end is None else end.time_ms
    last_ms = float("inf")
    if end_ms is not None:
        following = bisect_left(struck, end_ms)
        # A span that the next fault causes begins with the last acknowledgement before it.
        later = [moment - SKEW_MS for moment in struck[following : following + 1]]
        last_ms = max(end_ms, min([end_ms + AFTERMATH_MS, *later]))
    return BlameWindow(
        name=str(details.get("name", "")),
        struck_ms=struck_ms_of(event),
        end_ms=end_ms,
        last_ms=last_ms,
        brokers=node_numbers(str(node) for node in _items(details.get("nodes"))),
    )


def _hits_of(end: Event | None) -> dict[str, Any]:
    """FaultSpan's hits and lost_packets, of the event fault-end."""
    details = {} if end is None else details_of(end)
    hits, lost = details.get("hits"), details.get("lost_packets")
    return {
        "hits": hits if isinstance(hits, dict) else {},
        "lost_packets": lost if isinstance(lost, int) else None,
    }


class _Decided:
    """Milestones, found by their subject."""

    def __init__(self, milestones: Sequence[Timed]) -> None:
        self.fenced: list[Timed] = []
        self.controllers: list[Timed] = []
        #: A partition has another leader than before.
        self.elections: dict[Partition, list[Timed]] = {}
        self.shrinks: dict[Partition, list[Timed]] = {}
        isrs: dict[Partition, frozenset[int]] = {}
        led: dict[Partition, int] = {}
        for entry in milestones:
            item = entry[1]
            if item.what == FENCED:
                self.fenced.append(entry)
            elif item.what == ACTIVE_CONTROLLER:
                self.controllers.append(entry)
            elif item.topic is None or item.partition is None:
                continue
            elif item.what == LEADER:
                key, leader = (item.topic, item.partition), whole(item.leader)
                if led.get(key, leader) != leader >= 0:
                    self.elections.setdefault(key, []).append(entry)
                if leader >= 0:
                    led[key] = leader
            elif item.what == ISR:
                key = (item.topic, item.partition)
                isr = frozenset(item.isr or ())
                if isrs.get(key, isr) - isr:
                    self.shrinks.setdefault(key, []).append(entry)
                isrs[key] = isr


def _fault(
    event: Event,
    window: BlameWindow,
    blames: Mapping[Partition, Blame],
    of_topics: Blame,
    records: Mapping[Partition, PartitionAcks],
    decided: _Decided,
) -> FaultSpan:
    details = details_of(event)
    led = _numbers(details.get("led_partitions"))
    held = _numbers(details.get("held_partitions"))
    fenced = first_fenced(window, [*blames.values(), of_topics], decided.fenced)
    recoveries = [
        _recovery(
            key, window, blame, fenced, decided,
            record=records.get(key), begin_ms=event.time_ms, is_led=key[1] in led,
        )
        for key, blame in blames.items()
        if key[1] in held or blame.is_met(window)
    ]  # fmt: skip
    stopped = of_topics.owned(window)
    is_active = details.get("is_active_controller") is True
    elected = of_topics.first(window, decided.controllers)
    return FaultSpan(
        fault_id=whole(details.get("id")),
        name=str(details.get("name", "")),
        fault=str(details.get("fault", "")),
        description=str(details.get("description", "")),
        target=str(details.get("target", "")),
        nodes=tuple(str(node) for node in _items(details.get("nodes"))),
        roles=tuple(str(role) for role in _items(details.get("roles"))),
        is_active_controller=is_active,
        struck_ms=window.struck_ms,
        begin_ms=event.time_ms,
        end_ms=window.end_ms,
        recoveries=tuple(recoveries),
        controller_elect_ms=None if elected is None else elected[0] - window.struck_ms,
        controller_unavailable_ms=window.unavailable_ms(stopped) if stopped else None,
    )


def _recovery(
    key: Partition,
    window: BlameWindow,
    blame: Blame,
    fenced: Timed | None,
    decided: _Decided,
    *,
    record: PartitionAcks | None,
    begin_ms: float,
    is_led: bool,
) -> Recovery:
    spans = blame.owned(window)
    shrunk = blame.first(window, decided.shrinks.get(key, ()))
    elected = blame.first(window, decided.elections.get(key, ()))
    since_ms = window.struck_ms
    times = [entry[0] - since_ms for entry in (fenced, shrunk, elected) if entry is not None]
    learnt = None
    ack_ms = None
    next_ack_ms = None if record is None else record.next_ack.get(begin_ms)
    if record is not None and elected is not None:
        learnt = record.learnt.get(elected[0])
    if spans:
        worst = max(spans, key=lambda span: span.length_ms)
        ack_ms = worst.end_ms if worst.is_over else None
    others = (owner.name for _, owners in blame.continued(window) for owner in owners)
    return Recovery(
        topic=key[0],
        partition=key[1],
        is_led=is_led,
        unavailable_ms=window.unavailable_ms(spans),
        longest_ms=max((span.length_ms for span in spans), default=0.0),
        is_over=all(span.is_over for span in spans),
        detect_ms=min(times, default=None),
        fence_ms=None if fenced is None else fenced[0] - since_ms,
        isr_ms=None if shrunk is None else shrunk[0] - since_ms,
        elect_ms=None if elected is None else elected[0] - since_ms,
        learn_ms=None if learnt is None else learnt - since_ms,
        ack_ms=None if ack_ms is None else ack_ms - since_ms,
        next_ack_ms=None if next_ack_ms is None else next_ack_ms - since_ms,
        continued_from=tuple(dict.fromkeys(others)),
    )


def node_numbers(nodes: Iterable[str]) -> frozenset[int]:
    """The ids in nodes' names: 101 of broker-101; names without one are left out."""
    digits = (node.rpartition("-")[2] for node in nodes)
    return frozenset(int(number) for number in digits if number.isdigit())


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _numbers(value: object) -> list[int]:
    return [item for item in _items(value) if isinstance(item, int)]


def whole(value: object) -> int:
    """The int in a field, -1 if it has none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else -1
