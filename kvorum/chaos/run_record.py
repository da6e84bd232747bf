"""run.json, the record of a run: what was run, and how it went. Its one writer and its one reader.

A run writes its record again and again, so that a run that is killed can be judged.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kvorum.chaos.history import HISTORY_FILE
from kvorum.runtime.errors import ConfigError, CorruptData

RUN_FILE = "run.json"

#: The `cluster` of a record: begun for the run, used by other runs before it, or not Kvorum's own.
FRESH, WARM, ATTACHED = "fresh", "warm", "attached"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A probe's result.

    value: None if the cluster did not answer.
    reason: why it did not.
    """

    name: str
    func: str
    value: float | None
    tolerance: str
    is_accepted: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """The outcome of one step. `reason` says why it was skipped."""

    name: str
    description: str
    is_done: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSystem:
    """The system under test: kvorum, kafka or attached, and its version."""

    name: str
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run, with the keys of run.json. Fields with a default are absent from older files.

    cluster: FRESH, WARM or ATTACHED.
    configuration: the experiment's, its workloads as an experiment writes them.
    died_unasked: the nodes that died though no fault killed them.
    error: why the run ended early; None for a run that went to its end.
    is_lab_failure: the run ended early because toxiproxy ended or gave no answer.
    versions: of the system, of Kvorum and of the parts of the lab, by name.
    history_bytes: the length of the history at the end; None while the run goes on.
    """

    version: int = 1
    title: str
    description: str
    tags: tuple[str, ...]
    seed: int
    cluster: str = FRESH
    rerun: str
    configuration: dict[str, Any]
    steady_state_title: str
    started_wall_ms: int
    steady_state_before: tuple[Measurement, ...]
    steady_state_after: tuple[Measurement, ...]
    probes: tuple[Measurement, ...]
    steps: tuple[StepOutcome, ...]
    is_converged: bool
    is_final_read_complete: bool
    died_unasked: tuple[str, ...]
    notes: tuple[str, ...]
    error: str | None
    is_lab_failure: bool = False
    system: RunSystem | None = None
    is_secure: bool = False
    versions: dict[str, str]
    ended_wall_ms: int
    compacted_topics: tuple[str, ...] = ()
    history_bytes: int | None = None

    @property
    def stated_promises(self) -> dict[str, float]:
        """The limits that the experiment states, by promise."""
        stated = self.configuration.get("promises") or {}
        return {name: limit for name, limit in stated.items() if limit is not None}


_REQUIRED = [
    one.name
    for one in dataclasses.fields(RunRecord)
    if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
]


def write_record(record: RunRecord, run_dir: Path) -> None:
    """Write run.json at once: a reader finds the former record or this one."""
    content = dataclasses.asdict(record)
    if record.history_bytes is None:
        del content["history_bytes"]
    beside = run_dir / f"{RUN_FILE}.new"
    beside.write_text(json.dumps(content, indent=1), encoding="utf-8")
    beside.replace(run_dir / RUN_FILE)


def read_record(run_dir: str) -> RunRecord:
    """The record of a run.

    Raises ConfigError when the folder holds no run, CorruptData for a file that is no record.
    """
    folder = Path(run_dir)
    if not (folder / HISTORY_FILE).exists() or not (folder / RUN_FILE).exists():
        raise ConfigError(f"{run_dir} holds no run: {RUN_FILE} and {HISTORY_FILE} are needed")
    return parse_record(folder / RUN_FILE)


def parse_record(path: Path) -> RunRecord:
    """The record in a file. Raises OSError, CorruptData."""
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise CorruptData(str(path), 0, f"not the record of a run: {error}") from error
    missing = [key for key in _REQUIRED if key not in content] if isinstance(content, dict) else []
    if missing:
        lacks = f"it has no {', '.join(missing)}"
        raise CorruptData(str(path), 0, f"not the record of a run: {lacks}")
    try:
        return msgspec.convert(content, RunRecord)
    except msgspec.ValidationError as error:
        raise CorruptData(str(path), 0, f"not the record of a run: {error}") from error
