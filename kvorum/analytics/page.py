"""The page over all runs of a lake: one HTML file, with plots in it and links to the reports."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from kvorum.analytics.catalogue import CATALOGUE

Row = Mapping[str, Any]

_ROWS_MAX = 40
_PLOTS = {
    "failover.png": "Unavailable after faults",
    "split.png": "Where the time goes",
    "timeline.png": "Silences over faults",
    "latency.png": "Latency by fault",
    "duels.png": "Duels",
    "churn.png": "ISR churn",
    "skew.png": "Skew",
    "record_mix.png": "Metadata records",
}
_STYLE = """
:root { color-scheme: light dark; --line: #d6dae0; --dim: #667080; --bad: #c0302b;
  --good: #2d7a4b; }
@media (prefers-color-scheme: dark) { :root { --line: #3a4049; --dim: #9aa4b2; --bad: #ff8078;
  --good: #6fce95; } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 1180px; padding: 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; } p { color: var(--dim); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; }
th, td { border-bottom: 1px solid var(--line); padding: 3px 10px 3px 0; text-align: left;
  white-space: nowrap; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
figure { background: #fff; margin: 1rem 0; padding: .5rem; border: 1px solid var(--line); }
figure img { max-width: 100%; height: auto; }
.passed { color: var(--good); } .failed { color: var(--bad); }
"""


def page(
    runs: Sequence[Row],
    tables: Mapping[str, Sequence[Row]],
    summary: Mapping[str, Any],
    plots: Mapping[str, bytes],
) -> str:
    """The whole page. tables: their rows, of which the first are shown."""
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>Kvorum: {len(runs)} runs</title><style>{_STYLE}</style></head><body>",
        f"<h1>{len(runs)} runs</h1>",
        _regressions(summary["regressions"]),
        "<h2>Runs</h2>",
        _runs(runs, tables),
    ]
    for name, title in _PLOTS.items():
        if name in plots:
            picture = base64.b64encode(plots[name]).decode()
            parts.append(
                f"<h2>{escape(title)}</h2><figure><img alt='{escape(title)}' "
                f"src='data:image/png;base64,{picture}'></figure>"
            )
    for name, rows in tables.items():
        if rows:
            parts.append(_table(name, rows))
    if summary["skipped"]:
        parts.append("<h2>Left out</h2><ul>")
        parts += [
            f"<li><b>{escape(name)}</b>: {escape(str(reason))}</li>"
            for name, reason in summary["skipped"].items()
        ]
        parts.append("</ul>")
    parts.append("</body></html>")
    return "\n".join(parts)


def _regressions(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    items = "".join(
        f"<li>{escape(row['experiment'])}, {escape(row['system'])}: {escape(row['figure'])} "
        f"{row['baseline_p50']:.1f} &rarr; {row['candidate_p50']:.1f} "
        f"(at least {row['ratio_low']:.2f} times)</li>"
        for row in rows
    )
    return f"<h2 class='failed'>Regressions</h2><ul>{items}</ul>"


def _runs(runs: Sequence[Row], tables: Mapping[str, Sequence[Row]]) -> str:
    outcomes = {row["run_id"]: row for row in tables.get("outcomes", ())}
    longest: dict[str, float] = {}
    for row in tables.get("unavailability", ()):
        if row["partition"] >= 0 and row["longest_ms"] is not None:
            known = longest.get(row["run_id"], 0.0)
            longest[row["run_id"]] = max(known, float(row["longest_ms"]))
    lines = []
    for run in runs[-_ROWS_MAX:]:
        run_id = str(run["run_id"])
        verdict = run["verdict"] or ("" if run["is_complete"] else "broken off")
        outcome = outcomes.get(run_id, {})
        cells = [
            _report(run_id, run["report"]),
            escape(str(run["experiment"] or "")),
            escape(f"{run['system'] or ''} {run['version'] or ''}"),
            f"<span class='{escape(verdict)}'>{escape(verdict)}</span>",
        ]
        numbers = [outcome.get("acknowledged"), outcome.get("p99_ms"), longest.get(run_id)]
        lines.append(
            "<tr>"
            + "".join(f"<td>{cell}</td>" for cell in cells)
            + "".join(f"<td class='number'>{_text(number)}</td>" for number in numbers)
            + "</tr>"
        )
    head = "".join(
        f"<th>{name}</th>"
        for name in (
            "run", "experiment", "system", "verdict", "acknowledged", "p99, ms",
            "longest silence, ms",
        )
    )  # fmt: skip
    cut = f"<p>The last {_ROWS_MAX} of {len(runs)}.</p>" if len(runs) > _ROWS_MAX else ""
    return f"{cut}<div class='wide'><table><tr>{head}</tr>{''.join(lines)}</table></div>"


def _report(run_id: str, report: str | None) -> str:
    if report is None:
        return escape(run_id)
    target = report if "://" in report else f"file://{report}"
    return f"<a href='{escape(target, quote=True)}'>{escape(run_id)}</a>"


def _table(name: str, rows: Sequence[Row]) -> str:
    entry = CATALOGUE[name]
    head = "".join(
        f"<th title='{escape(meaning, quote=True)}'>{escape(column)}</th>"
        for column, meaning in entry.columns.items()
    )
    lines = "".join(
        "<tr>" + "".join(_cell(row.get(column)) for column in entry.columns) + "</tr>"
        for row in rows[:_ROWS_MAX]
    )
    cut = f" The first {_ROWS_MAX} of {len(rows):,} rows." if len(rows) > _ROWS_MAX else ""
    return (
        f"<h2>{escape(name)}</h2><p>{escape(entry.meaning)}{cut}</p>"
        f"<div class='wide'><table><tr>{head}</tr>{lines}</table></div>"
    )


def _cell(value: Any) -> str:
    kind = " class='number'" if isinstance(value, int | float) and value is not True else ""
    return f"<td{kind}>{_text(value)}</td>"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
    return escape(f"{value:,}" if isinstance(value, int) else str(value))
