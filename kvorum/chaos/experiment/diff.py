"""The difference of two runs as a page: two seeds, two versions, or two systems under one seed.

Everything is read from the runs' report.json. Runs of different experiments are refused unless the
caller wants them side by side all the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvorum.chaos.experiment.canvas import Canvas, Shape
from kvorum.chaos.experiment.charts import NARROW, WIDE
from kvorum.chaos.experiment.figures import REPORT_VERSION
from kvorum.chaos.experiment.overlay import draw_latencies, draw_rates
from kvorum.chaos.experiment.report import REPORT_JSON, environment
from kvorum.chaos.experiment.wording import milliseconds
from kvorum.runtime.errors import ConfigError, CorruptData

#: A ratio within this of 1 is no difference that a reader should look at.
SAME_RATIO = 1.1
_OUTAGES_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of both runs. is_time: milliseconds; ratio: of the second to the first, None
    without both or if the first is 0; is_worse: True if the second run's is worse, False if the
    first run's is, None if they are about equal or neither can be better."""

    words: str
    values: tuple[float | None, float | None]
    is_time: bool
    ratio: float | None
    is_worse: bool | None

    def texts(self) -> tuple[str, str]:
        first, second = (self._text(value) for value in self.values)
        return first, second

    def ratio_text(self) -> str:
        """The ratio as text; "from 0" if the first value is 0 and the second is not."""
        first, second = self.values
        if self.ratio is not None:
            return f"× {self.ratio:.2f}"
        return "from 0" if first == 0 and second else "–"

    def _text(self, value: float | None) -> str:
        if value is None:
            return "–"
        return milliseconds(value) if self.is_time else f"{value:,g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Two runs side by side. names: of the columns, never equal."""

    names: tuple[str, str]
    reports: tuple[dict[str, Any], dict[str, Any]]
    figures: tuple[Figure, ...]
    faults: tuple[tuple[str, tuple[Figure, ...]], ...]
    #: (fault, column) of faults that only one of the runs has.
    unmatched: tuple[tuple[str, str], ...]
    promises: tuple[tuple[str, Figure], ...]
    broken: tuple[tuple[str, int, int], ...]


def diff_runs(
    run_a: str, run_b: str, out_html: str, *, is_any_experiment: bool = False
) -> Difference:
    """Compare two run folders and write the page.

    is_any_experiment: also compare runs of different experiments. Raises ConfigError for a folder
    without a report of this version or for different experiments, CorruptData for a damaged report.
    """
    reports = (read_report(run_a), read_report(run_b))
    if not is_any_experiment:
        _require_one_experiment(run_a, run_b, *reports)
    from markupsafe import Markup

    difference = compare(reports, names_of(run_a, run_b, reports))
    page = (
        environment()
        .get_template("diff.html.j2")
        .render(
            difference=difference,
            wide=Markup(_charts(difference, WIDE)),
            narrow=Markup(_charts(difference, NARROW)),
            outages_max=_OUTAGES_MAX,
        )
    )
    Path(out_html).write_text(page, encoding="utf-8")
    return difference


def read_report(run_dir: str) -> dict[str, Any]:
    """The report.json of a run folder. Raises ConfigError, CorruptData."""
    path = Path(run_dir) / REPORT_JSON
    if not path.exists():
        raise ConfigError(
            f"{run_dir} has no {REPORT_JSON}; write it with `kvorum report {run_dir}`"
        )
    try:
        report = json.loads(path.read_bytes())
    except ValueError as error:
        raise CorruptData(str(path), 0, f"not a report: {error}") from error
    version = report.get("version") if isinstance(report, dict) else None
    if version != REPORT_VERSION:
        raise ConfigError(
            f"{path} has version {version}, the difference needs {REPORT_VERSION}; "
            f"write it again with `kvorum report {run_dir}`"
        )
    found: dict[str, Any] = report
    return found


def _require_one_experiment(
    run_a: str, run_b: str, report_a: dict[str, Any], report_b: dict[str, Any]
) -> None:
    if report_a["title"] != report_b["title"]:
        raise ConfigError(
            f"{run_a} ran {report_a['title']!r} and {run_b} ran {report_b['title']!r}; runs of "
            "different experiments are compared only with --any"
        )


def names_of(
    run_a: str, run_b: str, reports: tuple[dict[str, Any], dict[str, Any]]
) -> tuple[str, str]:
    """The columns' names: the systems if they differ, else the run folders' names, numbered if
    these are equal too."""
    systems = tuple(_system(report) for report in reports)
    folders = (Path(run_a).resolve().name, Path(run_b).resolve().name)
    for first, second in (systems, folders):
        if first and second and first != second:
            return first, second
    return f"{folders[0]} (1)", f"{folders[1]} (2)"


def _system(report: dict[str, Any]) -> str:
    system = report.get("system")
    if isinstance(system, dict):
        return f"{system.get('name', '')} {system.get('version', '')}".strip()
    return str(system or "")


def compare(reports: tuple[dict[str, Any], dict[str, Any]], names: tuple[str, str]) -> Difference:
    """The difference of two reports. Pure."""
    matched, unmatched = _matched(reports, names)
    return Difference(
        names=names,
        reports=reports,
        figures=tuple(
            _figure(words, reports, value, is_time=is_time, is_less_better=is_less_better)
            for words, value, is_time, is_less_better in _FIGURES
        ),
        faults=tuple((pair[0]["description"], tuple(_of_fault(pair))) for pair in matched),
        unmatched=tuple(unmatched),
        promises=tuple(_promises(reports)),
        broken=tuple(_broken(reports)),
    )


Value = Callable[[dict[str, Any]], float | None]


def _load(key: str) -> Value:
    return lambda report: report["load"][key]


def _rate(report: dict[str, Any]) -> float | None:
    load = report["load"]
    length_ms = load["end_ms"] - load["begin_ms"]
    return round(1000 * load["acknowledged"] / length_ms, 1) if length_ms > 0 else None


def _admin(key: str) -> Value:
    return lambda report: (
        None if report["administration"] is None else report["administration"][key]
    )


#: Words, value, is it a time, is less better (None: neither).
_FIGURES: tuple[tuple[str, Value, bool, bool | None], ...] = (
    # The longer of two runs acknowledges more, and is none the better for it.
    ("records acknowledged", _load("acknowledged"), False, None),
    ("records acknowledged per second", _rate, False, False),
    ("records lost", lambda report: report["lost"], False, True),
    ("records duplicated", lambda report: report["duplicated"], False, True),
    ("records reordered", lambda report: report["reordered"], False, True),
    ("unknown outcomes", _load("unknown"), False, True),
    ("latency, median", _load("latency_p50_ms"), True, True),
    ("latency, 99 %", _load("latency_p99_ms"), True, True),
    ("latency, longest", _load("latency_max_ms"), True, True),
    ("longest silence of the cluster", _load("longest_cluster_silence_ms"), True, True),
    ("longest silence of a partition", _load("longest_partition_silence_ms"), True, True),
    ("longest wait for topic creation", _admin("longest_gap_ms"), True, True),
    ("topics not created", _admin("unknown"), False, True),
    ("outages", lambda report: report["outages"]["count"], False, True),
    ("outages without a fault", lambda report: report["outages"]["unowned"], False, True),
    ("new leaders", lambda report: report["leader_changes"], False, None),
    ("ISR shrinks", lambda report: report["isr_shrinks"], False, None),
)


def _figure(
    words: str,
    entries: tuple[dict[str, Any], dict[str, Any]],
    value: Value,
    *,
    is_time: bool,
    is_less_better: bool | None,
) -> Figure:
    first, second = value(entries[0]), value(entries[1])
    ratio = None if first is None or second is None or not first else second / first
    is_worse = None
    if is_less_better is not None and first is not None and second is not None:
        low, high = (first, second) if is_less_better else (second, first)
        if high > low * SAME_RATIO:
            is_worse = True
        elif low > high * SAME_RATIO:
            is_worse = False
    return Figure(
        words=words, values=(first, second), is_time=is_time, ratio=ratio, is_worse=is_worse
    )


def _matched(
    reports: tuple[dict[str, Any], dict[str, Any]], names: tuple[str, str]
) -> tuple[list[tuple[dict[str, Any], dict[str, Any]]], list[tuple[str, str]]]:
    """Faults of one name, in their order: the first of a name with the first, and so on."""
    others: dict[str, list[dict[str, Any]]] = {}
    for fault in reports[1]["faults"]:
        others.setdefault(fault["name"], []).append(fault)
    matched = []
    unmatched = []
    for fault in reports[0]["faults"]:
        same = others.get(fault["name"])
        if same:
            matched.append((fault, same.pop(0)))
        else:
            unmatched.append((fault["name"], names[0]))
    unmatched += [(fault["name"], names[1]) for left in others.values() for fault in left]
    return matched, unmatched


def _of_fault(pair: tuple[dict[str, Any], dict[str, Any]]) -> list[Figure]:
    """The figures of a fault that at least one of the runs has."""

    def largest(key: str) -> Value:
        def value(fault: dict[str, Any]) -> float | None:
            found = [item[key] for item in fault["recoveries"] if item[key] is not None]
            return max(found, default=None)

        return value

    def of_worst(key: str) -> Value:
        def value(fault: dict[str, Any]) -> float | None:
            found: float | None = fault["recoveries"][0][key] if fault["recoveries"] else None
            return found

        return value

    figures = [
        _figure(words, pair, value, is_time=True, is_less_better=True)
        for words, value in (
            ("unavailable, worst partition", largest("unavailable_ms")),
            ("detected", largest("detect_ms")),
            ("fenced", largest("fence_ms")),
            ("leader elected", largest("elect_ms")),
            ("end of the longest silence there", of_worst("ack_ms")),
            ("client writes to the new leader there", of_worst("learn_ms")),
            ("new controller", lambda fault: fault["controller_elect_ms"]),
            ("no topic created for", lambda fault: fault["controller_unavailable_ms"]),
        )
    ]
    return [figure for figure in figures if figure.values != (None, None)]


def _promises(
    reports: tuple[dict[str, Any], dict[str, Any]],
) -> list[tuple[str, Figure]]:
    """Each promise of either run, with what both measured; the words say its limits."""
    stated = [{row["promise"]: row for row in report["promises"]} for report in reports]
    found = []
    for name in dict.fromkeys([*stated[0], *stated[1]]):
        rows = (stated[0].get(name, {}), stated[1].get(name, {}))
        kept = [
            {True: "kept", False: "broken", None: "not known"}[row["is_kept"]]
            if row
            else "not stated"
            for row in rows
        ]
        bound = (rows[0] or rows[1])["bound"]
        figure = _figure(
            f"{name}, {bound}", rows, lambda row: row.get("measured"), is_time=False,
            is_less_better=not name.endswith("_at_least"),
        )  # fmt: skip
        found.append((f"{kept[0]} / {kept[1]}", figure))
    return found


def _broken(
    reports: tuple[dict[str, Any], dict[str, Any]],
) -> list[tuple[str, int, int]]:
    """Checks with findings in one or both of the runs: (name, count of A, count of B)."""
    counts = [{check["check"]: check["count"] for check in report["checks"]} for report in reports]
    return [
        (name, counts[0].get(name, 0), counts[1].get(name, 0))
        for name in dict.fromkeys([*counts[0], *counts[1]])
        if counts[0].get(name, 0) or counts[1].get(name, 0)
    ]


def _charts(difference: Difference, shape: Shape) -> str:
    """Throughput and latency of both runs over one axis, which begins with each run's load."""
    series = [report["series"] for report in difference.reports]
    if not all(entry["acknowledged"] for entry in series):
        return ""
    length_ms = max(entry["bucket_ms"] * len(entry["acknowledged"]) for entry in series)
    canvas = Canvas(shape, 0.0, length_ms)
    bottom = draw_rates(canvas, series, top=26)
    bottom = draw_latencies(canvas, series, top=bottom)
    words = "throughput and latency of both runs over time"
    return canvas.element(bottom, words)
