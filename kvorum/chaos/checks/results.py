"""The results of checks, and the board on which checks enter what they found.

A check does not know how the history was produced. The simulator has checks of its own beside
these, which see more than clients do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

#: Findings that each check keeps as text; the count continues beyond them.
FINDINGS_KEPT_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A check's name and the guarantee that it judges.

    jepsen: the name of the anomaly in Jepsen's Kafka tests, None if Jepsen has no such check.
    is_allowed: Kafka does not promise it; the count is worth knowing and fails no run.
    """

    check: str
    promise: str
    jepsen: str | None = None
    is_allowed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken guarantee. `value` and `offset` are those of the history, None if they do not
    apply."""

    check: str
    message: str
    topic: str | None = None
    partition: int | None = None
    value: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The outcome of one check.

    count: the number of violations, 0 is good.
    findings: the first of them, as text.
    examined: the number of items that the check looked at: a check that examined none proves
        nothing.
    is_allowed: violations fail no run, because Kafka does not promise this.
    figures: what the check measured, by name with unit.
    notes: what the check could not judge.
    is_decided: False if the run ended before what the check needs.
    """

    check: str
    promise: str
    count: int
    examined: int
    findings: tuple[Finding, ...]
    is_allowed: bool = False
    figures: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    is_decided: bool = True

    @property
    def is_passed(self) -> bool:
        return self.count == 0 or self.is_allowed


class Findings:
    """Collects the findings of one check, the first FINDINGS_KEPT_MAX as text."""

    def __init__(self, promise: Promise) -> None:
        self.promise = promise
        self.count = 0
        self.examined = 0
        self.figures: dict[str, float] = {}
        self._kept: list[Finding] = []
        self._notes: list[str] = []

    def add(
        self,
        message: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        value: int | None = None,
        offset: int | None = None,
    ) -> None:
        """Count one violation, and keep its text if there is room."""
        self.count += 1
        if len(self._kept) < FINDINGS_KEPT_MAX:
            self._kept.append(
                Finding(
                    check=self.promise.check,
                    message=message,
                    topic=topic,
                    partition=partition,
                    value=value,
                    offset=offset,
                )
            )

    def add_all(self, places: Iterable[int], count: int, enter: Callable[[int], None]) -> None:
        """Count `count` violations at `places`; `enter` adds the text of one, while there is room
        for it."""
        before = self.count
        for place in places:
            if len(self._kept) >= FINDINGS_KEPT_MAX:
                break
            enter(place)
        self.count = before + count

    def note(self, text: str) -> None:
        """Say what could not be judged."""
        if len(self._notes) < FINDINGS_KEPT_MAX:
            self._notes.append(text)

    def result(self) -> CheckResult:
        return CheckResult(
            check=self.promise.check,
            promise=self.promise.promise,
            count=self.count,
            examined=self.examined,
            findings=tuple(self._kept),
            is_allowed=self.promise.is_allowed,
            figures=self.figures,
            notes=tuple(self._notes),
        )


class Board:
    """The findings of all checks, by the checks' names."""

    def __init__(self, promises: Iterable[Promise]) -> None:
        self._findings: Mapping[str, Findings] = {
            promise.check: Findings(promise) for promise in promises
        }

    def __getitem__(self, check: str) -> Findings:
        return self._findings[check]

    def results(self) -> list[CheckResult]:
        """The result of every check, in the order of the promises."""
        return [findings.result() for findings in self._findings.values()]


def whole(value: object) -> int:
    """The int in an observation's field, -1 if it has none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else -1
