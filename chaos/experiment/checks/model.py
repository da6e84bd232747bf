"""The inputs and results of checks.

A check is a pure function from `Evidence` (an indexed history) to a `CheckResult`. It does not know
how the history was produced. The simulator has checks of its own, which see more than clients do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kvorum.chaos.experiment.history import (
    FAIL,
    FINAL_READ,
    INFO,
    OBSERVE,
    OK,
    POLL,
    SEND,
    Event,
    Poll,
    Send,
    details_of,
)

#: Findings that each check keeps as text; the count continues beyond them.
FINDINGS_KEPT_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken guarantee. `value` and `offset` are those of the history, None if they do not
    apply."""

    check: str
    message: str
    partition: int | None = None
    value: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The outcome of one check.

    count: the number of violations, 0 is good; findings: the first of them, as text; examined: the
    number of items that the check looked at: a check that examined none proves nothing.
    """

    check: str
    promise: str
    count: int
    examined: int
    findings: tuple[Finding, ...]

    @property
    def is_passed(self) -> bool:
        return self.count == 0


class Findings:
    """Collects the findings of one check, the first FINDINGS_KEPT_MAX as text."""

    def __init__(self, check: str, promise: str) -> None:
        self.check = check
        self.promise = promise
        self.count = 0
        self.examined = 0
        self._kept: list[Finding] = []

    def add(
        self,
        message: str,
        *,
        partition: int | None = None,
        value: int | None = None,
        offset: int | None = None,
    ) -> None:
        self.count += 1
        if len(self._kept) < FINDINGS_KEPT_MAX:
            self._kept.append(
                Finding(
                    check=self.check,
                    message=message,
                    partition=partition,
                    value=value,
                    offset=offset,
                )
            )

    def result(self) -> CheckResult:
        return CheckResult(
            check=self.check,
            promise=self.promise,
            count=self.count,
            examined=self.examined,
            findings=tuple(self._kept),
        )


@dataclass(slots=True, kw_only=True)
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


@dataclass(slots=True, kw_only=True)
class PartitionEvidence:
    """All events of one partition in a history. Pairs are (value, offset)."""

    #: Acknowledged records with the process that wrote them, in the order acknowledged.
    acknowledged: list[tuple[int, int, str]] = field(default_factory=list)
    unknown: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    invoked: set[int] = field(default_factory=set)
    #: Reads of each continuous consumer, in the order polled.
    polled: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    final: list[tuple[int, int]] = field(default_factory=list)
    final_read: FinalRead | None = None


@dataclass(slots=True, kw_only=True)
class Evidence:
    """A history, indexed for the checks."""

    partitions: dict[int, PartitionEvidence] = field(default_factory=dict)
    observations: list[Event] = field(default_factory=list)


def gather(events: Iterable[Event]) -> Evidence:
    """Index a history."""
    evidence = Evidence()
    for event in events:
        if event.f == OBSERVE:
            _observe(evidence, event)
        elif event.f == SEND:
            for op in event.ops:
                if isinstance(op, Send):
                    _send(_partition(evidence, op.partition), event, op)
        elif event.f == POLL and event.type == OK:
            for op in event.ops:
                if isinstance(op, Poll):
                    _poll(_partition(evidence, op.partition), event, op)
    return evidence


def _partition(evidence: Evidence, partition: int) -> PartitionEvidence:
    found = evidence.partitions.get(partition)
    if found is None:
        found = evidence.partitions[partition] = PartitionEvidence()
    return found


def _send(partition: PartitionEvidence, event: Event, send: Send) -> None:
    if event.type == OK:
        partition.acknowledged.append((send.value, send.offset, event.process))
    elif event.type == INFO:
        partition.unknown.add(send.value)
    elif event.type == FAIL:
        partition.failed.add(send.value)
    else:
        partition.invoked.add(send.value)


def _poll(partition: PartitionEvidence, event: Event, poll: Poll) -> None:
    if event.process == FINAL_READ:
        partition.final.extend(poll.records())
    else:
        partition.polled.setdefault(event.process, []).extend(poll.records())


def _observe(evidence: Evidence, event: Event) -> None:
    evidence.observations.append(event)
    details = details_of(event)
    if details.get("what") != FINAL_READ or event.partition is None:
        return
    _partition(evidence, event.partition).final_read = FinalRead(
        start_offset=whole(details.get("start_offset")),
        end_offset=whole(details.get("end_offset")),
        next_offset=whole(details.get("next_offset")),
    )


def whole(value: object) -> int:
    """The int in an observation's field, -1 if it has none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else -1
