"""Checks: pure functions over a history that report broken guarantees."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvorum.chaos.experiment.checks import leadership, records
from kvorum.chaos.experiment.checks.model import CheckResult, Evidence, Finding, gather
from kvorum.chaos.experiment.history import Event

__all__ = ["CHECKS", "CheckResult", "Evidence", "Finding", "gather", "run_checks"]

CHECKS: tuple[Callable[[Evidence], CheckResult], ...] = (
    records.lost,
    records.duplicate,
    records.reordered,
    records.inconsistent_offset,
    records.phantom,
    records.nonmonotonic_poll,
    records.skipped_poll,
    records.unseen,
    records.unread,
    leadership.two_leaders,
    leadership.high_watermark_back,
)


def run_checks(events: Iterable[Event]) -> list[CheckResult]:
    """Every check over one history, in a fixed order."""
    evidence = gather(events)
    return [check(evidence) for check in CHECKS]
