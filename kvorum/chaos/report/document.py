"""report.json, what a run's folder says as plain values. Its one writer and its one reader.

Lists are cut at a fixed length, and a field beside each says how many entries it leaves out.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kvorum.chaos.checks import CheckResult
from kvorum.chaos.outages.outages import Outage
from kvorum.chaos.outages.promises import Promised
from kvorum.chaos.outages.recovery import Recovery
from kvorum.chaos.run_record import FRESH, Measurement, RunSystem, StepOutcome
from kvorum.runtime.errors import ConfigError, CorruptData

REPORT_JSON = "report.json"
REPORT_VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The records of the load: times from the begin of the run, outcomes, latencies."""

    begin_ms: float
    end_ms: float
    invoked: int
    acknowledged: int
    failed: int
    unknown: int
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    latency_max_ms: float | None
    longest_cluster_silence_ms: float
    longest_partition_silence_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChanges:
    """The creations and deletions of topics."""

    invoked: int
    done: int
    created: int
    failed: int
    unknown: int
    errors: dict[str, int]
    latency_p50_ms: float | None
    longest_gap_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The unavailable times of some partitions.

    not_back: how many were still unavailable when the load ended.
    continued_from: the earlier faults whose outages went on there.
    """

    partitions: tuple[int, ...]
    unavailable_p50_ms: float | None
    unavailable_max_ms: float | None
    not_back: int
    continued_from: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRow:
    """A fault, as `FaultSpan` has it.

    led: of the partitions that a struck node led.
    others: of all others.
    recoveries: the partitions, the longest unavailable ones first.
    """

    id: int
    name: str
    fault: str
    description: str
    target: str
    nodes: tuple[str, ...]
    roles: tuple[str, ...]
    is_active_controller: bool
    begin_ms: float
    end_ms: float | None
    lasted_ms: float | None
    led: Spread
    others: Spread
    recoveries: tuple[Recovery, ...]
    recoveries_left_out: int
    controller_elect_ms: float | None
    controller_unavailable_ms: float | None
    hits: dict[str, dict[str, int]]
    lost_packets: int | None
    is_without_hit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outages:
    """The outages.

    count: of all.
    unowned: of those that no fault explains.
    kinds: how many of each kind.
    rows: those without an owner, then the longest.
    """

    count: int
    unowned: int
    kinds: dict[str, int]
    rows: tuple[Outage, ...]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyStateRow:
    """A probe of the steady state, before and after the method."""

    name: str
    tolerance: str
    before: str
    before_ok: bool
    after: str
    after_ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """A partition in the whole run."""

    topic: str
    partition: int
    longest_silence_ms: float
    leader_changes: int
    isr_shrinks: int
    isr_expands: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRow:
    """The longest time in which a group read none of a partition's records."""

    group: str
    topic: str
    partition: int
    longest_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerEpoch:
    """An active controller."""

    time_ms: float
    epoch: int
    leader_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Throughput and latency over time; a bucket without an acknowledgement has no latency."""

    begin_ms: float
    bucket_ms: float
    acknowledged: tuple[int, ...]
    latency_p50_ms: tuple[float | None, ...]
    latency_p99_ms: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A judged run.

    verdict: passed | failed | inconclusive.
    reasons: why it is not `passed`.
    lost, duplicated, reordered: counts of records, None if not everything was read.
    """

    version: int
    title: str
    description: str
    tags: tuple[str, ...]
    verdict: str
    reasons: tuple[str, ...]
    summary: str
    seed: int
    rerun: str
    versions: dict[str, str]
    system: RunSystem | None
    cluster: str = FRESH
    is_secure: bool = False
    configuration: dict[str, Any]
    started_wall_ms: int
    ended_wall_ms: int
    lost: int | None
    duplicated: int | None
    reordered: int | None
    is_final_read_complete: bool
    load: Load
    administration: TopicChanges | None
    promises: tuple[Promised, ...]
    faults: tuple[FaultRow, ...]
    faults_left_out: int
    outages: Outages
    checks: tuple[CheckResult, ...]
    is_lab_failure: bool = False
    steady_state_title: str
    steady_state: tuple[SteadyStateRow, ...]
    partitions: tuple[PartitionRow, ...]
    partitions_left_out: int
    isr_shrinks: int
    isr_expands: int
    leader_changes: int
    consumers: tuple[ConsumerRow, ...]
    controller_epochs: tuple[ControllerEpoch, ...]
    controller_epochs_left_out: int
    milestones_source: str
    series: Series
    errors: dict[str, int]
    steps: tuple[StepOutcome, ...]
    probes: tuple[Measurement, ...]
    notes: tuple[str, ...]


class OtherVersion(ConfigError):
    """A report.json of another build. version: what it says, None if it says nothing."""

    def __init__(self, message: str, version: object) -> None:
        super().__init__(message)
        self.version = version


def write_json(report: RunReport, folder: Path) -> None:
    """Write report.json, with the figures that its readers would have to derive."""
    content = dataclasses.asdict(report)
    for row, promised in zip(content["promises"], report.promises, strict=True):
        row["bound"] = promised.bound()
    for row, outage in zip(content["outages"]["rows"], report.outages.rows, strict=True):
        row |= {"length_ms": outage.length_ms, "is_unowned": outage.is_unowned}
    (folder / REPORT_JSON).write_text(json.dumps(content, indent=1), encoding="utf-8")


def read_json(folder: Path) -> RunReport:
    """The report.json of a run folder. Raises OSError, OtherVersion, CorruptData."""
    path = folder / REPORT_JSON
    again = f"`kvorum report {folder}` writes it again"
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise CorruptData(str(path), 0, f"not a report: {error}; {again}") from error
    version = content.get("version") if isinstance(content, dict) else None
    if version != REPORT_VERSION:
        text = f"{path} has version {version}, and this build reads {REPORT_VERSION}; {again}"
        raise OtherVersion(text, version)
    try:
        return msgspec.convert(content, RunReport)
    except msgspec.ValidationError as error:
        raise CorruptData(str(path), 0, f"not a report: {error}; {again}") from error
