"""The reports of a run: report.json for programs, report.html for people, junit.xml for CI.

Everything is computed from the run's folder (run.json and history.jsonl), so a report can be
written again at any time. The HTML is one file without external references.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from kvorum.chaos.checks import CheckResult, CheckRules, run_checks
from kvorum.chaos.checks.replicas import divergent_replicas
from kvorum.chaos.history import HISTORY_FILE, check_whole, read_header, read_history
from kvorum.chaos.outages.milestones import milestones_in
from kvorum.chaos.outages.outages import UNOWNED_MS_MAX
from kvorum.chaos.outages.promises import Promised
from kvorum.chaos.outages.split import split_of
from kvorum.chaos.outages.timeline import Timeline, build_timeline
from kvorum.chaos.report.charts import NARROW, WIDE, draw
from kvorum.chaos.report.document import REPORT_JSON, RunReport, write_json
from kvorum.chaos.report.figures import build_report
from kvorum.chaos.report.verdict import FAILED, PASSED
from kvorum.chaos.report.wording import broken, hits, milliseconds, seconds, struck, unavailable
from kvorum.chaos.run_record import RunRecord, read_record
from kvorum.runtime.disk import OsDisk

if TYPE_CHECKING:
    from jinja2 import Environment

REPORT_HTML = "report.html"
JUNIT_XML = "junit.xml"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The outcome of a run: its verdict in short, and its files.

    verdict: passed | failed | inconclusive.
    reasons: why it is not `passed`.
    summary: one line.
    """

    verdict: str
    reasons: tuple[str, ...]
    summary: str
    seed: int
    run_dir: str
    history_file: str
    report_json: str
    report_html: str
    rerun: str


def write_report(run_dir: str) -> RunResult:
    """Judge a run folder and write its reports.

    Raises ConfigError when it holds no run, CorruptData for a damaged file of it.
    """
    folder = Path(run_dir)
    record = read_record(run_dir)
    history = str(folder / HISTORY_FILE)
    check_whole(history, record.history_bytes)
    timeline = build_timeline(
        read_history(history),
        milestones=milestones_in(run_dir),
        wall_start_ms=read_header(history).wall_start_ms,
    )
    rules = CheckRules(compacted_topics=frozenset(record.compacted_topics))
    checks = [*run_checks(history, rules), *_checks_of_disks(folder, record, rules)]
    report = build_report(record, timeline, checks)
    write_json(report, folder)
    (folder / REPORT_HTML).write_text(_render(report, timeline), encoding="utf-8")
    (folder / JUNIT_XML).write_text(_junit(report), encoding="utf-8")
    return RunResult(
        verdict=report.verdict,
        reasons=report.reasons,
        summary=report.summary,
        seed=report.seed,
        run_dir=run_dir,
        history_file=history,
        report_json=str(folder / REPORT_JSON),
        report_html=str(folder / REPORT_HTML),
        rerun=report.rerun,
    )


def _checks_of_disks(folder: Path, record: RunRecord, rules: CheckRules) -> list[CheckResult]:
    """The replicas compared on the stopped brokers' disks, where the run's folder has them.

    Without convergence a replica may still hold what it has to truncate. Apache Kafka's nodes are
    killed at the end of a run, and their checkpoints do not tell what was committed.
    """
    is_kvorum = record.system is None or record.system.name == "kvorum"
    brokers = {path.name: [str(path)] for path in sorted(folder.glob("cluster/broker-*"))}
    if not brokers or not is_kvorum or not record.is_converged or record.error is not None:
        return []
    return [divergent_replicas(OsDisk(), brokers, compacted_topics=rules.compacted_topics)]


def environment() -> Environment:
    """The templates of the pages, with the filters that word figures."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    templates.filters.update(
        ms=milliseconds,
        at=seconds,
        whole=lambda n: f"{n:,}",
        unavailable=unavailable,
        hits=hits,
        struck=struck,
    )
    return templates


def _render(report: RunReport, timeline: Timeline) -> str:
    from markupsafe import Markup

    # The charts escape every text of the run that they contain.
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            wide=Markup(draw(timeline, WIDE)),
            narrow=Markup(draw(timeline, NARROW)),
            splits=[split_of(fault.recoveries) for fault in report.faults],
        )
    )


def _junit(report: RunReport) -> str:
    """One test case a check and a promise, one for outages without a fault and one for the verdict,
    as CI systems read them. What the run could not decide is skipped; an inconclusive run is one
    error."""
    cases = [_junit_case("checks", one.check, _junit_check(one)) for one in report.checks]
    cases += [_junit_case("promises", one.promise, _junit_promise(one)) for one in report.promises]
    cases.append(_junit_case("outages", "owned", _junit_outages(report)))
    verdict = ""
    if report.verdict != PASSED:
        message = "; ".join(report.reasons) or report.verdict
        verdict = _junit_outcome("failure" if report.verdict == FAILED else "error", message)
    cases.append(_junit_case("run", "verdict", verdict))
    failures, errors, skipped = (
        sum(f"<{kind} " in case for case in cases) for kind in ("failure", "error", "skipped")
    )
    seconds = (report.ended_wall_ms - report.started_wall_ms) / 1000
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuite name={quoteattr(report.title)} tests="{len(cases)}" '
        f'failures="{failures}" errors="{errors}" skipped="{skipped}" time="{seconds:.3f}">\n'
        + "\n".join(cases)
        + "\n</testsuite>\n"
    )


def _junit_case(kind: str, name: str, outcome: str) -> str:
    return f'<testcase classname="{kind}" name={quoteattr(name)}>{outcome}</testcase>'


def _junit_outcome(kind: str, message: str, words: Iterable[str] = ()) -> str:
    """kind: failure, error or skipped."""
    return f"<{kind} message={quoteattr(message)}>{escape(chr(10).join(words))}</{kind}>"


def _junit_check(check: CheckResult) -> str:
    if check.is_passed:
        return ""
    kind = "failure" if check.is_decided else "skipped"
    words = [finding.message for finding in check.findings]
    return _junit_outcome(kind, broken(check.count, check.promise), words)


def _junit_promise(one: Promised) -> str:
    if one.is_kept:
        return ""
    kind = "skipped" if one.is_kept is None else "failure"
    measured = "not measured" if one.measured is None else f"{one.measured:g}"
    return _junit_outcome(kind, f"{one.meaning}: {one.bound()}, was {measured}")


def _junit_outages(report: RunReport) -> str:
    """Without toxiproxy there are no connections, so an outage that lasts until the end of such a
    run is skipped."""
    too_long = [
        one for one in report.outages.rows if one.is_unowned and one.longest_ms > UNOWNED_MS_MAX
    ]
    if not too_long:
        return ""
    is_decided = not report.is_lab_failure or any(one.is_over for one in too_long)
    words = [
        f"{one.subject} for {one.longest_ms:.0f} ms at {one.begin_ms / 1000:.1f} s"
        for one in too_long
    ]
    kind = "failure" if is_decided else "skipped"
    return _junit_outcome(kind, f"{len(too_long)} outages without a fault", words)
