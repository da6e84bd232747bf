"""The verdict of a run, and its reasons. Pure.

Failed: a guarantee or a promise was broken, an outage has no fault that explains it, or the cluster
did not recover. Inconclusive: nothing was broken, but a part of the run did not happen, so it
proves little. The reasons of a run that ended early say why it did, whatever the verdict.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvorum.chaos.checks import CheckResult
from kvorum.chaos.checks.catalogue import UNREAD, UNSEEN
from kvorum.chaos.outages.outages import UNOWNED_MS_MAX, Outage, unowned
from kvorum.chaos.outages.promises import Promised
from kvorum.chaos.outages.timeline import Timeline
from kvorum.chaos.report.wording import broken
from kvorum.chaos.run_record import Measurement, RunRecord

PASSED = "passed"
FAILED = "failed"
INCONCLUSIVE = "inconclusive"

_NEEDS_THE_END = (UNREAD, UNSEEN)
"""The checks that only a completed run can decide: an interrupted run stopped its readers and never
reached its final read, which breaks no guarantee."""

_NAMED_MAX = 5


def judge(
    record: RunRecord,
    timeline: Timeline,
    checks: Sequence[CheckResult],
    outages: Sequence[Outage],
    promised: Sequence[Promised],
) -> tuple[str, list[str]]:
    """The verdict and the reasons for it."""
    failures = [
        f"{check.check}: {broken(check.count, check.promise)}"
        for check in checks
        if not check.is_passed and check.is_decided
    ]
    failures += [promise.text() for promise in promised if promise.is_kept is False]
    # Toxiproxy took every connection down; what was silent then says nothing of the cluster.
    excused = [item for item in unowned(outages) if record.is_lab_failure and not item.is_over]
    failures += _of_outages([item for item in unowned(outages) if item not in excused])
    failures += [f"{name} died though no fault killed it" for name in record.died_unasked]
    is_run = record.error is None and _holds(record.steady_state_before)
    if is_run and not record.is_converged:
        failures.append("the cluster did not come back to full ISRs after healing")
    if is_run and not _holds(record.steady_state_after):
        failures.append("the steady state does not hold after the method")
    if failures:
        return FAILED, [*failures, *_early_end(record)]
    doubts = _doubts(record, timeline, promised)
    doubts += [
        f"outage of {item.subject} from {item.begin_ms / 1000:.1f} s to the end, with toxiproxy"
        for item in excused[:_NAMED_MAX]
    ]
    return (INCONCLUSIVE, doubts) if doubts else (PASSED, [])


def is_decided(check: str, record: RunRecord) -> bool:
    """True if the run can decide a check of this name."""
    return record.error is None or check not in _NEEDS_THE_END


def _of_outages(found: Sequence[Outage]) -> list[str]:
    reasons = [
        f"outage of {item.subject} for {item.length_ms:,.0f} ms at {item.begin_ms / 1000:.1f} s, "
        "and no fault explains it"
        for item in found[:_NAMED_MAX]
    ]
    if len(found) > _NAMED_MAX:
        more = len(found) - _NAMED_MAX
        reasons.append(f"{more} more outages above {UNOWNED_MS_MAX:,.0f} ms without a fault")
    return reasons


def _early_end(record: RunRecord) -> list[str]:
    """Why the run ended early, as a list of one reason; empty for a run that went to its end."""
    return [] if record.error is None else [f"the run ended early: {record.error}"]


def _doubts(record: RunRecord, timeline: Timeline, promised: Sequence[Promised]) -> list[str]:
    doubts = _early_end(record)
    if not _holds(record.steady_state_before):
        doubts.append("the steady state did not hold before the method")
    if timeline.acknowledged == 0:
        doubts.append("no record was ever acknowledged")
    doubts += [promise.text() for promise in promised if promise.is_kept is None]
    idle = [fault for fault in timeline.faults if fault.is_without_hit]
    doubts += [
        f"fault {fault.name} ({fault.description}) hit no disk call and no packet"
        for fault in idle[:_NAMED_MAX]
    ]
    if len(idle) > _NAMED_MAX:
        doubts.append(f"{len(idle) - _NAMED_MAX} more faults hit no disk call and no packet")
    doubts += [
        f"step {step.name} was skipped: {step.reason}" for step in record.steps if not step.is_done
    ]
    return doubts


def _holds(measurements: Sequence[Measurement]) -> bool:
    return all(measurement.is_accepted for measurement in measurements)
