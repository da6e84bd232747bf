"""The reports of a run: report.json for programs, report.html for people, junit.xml for CI.

Everything is computed from the run's folder (run.json and history.jsonl), so a report can be
written again at any time. The HTML is one file without external references.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from kvorum.chaos.experiment.charts import draw
from kvorum.chaos.experiment.checks import CheckResult, Rules, run_checks_of
from kvorum.chaos.experiment.history import HISTORY_FILE, read_history
from kvorum.chaos.experiment.timeline import FaultSpan, Timeline, build_timeline, percentile
from kvorum.runtime.errors import ConfigError, CorruptData

RUN_FILE = "run.json"
REPORT_JSON = "report.json"
REPORT_HTML = "report.html"
JUNIT_XML = "junit.xml"

PASSED = "passed"
FAILED = "failed"
INCONCLUSIVE = "inconclusive"

_REPORT_VERSION = 1
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
    events = list(read_history(str(folder / HISTORY_FILE)))
    timeline = build_timeline(events)
    document = build_report(record, timeline, run_checks_of(events, rules_of(record)))
    (folder / REPORT_JSON).write_text(json.dumps(document, indent=1), encoding="utf-8")
    (folder / REPORT_HTML).write_text(_render(document, draw(timeline)), encoding="utf-8")
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


def rules_of(record: dict[str, Any]) -> Rules:
    """What a run's history does not tell of its topics. record: run.json's content."""
    workloads = record["configuration"].get("workloads", ())
    # The keyed workload alone has keys, and its topic is compacted.
    return Rules(compacted_topics=frozenset(w["topic"] for w in workloads if "keys" in w))


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


#: What a summary counts, by the check that finds it.
_HARM = {"lost": "lost-write", "duplicated": "duplicate", "reordered": "reordered"}


def build_report(
    record: dict[str, Any], timeline: Timeline, checks: Sequence[CheckResult]
) -> dict[str, Any]:
    """The content of report.json. `record` is run.json's content."""
    broken = {check.check: check.count for check in checks}
    verdict, reasons = judge(record, timeline, checks)
    is_read = _is_read(record, broken)
    harm: dict[str, int | None] = {}
    for name, check in _HARM.items():
        count = broken.get(check, 0)
        # A count of zero means nothing if the data was not read.
        harm[name] = count if is_read or count else None
    return {
        "version": _REPORT_VERSION,
        "title": record["title"],
        "description": record["description"],
        "tags": record["tags"],
        "verdict": verdict,
        "reasons": reasons,
        "summary": _summary(timeline, harm, is_read=is_read),
        "seed": record["seed"],
        "rerun": record["rerun"],
        "versions": record["versions"],
        "configuration": record["configuration"],
        "started_wall_ms": record["started_wall_ms"],
        "ended_wall_ms": record["ended_wall_ms"],
        **harm,
        "is_final_read_complete": is_read,
        "load": {
            "begin_ms": timeline.load_begin_ms,
            "end_ms": timeline.load_end_ms,
            "invoked": timeline.invoked,
            "acknowledged": timeline.acknowledged,
            "failed": timeline.failed,
            "unknown": timeline.unknown,
            "topics_created": timeline.topics_created,
            "latency_p50_ms": timeline.latency_p50_ms,
            "latency_p99_ms": timeline.latency_p99_ms,
            "latency_max_ms": timeline.latency_max_ms,
            "longest_cluster_silence_ms": timeline.longest_cluster_silence_ms,
            "longest_controller_silence_ms": timeline.longest_controller_silence_ms,
        },
        "faults": [_fault(fault) for fault in timeline.faults],
        "checks": [dataclasses.asdict(check) for check in checks],
        "steady_state_title": record["steady_state_title"],
        "steady_state": _steady_state(record),
        "cluster_silences": [
            {"begin_ms": silence.begin_ms, "length_ms": silence.length_ms}
            for silence in timeline.cluster_silences
        ],
        "partitions": [
            {
                "partition": partition,
                "longest_silence_ms": silences[0].length_ms if silences else 0.0,
                "leader_changes": timeline.leader_changes.get(partition, 0),
                "isr_changes": timeline.isr_changes.get(partition, 0),
            }
            for partition, silences in sorted(timeline.partition_silences.items())
        ],
        "controller_epochs": [
            {"time_ms": time_ms, "epoch": epoch, "leader_id": leader_id}
            for time_ms, epoch, leader_id in timeline.controller_epochs
        ],
        "errors": dict(sorted(timeline.error_counts.items())),
        "steps": record["steps"],
        "probes": record["probes"],
        "notes": record["notes"],
    }


_NEEDS_THE_END = ("unread:", "unseen:")
"""The prefixes of reasons that only a completed run can prove."""


def judge(
    record: dict[str, Any], timeline: Timeline, checks: Sequence[CheckResult]
) -> tuple[str, list[str]]:
    """The verdict and the reasons for it.

    Failed: a guarantee was broken, or the cluster did not recover. Inconclusive: nothing was
    broken, but a part of the run did not happen, so it proves little.
    """
    failures = [
        f"{check.check}: {check.count} times not so that {check.promise}"
        for check in checks
        if not check.is_passed
    ]
    failures += [f"{name} died though no fault killed it" for name in record["died_unasked"]]
    is_run = record["error"] is None and _holds(record["steady_state_before"])
    if is_run and not record["is_converged"]:
        failures.append("the cluster did not come back to full ISRs after healing")
    if is_run and not _holds(record["steady_state_after"]):
        failures.append("the steady state does not hold after the method")
    # An interrupted run stopped its readers and never reached its final read, which breaks no
    # guarantee.
    if record["error"] is not None:
        failures = [reason for reason in failures if not reason.startswith(_NEEDS_THE_END)]
    if failures:
        return FAILED, failures
    doubts = []
    if record["error"] is not None:
        doubts.append(f"the run ended early: {record['error']}")
    if not _holds(record["steady_state_before"]):
        doubts.append("the steady state did not hold before the method")
    if timeline.acknowledged == 0:
        doubts.append("no record was ever acknowledged")
    doubts += [
        f"step {step['name']} was skipped: {step['reason']}"
        for step in record["steps"]
        if not step["is_done"]
    ]
    return (INCONCLUSIVE, doubts) if doubts else (PASSED, [])


def _holds(measurements: Sequence[dict[str, Any]]) -> bool:
    return all(measurement["is_accepted"] for measurement in measurements)


def _is_read(record: dict[str, Any], broken: dict[str, int]) -> bool:
    """True if the final read reached the end of every partition, and the history has it."""
    return bool(record["is_final_read_complete"]) and not broken.get("unread", 0)


def _count_text(name: str, count: int | None, *, is_read: bool) -> str:
    """The count as text. count: None if nothing was found, but not everything was read."""
    if count is None:
        return f"{name} not known"
    return f"{count} {name}" if is_read else f"at least {count} {name}"


def _summary(timeline: Timeline, harm: dict[str, int | None], *, is_read: bool) -> str:
    told = ", ".join(_count_text(name, count, is_read=is_read) for name, count in harm.items())
    doubt = "" if is_read else " (the final read is incomplete)"
    return (
        f"{len(timeline.faults)} faults: {timeline.acknowledged:,} records acknowledged, "
        f"{told}{doubt}, {_silences(timeline)}"
    )


def _silences(timeline: Timeline) -> str:
    text = f"longest silence {_milliseconds(timeline.longest_cluster_silence_ms)} of the cluster"
    longest = {
        partition: silences[0].length_ms
        for partition, silences in timeline.partition_silences.items()
        if silences
    }
    if not longest:
        return text
    worst = max(longest, key=lambda partition: longest[partition])
    return f"{text}, {_milliseconds(longest[worst])} of partition {worst}"


def _fault(fault: FaultSpan) -> dict[str, Any]:
    def spread(is_led: bool) -> dict[str, Any]:
        chosen = [item for item in fault.recoveries if item.is_led is is_led]
        times = sorted(item.recovery_ms for item in chosen if item.recovery_ms is not None)
        return {
            "partitions": [item.partition for item in chosen],
            "p50_ms": percentile(times, 0.5),
            "max_ms": times[-1] if times else None,
            "never": len(chosen) - len(times),
        }

    return {
        "id": fault.fault_id,
        "name": fault.name,
        "fault": fault.fault,
        "description": fault.description,
        "target": fault.target,
        "nodes": list(fault.nodes),
        "is_active_controller": fault.is_active_controller,
        "begin_ms": fault.begin_ms,
        "end_ms": fault.end_ms,
        "lasted_ms": None if fault.end_ms is None else fault.end_ms - fault.begin_ms,
        "led": spread(True),
        "others": spread(False),
        "recoveries": [dataclasses.asdict(item) for item in fault.recoveries],
        "controller_recovery_ms": fault.controller_recovery_ms,
    }


def _steady_state(record: dict[str, Any]) -> list[dict[str, Any]]:
    after = {row["name"]: row for row in record["steady_state_after"]}
    rows = []
    for before in record["steady_state_before"]:
        then = after.get(before["name"])
        rows.append(
            {
                "name": before["name"],
                "tolerance": before["tolerance"],
                "before": _measured(before),
                "before_ok": before["is_accepted"],
                "after": "not measured" if then is None else _measured(then),
                "after_ok": then is not None and then["is_accepted"],
            }
        )
    return rows


def _measured(row: dict[str, Any]) -> str:
    return row["reason"] or "no answer" if row["value"] is None else f"{row['value']:g}"


def _render(document: dict[str, Any], svg: str) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters.update(ms=_milliseconds, whole=lambda n: f"{n:,}", spread=_spread)
    template = environment.get_template("report.html.j2")
    # The chart escapes every text of the run that it contains.
    return template.render(report=document, svg=Markup(svg))


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    if value >= 10_000:
        return f"{value / 1000:.1f} s"
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"


def _spread(value: dict[str, Any]) -> str:
    if not value["partitions"]:
        return "–"
    parts = []
    if value["max_ms"] is not None:
        parts.append(f"{_milliseconds(value['p50_ms'])} / {_milliseconds(value['max_ms'])}")
    if value["never"]:
        parts.append(f"{value['never']} never")
    return ", ".join(parts)


def _junit(document: dict[str, Any]) -> str:
    """One test case a check and one for the verdict, as CI systems read them."""
    cases = []
    for check in document["checks"]:
        failure = ""
        if check["count"] and not check["is_allowed"]:
            words = "\n".join(finding["message"] for finding in check["findings"])
            message = quoteattr(f"{check['count']} broken: {check['promise']}")
            failure = f"<failure message={message}>{escape(words)}</failure>"
        cases.append(f'<testcase classname="checks" name="{check["check"]}">{failure}</testcase>')
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
