"""The difference of two runs as a page: two seeds, two versions, or two systems under one seed.

Everything is read from the runs' report.json. Runs of different experiments are refused unless the
caller wants them side by side all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kvorum.chaos.outages.promises import Promised
from kvorum.chaos.outages.recovery import Recovery
from kvorum.chaos.report.canvas import Canvas, ChartShape
from kvorum.chaos.report.charts import NARROW, WIDE
from kvorum.chaos.report.document import REPORT_JSON, FaultRow, RunReport, read_json
from kvorum.chaos.report.overlay import draw_latencies, draw_rates
from kvorum.chaos.report.report import environment
from kvorum.chaos.report.wording import milliseconds
from kvorum.runtime.errors import ConfigError, required

#: A ratio within this of 1 is no difference that a reader should look at.
SAME_RATIO = 1.1
_OUTAGES_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of both runs.

    is_time: milliseconds.
    ratio: of the second to the first, None without both or if the first is 0.
    is_worse: True if the second run's is worse, False if the first run's is, None if they are about
        equal or neither can be better.
    """

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
class RunDifference:
    """Two runs side by side. names: of the columns, never equal."""

    names: tuple[str, str]
    reports: tuple[RunReport, RunReport]
    figures: tuple[Figure, ...]
    faults: tuple[tuple[str, tuple[Figure, ...]], ...]
    #: (fault, column) of faults that only one of the runs has.
    unmatched: tuple[tuple[str, str], ...]
    promises: tuple[tuple[str, Figure], ...]
    broken: tuple[tuple[str, int, int], ...]


def diff_runs(
    run_a: str, run_b: str, out_html: str, *, is_any_experiment: bool = False
) -> RunDifference:
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


def read_report(run_dir: str) -> RunReport:
    """The report.json of a run folder. Raises ConfigError, CorruptData."""
    if not (Path(run_dir) / REPORT_JSON).exists():
        raise ConfigError(
            f"{run_dir} has no {REPORT_JSON}; write it with `kvorum report {run_dir}`"
        )
    return read_json(Path(run_dir))


def _require_one_experiment(
    run_a: str, run_b: str, report_a: RunReport, report_b: RunReport
) -> None:
    if report_a.title != report_b.title:
        raise ConfigError(
            f"{run_a} ran {report_a.title!r} and {run_b} ran {report_b.title!r}; runs of "
            "different experiments are compared only with --any"
        )


def names_of(run_a: str, run_b: str, reports: tuple[RunReport, RunReport]) -> tuple[str, str]:
    """The columns' names: the systems if they differ, else the run folders' names, numbered if
    these are equal too."""
    systems = tuple(_system(report) for report in reports)
    folders = (Path(run_a).resolve().name, Path(run_b).resolve().name)
    for first, second in (systems, folders):
        if first and second and first != second:
            return first, second
    return f"{folders[0]} (1)", f"{folders[1]} (2)"


def _system(report: RunReport) -> str:
    return "" if report.system is None else f"{report.system.name} {report.system.version}".strip()


def compare(reports: tuple[RunReport, RunReport], names: tuple[str, str]) -> RunDifference:
    """The difference of two reports. Pure."""
    matched, unmatched = _matched(reports, names)
    return RunDifference(
        names=names,
        reports=reports,
        figures=tuple(
            _figure(words, reports, value, is_time=is_time, is_less_better=is_less_better)
            for words, value, is_time, is_less_better in _FIGURES
        ),
        faults=tuple((pair[0].description, tuple(_of_fault(pair))) for pair in matched),
        unmatched=tuple(unmatched),
        promises=tuple(_promises(reports)),
        broken=tuple(_broken(reports)),
    )


EntryT = TypeVar("EntryT")
#: A figure of a report, of a fault or of a promise; None if it has none.
Value = Callable[[EntryT], float | None]


def _rate(report: RunReport) -> float | None:
    length_ms = report.load.end_ms - report.load.begin_ms
    return round(1000 * report.load.acknowledged / length_ms, 1) if length_ms > 0 else None


#: Words, value, is it a time, is less better (None: neither).
_FIGURES: tuple[tuple[str, Value[RunReport], bool, bool | None], ...] = (
    # The longer of two runs acknowledges more, and is none the better for it.
    ("records acknowledged", lambda one: one.load.acknowledged, False, None),
    ("records acknowledged per second", _rate, False, False),
    ("records lost", lambda one: one.lost, False, True),
    ("records duplicated", lambda one: one.duplicated, False, True),
    ("records reordered", lambda one: one.reordered, False, True),
    ("unknown outcomes", lambda one: one.load.unknown, False, True),
    ("latency, median", lambda one: one.load.latency_p50_ms, True, True),
    ("latency, 99 %", lambda one: one.load.latency_p99_ms, True, True),
    ("latency, longest", lambda one: one.load.latency_max_ms, True, True),
    ("longest silence of the cluster", lambda one: one.load.longest_cluster_silence_ms, True, True),
    (
        "longest silence of a partition",
        lambda one: one.load.longest_partition_silence_ms,
        True,
        True,
    ),
    (
        "longest wait for topic creation",
        lambda one: one.administration.longest_gap_ms if one.administration else None,
        True,
        True,
    ),
    (
        "topics not created",
        lambda one: one.administration.unknown if one.administration else None,
        False,
        True,
    ),
    ("outages", lambda one: one.outages.count, False, True),
    ("outages without a fault", lambda one: one.outages.unowned, False, True),
    ("new leaders", lambda one: one.leader_changes, False, None),
    ("ISR shrinks", lambda one: one.isr_shrinks, False, None),
)


def _figure(
    words: str,
    entries: tuple[EntryT, EntryT],
    value: Value[EntryT],
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
    reports: tuple[RunReport, RunReport], names: tuple[str, str]
) -> tuple[list[tuple[FaultRow, FaultRow]], list[tuple[str, str]]]:
    """Faults of one name, in their order: the first of a name with the first, and so on."""
    others: dict[str, list[FaultRow]] = {}
    for fault in reports[1].faults:
        others.setdefault(fault.name, []).append(fault)
    matched = []
    unmatched = []
    for fault in reports[0].faults:
        same = others.get(fault.name)
        if same:
            matched.append((fault, same.pop(0)))
        else:
            unmatched.append((fault.name, names[0]))
    unmatched += [(fault.name, names[1]) for left in others.values() for fault in left]
    return matched, unmatched


def _of_fault(pair: tuple[FaultRow, FaultRow]) -> list[Figure]:
    """The figures of a fault that at least one of the runs has."""

    def largest(of: Value[Recovery]) -> Value[FaultRow]:
        def value(fault: FaultRow) -> float | None:
            found = [figure for one in fault.recoveries if (figure := of(one)) is not None]
            return max(found, default=None)

        return value

    def of_worst(of: Value[Recovery]) -> Value[FaultRow]:
        return lambda fault: of(fault.recoveries[0]) if fault.recoveries else None

    figures = [
        _figure(words, pair, value, is_time=True, is_less_better=True)
        for words, value in (
            ("unavailable, worst partition", largest(lambda one: one.unavailable_ms)),
            ("detected", largest(lambda one: one.detect_ms)),
            ("fenced", largest(lambda one: one.fence_ms)),
            ("leader elected", largest(lambda one: one.elect_ms)),
            ("end of the longest silence there", of_worst(lambda one: one.ack_ms)),
            ("client writes to the new leader there", of_worst(lambda one: one.learn_ms)),
            ("new controller", lambda fault: fault.controller_elect_ms),
            ("no topic created for", lambda fault: fault.controller_unavailable_ms),
        )
    ]
    return [figure for figure in figures if figure.values != (None, None)]


def _promises(reports: tuple[RunReport, RunReport]) -> list[tuple[str, Figure]]:
    """Each promise of either run, with what both measured; the words say its limits."""
    first, second = ({one.promise: one for one in report.promises} for report in reports)
    found = []
    for name in dict.fromkeys([*first, *second]):
        rows = (first.get(name), second.get(name))
        kept = " / ".join(_kept(row) for row in rows)
        stated = required(rows[0] or rows[1], "a promise is stated by one of the runs")
        figure = _figure(
            f"{name}, {stated.bound()}",
            rows,
            lambda row: row.measured if row else None,
            is_time=False,
            is_less_better=not name.endswith("_at_least"),
        )
        found.append((kept, figure))
    return found


def _kept(promised: Promised | None) -> str:
    if promised is None:
        return "not stated"
    return {True: "kept", False: "broken", None: "not known"}[promised.is_kept]


def _broken(reports: tuple[RunReport, RunReport]) -> list[tuple[str, int, int]]:
    """Checks with findings in one or both of the runs: (name, count of A, count of B)."""
    first, second = ({one.check: one.count for one in report.checks} for report in reports)
    return [
        (name, first.get(name, 0), second.get(name, 0))
        for name in dict.fromkeys([*first, *second])
        if first.get(name, 0) or second.get(name, 0)
    ]


def _charts(difference: RunDifference, shape: ChartShape) -> str:
    """Throughput and latency of both runs over one axis, which begins with each run's load."""
    series = [report.series for report in difference.reports]
    if not all(entry.acknowledged for entry in series):
        return ""
    length_ms = max(entry.bucket_ms * len(entry.acknowledged) for entry in series)
    canvas = Canvas(shape, 0.0, length_ms)
    bottom = draw_rates(canvas, series, top=26)
    bottom = draw_latencies(canvas, series, top=bottom)
    words = "throughput and latency of both runs over time"
    return canvas.element(bottom, words)
