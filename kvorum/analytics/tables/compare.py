"""Comparisons on the driver, over tables that are small: regressions between releases, duels.

A regression is judged by the ratio of two medians, with a bootstrap interval of 95 %: both samples
are drawn anew, with replacement, and the ratio is taken each time. It counts when even the lower
end of the interval is above the limit, and the median is worse by more than DIFFERENCE_MS_MIN.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Row = Mapping[str, Any]

RESAMPLES = 2_000
#: A difference below this is within what two runs of one release show on one machine.
DIFFERENCE_MS_MIN = 20.0
_SAMPLES_MIN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The runs that a key and a value of the table `runs` choose: version=0.1.0, run=1795-1."""

    key: str
    value: str

    def text(self) -> str:
        return f"{self.key}={self.value}"

    def has(self, run: Row) -> bool:
        key = "run_id" if self.key == "run" else self.key
        return str(run.get(key)) == self.value


SIDE_KEYS = ("run", "version", "system", "experiment", "verdict")


def side(text: str) -> Side:
    """A side from `key=value`. Raises ValueError, with the way out."""
    key, equals, value = text.partition("=")
    if not equals or key not in SIDE_KEYS:
        raise ValueError(
            f"{text!r} chooses no runs: write KEY=VALUE, KEY one of {', '.join(SIDE_KEYS)}"
        )
    return Side(key=key, value=value)


def latest_sides(runs: Sequence[Row]) -> tuple[Side, Side] | None:
    """The two newest versions of one system, the older one first; else the last run against the one
    before it of the same experiment and system; None if there is no such pair.

    runs: in the order in which they began.
    """
    versions: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        known = versions[str(run["system"])]
        version = run["version"]
        if run["kind"] == "chaos" and version is not None:
            if version in known:
                known.remove(version)
            known.append(version)
    for _, known in sorted(versions.items(), key=lambda item: item[0] != "kvorum"):
        if len(known) > 1:
            return Side(key="version", value=known[-2]), Side(key="version", value=known[-1])
    chaos = [run for run in runs if run["kind"] == "chaos"]
    if chaos:
        last = chaos[-1]
        same = [
            run
            for run in chaos[:-1]
            if (run["experiment"], run["system"]) == (last["experiment"], last["system"])
        ]
        if same:
            before = Side(key="run", value=str(same[-1]["run_id"]))
            return before, Side(key="run", value=str(last["run_id"]))
    return None


def regressions(
    runs: Sequence[Row],
    outcomes: Sequence[Row],
    recoveries: Sequence[Row],
    sides: tuple[Side, Side],
    *,
    ratio_max: float,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """A row for each figure that both sides have, by experiment and system; by experiment alone if
        the sides are systems, by system alone if they are experiments.

    recoveries: of partitions that the struck nodes led.
    ratio_max: limit of candidate / baseline.
    """
    rng = np.random.default_rng(seed)
    found: dict[tuple[str, str, str], tuple[list[float], list[float]]] = {}
    by_id = {str(run["run_id"]): run for run in runs}
    for run_id, figure, value in _samples(outcomes, recoveries):
        run = by_id.get(run_id)
        if run is None:
            continue
        experiment, system = (
            " / ".join(chosen.value for chosen in sides)
            if sides[0].key == sides[1].key == name
            else str(run[name])
            for name in ("experiment", "system")
        )
        key = (experiment, system, figure)
        pair = found.setdefault(key, ([], []))
        for values, chosen in zip(pair, sides, strict=True):
            if chosen.has(run):
                values.append(value)
    rows = []
    for (experiment, system, figure), (baseline, candidate) in sorted(found.items()):
        if not baseline or not candidate:
            continue
        row: dict[str, Any] = {
            "experiment": experiment,
            "system": system,
            "figure": figure,
            "baseline": sides[0].text(),
            "candidate": sides[1].text(),
            "baseline_samples": len(baseline),
            "candidate_samples": len(candidate),
            "baseline_p50": float(np.median(baseline)),
            "candidate_p50": float(np.median(candidate)),
        }
        rows.append(row | _judged(np.array(baseline), np.array(candidate), ratio_max, rng))
    return rows


def _samples(
    outcomes: Sequence[Row], recoveries: Sequence[Row]
) -> Iterator[tuple[str, str, float]]:
    """(run, figure, value): latencies of runs, and for each fault its worst led partition, but for
    those that were away already."""
    for row in outcomes:
        for name in ("p50_ms", "p99_ms"):
            if row[name] is not None:
                yield str(row["run_id"]), f"latency {name[:-3]}, ms", float(row[name])
    worst: dict[tuple[str, int, str], float] = {}
    for row in recoveries:
        is_apart = row["continued_ms"] > 0 and row["unavailable_ms"] == 0
        if row["role"] == "led" and not is_apart:
            key = (str(row["run_id"]), int(row["fault_id"]), str(row["fault"]))
            worst[key] = max(worst.get(key, 0.0), float(row["unavailable_ms"]))
    for (run_id, _, fault), value in worst.items():
        yield run_id, f"unavailable after {fault}, ms", value


def _judged(baseline: Any, candidate: Any, ratio_max: float, rng: Any) -> dict[str, Any]:
    before, after = float(np.median(baseline)), float(np.median(candidate))
    nothing: dict[str, Any] = {
        "ratio": after / before if before > 0 else None,
        "ratio_low": None,
        "ratio_high": None,
        "is_regression": False,
    }
    if min(len(baseline), len(candidate)) < _SAMPLES_MIN or before <= 0:
        # Too few values for an interval, or no baseline to divide by: nothing is claimed.
        return nothing
    drawn_before = np.median(rng.choice(baseline, (RESAMPLES, len(baseline))), axis=1)
    drawn_after = np.median(rng.choice(candidate, (RESAMPLES, len(candidate))), axis=1)
    known = drawn_before > 0
    if not known.any():
        return nothing
    low, high = np.quantile(drawn_after[known] / drawn_before[known], [0.025, 0.975])
    is_worse = float(low) > ratio_max and after - before > DIFFERENCE_MS_MIN
    return nothing | {
        "ratio_low": float(low),
        "ratio_high": float(high),
        "is_regression": bool(is_worse),
    }


_DUEL_FIGURES = (
    "verdict", "acknowledged", "p50_ms", "p99_ms", "longest_silence_ms", "unavailable_ms",
)  # fmt: skip


def duels(
    runs: Sequence[Row], outcomes: Sequence[Row], unavailability: Sequence[Row]
) -> list[dict[str, Any]]:
    """One row for each experiment, seed and pair of systems that both ran it, in each of their
    versions: their figures.

    The last run of a version counts. Silences are those of partitions, not of topic creation.
    """
    figures: dict[str, dict[str, Any]] = {
        str(row["run_id"]): {name: row[name] for name in ("acknowledged", "p50_ms", "p99_ms")}
        for row in outcomes
    }
    for row in unavailability:
        if row["partition"] < 0:
            continue
        known = figures.setdefault(str(row["run_id"]), {})
        known["longest_silence_ms"] = max(
            known.get("longest_silence_ms") or 0.0, row["longest_ms"] or 0.0
        )
        known["unavailable_ms"] = max(known.get("unavailable_ms") or 0.0, row["unavailable_ms"])
    last: dict[tuple[str, int], dict[tuple[str, str], Row]] = defaultdict(dict)
    for run in runs:
        if run["kind"] == "chaos" and run["experiment"] is not None and run["seed"] is not None:
            name = (str(run["system"]), str(run["version"] or ""))
            last[str(run["experiment"]), int(run["seed"])][name] = run
    rows = []
    for (experiment, seed), by_version in sorted(last.items()):
        names = sorted(by_version, key=lambda name: (name[0] != "kvorum", name))
        for pair in itertools.combinations(names, 2):
            if pair[0][0] == pair[1][0]:
                continue  # two releases of one system are for `regressions`
            duel: dict[str, Any] = {"experiment": experiment, "seed": seed}
            for prefix, name in zip(("first", "second"), pair, strict=True):
                run = by_version[name]
                values = {"verdict": run["verdict"]} | figures.get(str(run["run_id"]), {})
                duel[f"{prefix}_system"], duel[f"{prefix}_version"] = run["system"], run["version"]
                duel[f"{prefix}_run_id"] = str(run["run_id"])
                duel |= {f"{prefix}_{figure}": values.get(figure) for figure in _DUEL_FIGURES}
            rows.append(duel)
    return rows
