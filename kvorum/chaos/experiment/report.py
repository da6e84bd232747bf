"""The reports of a run: report.json for programs, report.html for people, junit.xml for CI.

Everything is computed from the run's folder (run.json and history.jsonl), so a report can be
written again at any time. The HTML is one file without external references.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape, quoteattr

from kvorum.chaos.experiment.charts import NARROW, WIDE, draw
from kvorum.chaos.experiment.checks import CheckResult, Rules, run_checks
from kvorum.chaos.experiment.checks.replicas import divergent_replicas
from kvorum.chaos.experiment.figures import build_report
from kvorum.chaos.experiment.history import HISTORY_FILE, check_whole, read_header, read_history
from kvorum.chaos.experiment.milestones import milestones_in
from kvorum.chaos.experiment.outages import UNOWNED_MS_MAX
from kvorum.chaos.experiment.split import split_of
from kvorum.chaos.experiment.timeline import Timeline, build_timeline
from kvorum.chaos.experiment.verdict import PASSED
from kvorum.chaos.experiment.wording import hits, milliseconds, seconds, struck, unavailable
from kvorum.runtime.disk import OsDisk
from kvorum.runtime.errors import ConfigError, CorruptData

if TYPE_CHECKING:
    from jinja2 import Environment

RUN_FILE = "run.json"
REPORT_JSON = "report.json"
REPORT_HTML = "report.html"
JUNIT_XML = "junit.xml"

_RECORD_KEYS = (
    "title", "description", "tags", "seed", "rerun", "versions", "configuration",
    "started_wall_ms", "ended_wall_ms", "steady_state_title", "steady_state_before",
    "steady_state_after", "steps", "probes", "notes", "error", "died_unasked", "is_converged",
    "is_final_read_complete",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A written report: its verdict in short, and its files."""

    verdict: str
    reasons: tuple[str, ...]
    summary: str
    seed: int
    rerun: str
    json_file: str
    html_file: str
    junit_file: str


def write_report(run_dir: str) -> Report:
    """Judge a run folder and write its reports.

    Raises ConfigError when it holds no run, CorruptData for a damaged file of it.
    """
    folder = Path(run_dir)
    record = read_record(run_dir)
    history = str(folder / HISTORY_FILE)
    check_whole(history, record.get("history_bytes"))
    timeline = build_timeline(
        read_history(history),
        milestones=milestones_in(run_dir),
        wall_start_ms=read_header(history).wall_start_ms,
    )
    rules = Rules(compacted_topics=frozenset(record.get("compacted_topics", ())))
    checks = [*run_checks(history, rules), *_checks_of_disks(folder, record, rules)]
    document = build_report(record, timeline, checks)
    (folder / REPORT_JSON).write_text(json.dumps(document, indent=1), encoding="utf-8")
    (folder / REPORT_HTML).write_text(_render(document, timeline), encoding="utf-8")
    (folder / JUNIT_XML).write_text(_junit(document), encoding="utf-8")
    return Report(
        verdict=document["verdict"],
        reasons=tuple(document["reasons"]),
        summary=document["summary"],
        seed=document["seed"],
        rerun=document["rerun"],
        json_file=str(folder / REPORT_JSON),
        html_file=str(folder / REPORT_HTML),
        junit_file=str(folder / JUNIT_XML),
    )


def _checks_of_disks(folder: Path, record: dict[str, Any], rules: Rules) -> list[CheckResult]:
    """The replicas compared on the stopped brokers' disks, where the run's folder has them.

    Without convergence a replica may still hold what it has to truncate. Apache Kafka's nodes are
    killed at the end of a run, and their checkpoints do not tell what was committed.
    """
    is_kvorum = record.get("system", {}).get("name", "kvorum") == "kvorum"
    brokers = {path.name: [str(path)] for path in sorted(folder.glob("cluster/broker-*"))}
    if not brokers or not is_kvorum or not record["is_converged"] or record["error"] is not None:
        return []
    return [divergent_replicas(OsDisk(), brokers, compacted_topics=rules.compacted_topics)]


def read_record(run_dir: str) -> dict[str, Any]:
    """The content of a run's run.json.

    Raises ConfigError when the folder holds no run, CorruptData for a file that is no JSON object.
    """
    folder = Path(run_dir)
    if not (folder / HISTORY_FILE).exists() or not (folder / RUN_FILE).exists():
        raise ConfigError(f"{run_dir} holds no run: {RUN_FILE} and {HISTORY_FILE} are needed")
    path = folder / RUN_FILE
    try:
        record = json.loads(path.read_bytes())
    except ValueError as error:
        raise CorruptData(str(path), 0, f"not the record of a run: {error}") from error
    missing = [key for key in _RECORD_KEYS if key not in record] if isinstance(record, dict) else []
    if not isinstance(record, dict) or missing:
        lacks = f": it has no {', '.join(missing)}" if missing else ""
        raise CorruptData(str(path), 0, f"not the record of a run{lacks}")
    return record


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


def _render(document: dict[str, Any], timeline: Timeline) -> str:
    from markupsafe import Markup

    # The charts escape every text of the run that they contain.
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            report=document,
            wide=Markup(draw(timeline, WIDE)),
            narrow=Markup(draw(timeline, NARROW)),
            splits=[split_of(fault) for fault in document["faults"]],
        )
    )


def _junit(document: dict[str, Any]) -> str:
    """One test case a check and a promise, one for outages without a fault and one for the verdict,
    as CI systems read them."""
    cases = []
    for check in document["checks"]:
        failure = ""
        if check["count"] and not check["is_allowed"]:
            words = "\n".join(finding["message"] for finding in check["findings"])
            message = quoteattr(f"{check['count']} broken: {check['promise']}")
            failure = f"<failure message={message}>{escape(words)}</failure>"
        cases.append(f'<testcase classname="checks" name="{check["check"]}">{failure}</testcase>')
    for promise in document["promises"]:
        failure = ""
        if not promise["is_kept"]:
            measured = "not measured" if promise["measured"] is None else f"{promise['measured']:g}"
            message = quoteattr(f"{promise['meaning']}: {promise['bound']}, was {measured}")
            failure = f"<failure message={message}/>"
        name = quoteattr(promise["promise"])
        cases.append(f'<testcase classname="promises" name={name}>{failure}</testcase>')
    cases.append(_junit_outages(document["outages"]))
    verdict = ""
    if document["verdict"] != PASSED:
        message = quoteattr("; ".join(document["reasons"]) or document["verdict"])
        verdict = f"<failure message={message}/>"
    cases.append(f'<testcase classname="run" name="verdict">{verdict}</testcase>')
    failures = sum("<failure" in case for case in cases)
    seconds = (document["ended_wall_ms"] - document["started_wall_ms"]) / 1000
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuite name={quoteattr(document["title"])} tests="{len(cases)}" '
        f'failures="{failures}" time="{seconds:.3f}">\n' + "\n".join(cases) + "\n</testsuite>\n"
    )


def _junit_outages(outages: dict[str, Any]) -> str:
    too_long = [
        f"{row['subject']} for {row['longest_ms']:.0f} ms at {row['begin_ms'] / 1000:.1f} s"
        for row in outages["rows"]
        if row["is_unowned"] and row["longest_ms"] > UNOWNED_MS_MAX
    ]
    failure = ""
    if too_long:
        message = quoteattr(f"{len(too_long)} outages without a fault")
        failure = f"<failure message={message}>{escape(chr(10).join(too_long))}</failure>"
    return f'<testcase classname="outages" name="owned">{failure}</testcase>'
