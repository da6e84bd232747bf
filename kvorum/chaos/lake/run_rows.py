"""A run's folder as rows of a lake's tables: its history, faults, milestones and voters.

A history is read as a stream and once: a day-long run needs the memory of its faults and of a row
group. The last line of a run that was killed may be torn; the rows before it count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kvorum.chaos.history import (
    ACKNOWLEDGE,
    COMMIT,
    DELIVER,
    FAULT_BEGIN,
    FAULT_END,
    HISTORY_FILE,
    OBSERVE,
    POLL,
    SEND,
    TRANSACTION,
    Acknowledgement,
    Delivery,
    Event,
    Header,
    Poll,
    Send,
    check_whole,
    details_of,
    read_header,
    read_history,
)
from kvorum.chaos.lake.parts import Addition
from kvorum.chaos.lake.tables import FAULTS, HISTORY, MILESTONES, RUNS, VOTERS
from kvorum.chaos.outages.milestones import (
    Milestone,
    RunMilestones,
    milestones_in,
)
from kvorum.chaos.outages.observations import QuorumSeen, read_observation
from kvorum.chaos.outages.recovery import struck_ms_of
from kvorum.chaos.report.document import (
    REPORT_JSON,
    REPORT_VERSION,
    OtherVersion,
    RunReport,
    read_json,
)
from kvorum.chaos.report.report import REPORT_HTML
from kvorum.chaos.run_record import RUN_FILE, RunRecord, read_record
from kvorum.runtime.errors import ConfigError, CorruptData

Row = Sequence[Any]


def is_run(folder: Path) -> bool:
    """True if the folder is that of a chaos run, complete or not."""
    return (folder / HISTORY_FILE).exists()


def run_id_of(folder: Path) -> str:
    """The id in the history's header. Raises CorruptData, and ConfigError for a run without one."""
    run_id = read_header(str(folder / HISTORY_FILE)).run_id
    if not run_id:
        raise ConfigError(f"{folder} holds a history without a run id; name one with --run-id")
    return run_id


def write_run(addition: Addition, folder: Path) -> str:
    """Write the tables of a run, but not its row in `runs`. Returns the milestones' source.

    Raises CorruptData for a damaged file of the run.
    """
    path = str(folder / HISTORY_FILE)
    header = read_header(path)
    record = record_in(folder)
    check_whole(path, None if record is None else record.history_bytes)
    decisions = RunMilestones(milestones_in(str(folder)), header.wall_start_ms)
    fold = _Fold(header, decisions)
    with addition.table(HISTORY) as history, addition.table(VOTERS) as voters:
        for event in read_history(path):
            for row in history_rows(event, header.wall_start_ms):
                history.add(row)
            fold.add(event)
            for row in voter_rows(event, header.wall_start_ms):
                voters.add(row)
    topic = None if record is None else record.configuration.get("topic", {}).get("name")
    try:
        faults = list(fold.fault_rows(topic))
    except (KeyError, TypeError) as error:
        raise CorruptData(path, 0, f"a fault-begin lacks a field: {error}") from error
    addition.write(FAULTS, faults)
    # Milestones of the observer come first: they count only before the log's first record.
    milestones = [*fold.seen, *decisions.logged]
    addition.write(MILESTONES, milestone_rows(milestones, header.wall_start_ms))
    return decisions.source


def history_rows(event: Event, wall_start_ms: int) -> Iterator[Row]:
    """The rows of one event: one, or one for each of its records."""
    head = (
        event.index,
        event.time_ms,
        wall_start_ms + int(event.time_ms),
        event.process,
        event.type,
        event.f,
    )
    tail = (event.latency_ms, event.transaction, event.group, event.generation, event.error)
    plain = (*tail, None, None)
    if not event.ops or event.f in (TRANSACTION, COMMIT):
        yield (*head, None, event.topic, event.partition, None, None, *plain)
    if event.f == COMMIT:
        return
    for op in event.ops:
        if isinstance(op, Send):
            offset = op.offset if op.offset >= 0 else None
            yield (*head, SEND, op.topic, op.partition, op.value, offset, *plain)
        elif isinstance(op, Poll):
            for value, offset in op.records():
                yield (*head, POLL, op.topic, op.partition, value, offset, *plain)
        elif isinstance(op, Delivery):
            for offset, count in zip(op.offsets, op.counts, strict=True):
                where = (DELIVER, op.topic, op.partition, None, offset)
                yield (*head, *where, *tail, count or None, None)
        elif isinstance(op, Acknowledgement):
            for offset, kind in zip(op.offsets, op.types, strict=True):
                where = (ACKNOWLEDGE, op.topic, op.partition, None, offset)
                yield (*head, *where, *tail, None, kind)


def voter_rows(event: Event, wall_start_ms: int) -> Iterator[Row]:
    """The voters that the quorum's leader described in an observation."""
    if event.f != OBSERVE:
        return
    seen = read_observation(event)
    if not isinstance(seen, QuorumSeen):
        return
    ends = dict(seen.log_end_offsets)
    leader_end = ends.get(seen.leader_id)
    for voter, end in sorted(ends.items()):
        yield (
            event.time_ms,
            wall_start_ms + int(event.time_ms),
            seen.leader_id,
            seen.leader_epoch,
            seen.high_watermark,
            voter,
            end if end >= 0 else None,
            None if leader_end is None or end < 0 else leader_end - end,
        )


def milestone_rows(milestones: Iterable[Milestone], wall_start_ms: float | None) -> Iterator[Row]:
    """The rows of the table `milestones`. wall_start_ms: of the history; None for an export without
    a history, whose rows have no time_ms."""
    for item in milestones:
        yield (
            None if wall_start_ms is None else item.wall_ms - wall_start_ms,
            item.wall_ms,
            item.what,
            item.broker,
            item.topic,
            item.partition,
            item.leader,
            item.epoch,
            None if item.isr is None else list(item.isr),
        )


class _Fold:
    """The faults of a history, and the milestones that its observer saw."""

    def __init__(self, header: Header, decisions: RunMilestones) -> None:
        self._wall_start_ms = header.wall_start_ms
        self._begins: list[Event] = []
        self._ends: dict[Any, float] = {}
        self._decisions = decisions
        self.seen: list[Milestone] = []

    def add(self, event: Event) -> None:
        if event.f == FAULT_BEGIN:
            self._begins.append(event)
        elif event.f == FAULT_END:
            self._ends[details_of(event).get("id")] = event.time_ms
        elif event.f == OBSERVE:
            self.seen += self._decisions.seen(event)

    def fault_rows(self, topic: str | None) -> Iterator[Row]:
        """Raises KeyError for a fault-begin that lacks a field."""
        for event in self._begins:
            details = details_of(event)
            yield (
                details["id"],
                details["name"],
                details["fault"],
                details["description"],
                details["target"],
                list(details["nodes"]),
                list(details.get("roles", ())),
                struck_ms_of(event),
                event.time_ms,
                self._ends.get(details["id"]),
                self._wall_start_ms + int(event.time_ms),
                topic,
                list(details["led_partitions"]),
                list(details["held_partitions"]),
                details["is_active_controller"],
            )


def record_in(folder: Path) -> RunRecord | None:
    """The record of the run; None for a run that was killed before it was written."""
    return read_record(str(folder)) if (folder / RUN_FILE).exists() else None


def runs_row(folder: Path, run_id: str, rows: dict[str, int], milestones_source: str) -> Row:
    """The run's row in the table `runs`, in the order of its columns. milestones_source: of
    `write_run`."""
    header = read_header(str(folder / HISTORY_FILE))
    record, report = record_in(folder), _report_in(folder)
    page = folder / REPORT_HTML
    values: dict[str, Any] = {
        **dict.fromkeys(column.name for column in RUNS.columns),
        "id": run_id,
        "kind": "chaos",
        "system": header.system or None,
        "is_complete": record is not None and record.error is None,
        "promises": [],
        "broken_promises": [],
        "started_wall_ms": header.wall_start_ms,
        "history_start_wall_ms": header.wall_start_ms,
        "milestones_source": milestones_source,
        "report": str(page.absolute()) if page.exists() else None,
        "rows": sorted(rows.items()),
    }
    if record is not None:
        values |= _of_record(record)
    if report is not None:
        values |= {
            "verdict": report.verdict,
            "reasons": list(report.reasons),
            "broken_promises": [one.promise for one in report.promises if not one.is_kept],
            "lost": report.lost,
            "duplicated": report.duplicated,
            "reordered": report.reordered,
        }
    return [values[column.name] for column in RUNS.columns]


def _of_record(record: RunRecord) -> dict[str, Any]:
    configuration = record.configuration
    topic, workload = configuration.get("topic", {}), configuration.get("workload", {})
    values = {
        "experiment": record.title,
        "tags": list(record.tags),
        "seed": record.seed,
        "controllers": configuration.get("controllers"),
        "brokers": configuration.get("brokers"),
        "topic": topic.get("name"),
        "partitions": topic.get("partitions"),
        "replication_factor": topic.get("replication_factor"),
        "min_insync_replicas": topic.get("min_insync_replicas"),
        "records_per_second": workload.get("records_per_second"),
        "record_bytes": workload.get("record_bytes"),
        "promises": list(record.stated_promises.items()),
        "started_wall_ms": record.started_wall_ms,
        "ended_wall_ms": record.ended_wall_ms,
    }
    if record.system is None:
        return values
    return values | {"system": record.system.name, "version": record.system.version}


def _report_in(folder: Path) -> RunReport | None:
    """The report of the run; None for a run that was not judged. Raises CorruptData."""
    path = folder / REPORT_JSON
    try:
        return read_json(folder) if path.exists() else None
    except OtherVersion as error:
        reason = (
            f"a report of version {error.version}, not {REPORT_VERSION}; "
            f"kvorum report {folder} writes it again"
        )
        raise CorruptData(str(path), 0, reason) from error
