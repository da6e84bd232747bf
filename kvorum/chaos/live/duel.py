"""A duel: one experiment with one seed against two systems, and one page with both."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvorum.chaos.history import HISTORY_FILE
from kvorum.chaos.live.runner import run
from kvorum.chaos.live.systems.limits import load_for
from kvorum.chaos.live.systems.opening import choose_system
from kvorum.chaos.report.diff import diff_runs
from kvorum.chaos.report.report import RunResult
from kvorum.runtime.errors import ConfigError

DUEL_HTML = "duel.html"
DUEL_JSON = "duel.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class DuelResult:
    """results: of the two runs, in the order of the systems.
    page: the HTML file.
    """

    systems: tuple[str, str]
    results: tuple[RunResult, RunResult]
    page: str


def duel(
    experiment_path: str,
    *,
    systems: Sequence[str],
    output_dir: str,
    progress: Callable[[str], None] | None = None,
    seed: int | None = None,
    kafka_libs: str | None = None,
    is_owned: bool = False,
) -> DuelResult:
    """Run the experiment against one system after the other, and write duel.html and duel.json.

    systems: two words as for `choose_system`. Both are checked before the first run begins. Raises
    ConfigError for an experiment that one of them cannot carry out, and what `run` raises.
    """
    if len(systems) != 2:
        raise ConfigError(f"a duel has two systems, as in kvorum,kafka; got {','.join(systems)!r}")
    if (Path(output_dir) / HISTORY_FILE).exists():
        raise ConfigError(f"{output_dir} already holds a run; name another folder")
    for system in systems:
        chosen = choose_system(
            system,
            kafka_libs=_libs_of(system, kafka_libs),
            is_owned=is_owned and system.endswith(".toml"),
        )
        experiment = load_for(chosen, experiment_path, seed=seed)
    results: list[RunResult] = []
    for number, system in enumerate(systems, 1):
        if progress is not None:
            progress(f"duel, run {number} of 2: {system}")
        results.append(
            run(
                experiment_path,
                output_dir=str(Path(output_dir) / f"{number}-{Path(system).stem}"),
                progress=progress,
                seed=seed,
                system=system,
                kafka_libs=_libs_of(system, kafka_libs),
                is_owned=is_owned and system.endswith(".toml"),
            )
        )
    page = str(Path(output_dir) / DUEL_HTML)
    diff_runs(results[0].run_dir, results[1].run_dir, page)
    first, second = systems
    outcome = DuelResult(systems=(first, second), results=(results[0], results[1]), page=page)
    document = {
        "experiment": experiment.title,
        "seed": results[0].seed,
        "runs": [
            {
                "system": system,
                "run_dir": Path(result.run_dir).name,
                "verdict": result.verdict,
                "reasons": list(result.reasons),
                "summary": result.summary,
            }
            for system, result in zip(systems, results, strict=True)
        ],
    }
    (Path(output_dir) / DUEL_JSON).write_text(json.dumps(document, indent=1), encoding="utf-8")
    return outcome


def _libs_of(system: str, kafka_libs: str | None) -> str | None:
    return kafka_libs if system == "kafka" else None
