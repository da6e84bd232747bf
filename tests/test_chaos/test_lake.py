"""A lake: what a run's folder becomes, and what goes wrong while it is written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvorum.chaos.history import Commit, read_history
from kvorum.chaos.lake import parts
from kvorum.chaos.lake.add import add, compact
from kvorum.chaos.lake.store import COMPACTED, Lake
from kvorum.chaos.lake.tables import (
    FAULTS,
    HISTORY,
    LAKE_VERSION,
    MILESTONES,
    RUNS,
    TABLES,
    VOTERS,
    arrow_schema,
    document,
)
from kvorum.chaos.outages.milestones import (
    METADATA_LOG,
    MILESTONES_FILE,
    OBSERVER_EVENTS,
    Milestone,
    MilestoneSource,
    milestones_in,
    write_milestones,
)
from kvorum.chaos.outages.observations import PartitionSeen, QuorumSeen
from kvorum.chaos.outages.timeline import build_timeline
from kvorum.chaos.report.report import write_report
from kvorum.metadata.inspect.export import export_history
from kvorum.metadata.inspect.export_schema import Table
from kvorum.metadata.inspect.history import MetadataHistory
from kvorum.runtime.errors import ConfigError, CorruptData
from tests.command import kvorum

from .histories import HistoryBuilder
from .runs import write_run

NOW_MS = 5_000
#: The wall-clock start of the runs that `HistoryBuilder.write` writes.
WALL_START_MS = 1_700_000_000_000


def run_history() -> HistoryBuilder:
    history = HistoryBuilder()
    for value in range(10):
        history.written(value % 2, value // 2, value // 2)
    history.consumed(1, [(n, n) for n in range(5)])
    history.transacted(sends=[(0, 5, 5)], polls={1: [(0, 0)]}, commits={1: 1})
    history.add("nemesis", "info", "fault-begin", at_ms=60, details={
        "id": 0, "name": "kill-one", "fault": "kill", "description": "kill one:brokers",
        "target": "one:brokers", "nodes": ["broker-101"], "roles": ["broker-101: leader"],
        "led_partitions": [0], "held_partitions": [0, 1], "is_active_controller": False,
        "injection_ms": 2.5,
    })  # fmt: skip
    seen = QuorumSeen(
        observer="controller-2", leader_id=2, leader_epoch=1, high_watermark=7,
        log_end_offsets=((1, 6), (2, 9), (3, -1)),
    )  # fmt: skip
    history.add("observer", "ok", "observe", details=seen.details())
    leader = PartitionSeen(
        observer="broker-102", topic="orders", partition=0, leader=102, leader_epoch=2,
        isr=(102, 103), replicas=(101, 102, 103),
    )  # fmt: skip
    history.add("observer", "ok", "observe", topic="orders", partition=0, details=leader.details())
    history.add("nemesis", "info", "fault-end", at_ms=75, details={"id": 0, "fault": "kill"})
    history.written(0, 6, 6)
    return history


def lake_of(tmp_path: Path, **changes) -> Lake:
    """A lake with one run, whose id is r."""
    (tmp_path / "run").mkdir()
    write_run(tmp_path / "run", run_history(), **changes)
    write_report(str(tmp_path / "run"))
    lake = Lake(str(tmp_path / "lake"))
    add(lake, str(tmp_path / "run"), wall_ms=NOW_MS)
    return lake


def rows_of(lake: Lake, table: Table, run_id: str = "r") -> list[dict]:
    return [
        row for path in lake.parts(table, run_id) for row in pq.ParquetFile(path).read().to_pylist()
    ]


def test_a_record_of_a_send_or_a_poll_is_a_row_and_any_other_event_is_one(tmp_path):
    lake = lake_of(tmp_path)
    rows = rows_of(lake, HISTORY)
    assert sum((row["f"], row["type"]) == ("send", "ok") for row in rows) == 11
    read = [row for row in rows if row["process"] == "consumer-1"]
    assert [(row["operation"], row["value"], row["offset"]) for row in read] == [
        ("poll", n, n) for n in range(5)
    ]
    done = [row for row in rows if (row["f"], row["type"]) == ("transaction", "ok")]
    assert [(row["operation"], row["topic"], row["partition"], row["value"]) for row in done] == [
        (None, None, None, None), ("poll", "orders", 1, 0), ("send", "orders", 0, 5),
    ]  # fmt: skip
    assert {row["transaction"] for row in done} == {"transactions-1"}
    invoked = next(row for row in rows if row["type"] == "invoke")
    assert (invoked["offset"], invoked["latency_ms"]) == (None, None)


def test_a_commit_is_one_row_whatever_it_commits(tmp_path):
    history = HistoryBuilder()
    ops = (Commit("orders", 0, 5), Commit("orders", 1, 6))
    history.add("g-0.1", "invoke", "commit", ops=ops, group="g", generation=3)
    history.add("g-0.1", "ok", "commit", ops=ops, group="g", generation=3)
    (tmp_path / "run").mkdir()
    write_run(tmp_path / "run", history)
    lake = Lake(str(tmp_path / "lake"))
    add(lake, str(tmp_path / "run"), wall_ms=NOW_MS)
    _, row = rows_of(lake, HISTORY)
    assert (row["f"], row["operation"], row["group"], row["generation"]) == ("commit", None, "g", 3)


def test_deliveries_and_acknowledgements_of_a_share_group_are_a_row_a_record(tmp_path):
    history = HistoryBuilder()
    history.joined("shared-1")
    history.delivered("shared-1", 1, 7, 2)
    history.delivered("shared-1", 1, 8, 0)
    history.acknowledged("shared-1", 1, 7, "release")
    (tmp_path / "run").mkdir()
    write_run(tmp_path / "run", history)
    lake = Lake(str(tmp_path / "lake"))
    add(lake, str(tmp_path / "run"), wall_ms=NOW_MS)
    columns = ("operation", "partition", "offset", "group", "delivery_count", "acknowledgement")
    assert [tuple(row[name] for name in columns) for row in rows_of(lake, HISTORY)] == [
        (None, None, None, "shared", None, None),
        ("deliver", 1, 7, "shared", 2, None),
        ("deliver", 1, 8, "shared", None, None),
        ("acknowledge", 1, 7, "shared", None, "release"),
        ("acknowledge", 1, 7, "shared", None, "release"),
    ]


def test_faults_milestones_and_voters_have_their_tables(tmp_path):
    lake = lake_of(tmp_path)
    (fault,) = rows_of(lake, FAULTS)
    assert (fault["struck_ms"], fault["begin_ms"], fault["end_ms"]) == (57.5, 60, 75)
    assert (fault["led_partitions"], fault["held_partitions"]) == ([0], [0, 1])
    milestones = [(row["what"], row["leader"], row["isr"]) for row in rows_of(lake, MILESTONES)]
    assert milestones == [
        ("active-controller", 2, None), ("leader", 102, None), ("isr", None, [102, 103]),
    ]  # fmt: skip
    voters = [(row["voter_id"], row["log_end_offset"], row["lag"]) for row in rows_of(lake, VOTERS)]
    assert voters == [(1, 6, 3), (2, 9, 0), (3, None, None)]


def added_with(tmp_path: Path, first_wall_ms: float, logged: list[Milestone]) -> Lake:
    """A lake with a run whose metadata log begins at first_wall_ms, 0 if it is whole; the run has
    no report."""
    run = tmp_path / "run"
    run.mkdir()
    write_run(run, run_history())
    source = MilestoneSource(milestones=1, source=METADATA_LOG, first_wall_ms=first_wall_ms)
    write_milestones(str(run / MILESTONES_FILE), source, logged)
    lake = Lake(str(tmp_path / "lake"))
    add(lake, str(run), wall_ms=NOW_MS)
    return lake


def fenced_at(*times_ms: float) -> list[Milestone]:
    return [Milestone(wall_ms=WALL_START_MS + at, what="fenced", broker=101) for at in times_ms]


def test_decisions_of_earlier_runs_of_a_warm_cluster_are_no_milestones_of_the_run(tmp_path):
    lake = added_with(tmp_path, 0, fenced_at(-40_000, -1, 0, 61))
    assert [row["time_ms"] for row in rows_of(lake, MILESTONES)] == [0, 61]


def test_the_observers_events_are_the_milestones_before_a_trimmed_log(tmp_path):
    # The observer sees a leader of the quorum, and a millisecond later one of the partition.
    seen_ms = [event.time_ms for event in run_history().events if event.f == "observe"]
    lake = added_with(tmp_path, WALL_START_MS + seen_ms[1], fenced_at(seen_ms[1] + 5))
    told = [(row["time_ms"], row["what"]) for row in rows_of(lake, MILESTONES)]
    assert told == [(seen_ms[0], "active-controller"), (seen_ms[1] + 5, "fenced")]
    timeline = build_timeline(
        read_history(str(tmp_path / "run" / "history.jsonl")),
        milestones=milestones_in(str(tmp_path / "run")),
        wall_start_ms=WALL_START_MS,
    )
    assert told == [(time_ms, item.what) for time_ms, item in timeline.milestones]


def test_a_run_names_the_source_of_its_milestones_without_a_report_too(tmp_path):
    assert lake_of(tmp_path).runs()[0]["milestones_source"] == OBSERVER_EVENTS
    (tmp_path / "logged").mkdir()
    (row,) = added_with(tmp_path / "logged", 0, []).runs()
    assert row["milestones_source"] == METADATA_LOG


def test_the_row_of_a_run_states_its_sizes_and_its_verdict(tmp_path):
    lake = lake_of(tmp_path)
    (row,) = lake.runs()
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert (row["id"], row["kind"], row["verdict"]) == ("r", "chaos", report["verdict"])
    assert (row["controllers"], row["brokers"], row["seed"]) == (3, 3, 4)
    assert row["is_complete"] and row["report"].endswith("report.html")
    counts = dict(row["rows"])
    tables = {table.name: table for table in TABLES}
    assert counts == {name: len(rows_of(lake, tables[name])) for name in counts}


def test_every_file_states_the_version_and_the_meaning_of_its_columns(tmp_path):
    lake = lake_of(tmp_path)
    for table in (HISTORY, FAULTS, RUNS):
        for path in lake.parts(table, "r"):
            schema = pq.ParquetFile(path).schema_arrow
            assert schema.metadata[b"kvorum.lake.version"] == str(LAKE_VERSION).encode()
            assert all(field.metadata[b"kvorum.meaning"] for field in schema)
    assert json.loads((tmp_path / "lake" / "lake.json").read_text()) == document()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_column_has_a_type_and_a_meaning(table):
    assert len(arrow_schema(table)) == len(table.columns)
    assert all(column.meaning for column in table.columns)


def test_a_run_that_was_killed_keeps_what_it_had(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    write_run(folder, run_history())
    (folder / "run.json").unlink()
    with (folder / "history.jsonl").open("ab") as file:
        file.write(b'{"index": 99, "time_ms"')
    lake = Lake(str(tmp_path / "lake"))
    added = add(lake, str(folder), wall_ms=NOW_MS)
    (row,) = lake.runs()
    assert (row["is_complete"], row["verdict"], row["experiment"]) == (False, None, None)
    assert added.rows["history"] == len(rows_of(lake, HISTORY)) > 20


def test_an_export_of_metadata_is_a_run_of_its_own_kind(tmp_path):
    export_history(MetadataHistory(name="a node"), str(tmp_path / "out put"))
    lake = Lake(str(tmp_path / "lake"))
    added = add(lake, str(tmp_path / "out put"), wall_ms=NOW_MS)
    (row,) = lake.runs()
    assert (added.run_id, row["kind"], row["started_wall_ms"]) == ("out-put-0", "metadata", NOW_MS)
    assert row["experiment"] == "metadata of a node"


def test_an_export_as_json_lines_is_refused(tmp_path):
    export_history(MetadataHistory(name="a node"), str(tmp_path / "out"), form="jsonl")
    with pytest.raises(ConfigError, match="export it again with --format parquet"):
        add(Lake(str(tmp_path / "lake")), str(tmp_path / "out"), wall_ms=NOW_MS)


def test_a_run_is_added_once_and_replaced_when_asked(tmp_path):
    lake = lake_of(tmp_path)
    code, _, err = kvorum("lake", "add", tmp_path / "run", "--lake", tmp_path / "lake")
    assert code == 2 and "has a run r already; --replace replaces it" in err
    code, _, err = kvorum("lake", "add", tmp_path / "run", "--lake", tmp_path / "lake", "--replace")
    assert code == 0 and err.startswith("r added to ")
    assert len(lake.runs()) == 1


def test_a_damaged_run_is_refused_and_leaves_nothing_behind(tmp_path):
    (tmp_path / "run").mkdir()
    history = run_history()
    fault = next(event for event in history.events if event.f == "fault-begin")
    del fault.details["led_partitions"]
    write_run(tmp_path / "run", history)
    lake = Lake(str(tmp_path / "lake"))
    with pytest.raises(CorruptData, match="a fault-begin lacks a field: 'led_partitions'"):
        add(lake, str(tmp_path / "run"), wall_ms=NOW_MS)
    assert (lake.runs(), lake.unfinished()) == ([], [])
    assert sorted(path.name for path in (tmp_path / "lake").rglob("*.*")) == ["lake.json"]


def test_a_broken_off_addition_is_no_run_and_is_added_again(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    write_run(tmp_path / "run", run_history())
    lake = Lake(str(tmp_path / "lake"))

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # The row in `runs` is written last.
        patch.setattr("kvorum.chaos.lake.add.write_rows", die)
        with pytest.raises(KeyboardInterrupt):
            add(lake, str(tmp_path / "run"), wall_ms=NOW_MS)
    assert (lake.runs(), lake.unfinished()) == ([], ["r"])
    code, out, _ = kvorum("lake", "list", "--lake", tmp_path / "lake")
    assert code == 0 and "r: never added completely" in out
    add(lake, str(tmp_path / "run"), wall_ms=NOW_MS)
    assert ([row["id"] for row in lake.runs()], lake.unfinished()) == (["r"], [])


def bad_column(folder: Path) -> str:
    path = folder / "partitions.parquet"
    table = pq.read_table(path)
    place = table.schema.get_field_index("partition")
    pq.write_table(table.set_column(place, "partition", table["partition"].cast(pa.string())), path)
    return f"{path} at byte 0: the column partition is string, not int32"


def torn_table(folder: Path) -> str:
    (folder / "brokers.parquet").write_bytes(b"PAR1 torn")
    return f"{folder / 'brokers.parquet'} at byte 0: not a table of an export"


def later_version(folder: Path) -> str:
    path = folder / "schema.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 99}))
    return f"{path} is of version 99, this Kvorum knows"


@pytest.mark.parametrize("damage", [bad_column, torn_table, later_version])
def test_a_replacement_that_cannot_be_read_leaves_the_run_that_was_there(tmp_path, damage):
    lake = lake_of(tmp_path)
    before = rows_of(lake, HISTORY)
    export_history(MetadataHistory(name="a node"), str(tmp_path / "out"))
    words = damage(tmp_path / "out")
    code, _, err = kvorum(
        "lake", "add", tmp_path / "out", "--lake", tmp_path / "lake", "--run-id", "r", "--replace"
    )
    assert code != 0 and words in err and len(err.splitlines()) == 1
    assert [row["kind"] for row in lake.runs()] == ["chaos"]
    assert rows_of(lake, HISTORY) == before and lake.unfinished() == []


def test_a_replacement_leaves_no_file_of_the_run_before(tmp_path):
    lake = lake_of(tmp_path)
    assert lake.parts(VOTERS, "r")
    export_history(MetadataHistory(name="a node"), str(tmp_path / "out"))
    add(lake, str(tmp_path / "out"), wall_ms=NOW_MS, run_id="r", is_replaced=True)
    assert [row["kind"] for row in lake.runs()] == ["metadata"]
    assert lake.parts(VOTERS, "r") == lake.parts(HISTORY, "r") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "a report of version None"),
        ('{"version": 1}', "a report of version 1"),
        ("{", "not a report: "),
    ],
)
def test_a_report_that_is_none_is_one_sentence(tmp_path, text, words):
    (tmp_path / "run").mkdir()
    write_run(tmp_path / "run", run_history())
    (tmp_path / "run" / "report.json").write_text(text)
    code, _, err = kvorum("lake", "add", tmp_path / "run", "--lake", tmp_path / "lake")
    assert code == 1 and words in err and "kvorum report " in err and len(err.splitlines()) == 1


def test_a_lake_whose_creation_was_broken_off_is_created_again(tmp_path):
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / ".lake.json.inprogress").write_text("{")
    Lake(str(tmp_path / "lake")).create()
    Lake(str(tmp_path / "lake")).check()


def test_a_description_with_more_columns_is_kept(tmp_path):
    lake = Lake(str(tmp_path / "lake"))
    lake.create()
    path = tmp_path / "lake" / "lake.json"
    newer = json.loads(path.read_text())
    newer["tables"]["runs"]["columns"].append({"name": "colour", "type": "string"})
    path.write_text(json.dumps(newer))
    lake.create()
    assert json.loads(path.read_text()) == newer
    del newer["tables"]["runs"]["columns"][0]
    path.write_text(json.dumps(newer))
    lake.create()
    assert json.loads(path.read_text()) == document()


def test_a_failed_write_leaves_no_file(tmp_path):
    lake = Lake(str(tmp_path / "lake"))
    lake.create()
    row = [0, 0.0, 0, "p", "ok", "send", *[None] * (len(HISTORY.columns) - 6)]

    def rows():
        yield row
        raise RuntimeError("disk")

    with pytest.raises(RuntimeError, match="disk"), parts.Addition(lake, "r") as addition:
        addition.write(HISTORY, rows())
    with pytest.raises(RuntimeError, match="disk"):
        parts.write_rows(lake, HISTORY, "r", rows())
    assert not Path(lake.folder(HISTORY, "r")).exists()


def test_compaction_merges_the_files_of_a_run_and_loses_no_row(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "ROWS_PER_GROUP", 4)
    monkeypatch.setattr(parts, "ROWS_PER_FILE", 8)
    lake = lake_of(tmp_path)
    before = rows_of(lake, HISTORY)
    assert len(lake.parts(HISTORY, "r")) > 3
    done = compact(lake)
    assert len(lake.parts(HISTORY, "r")) == 1
    assert rows_of(lake, HISTORY) == before
    assert done.files_before - done.files_after >= 3
    assert compact(lake).files_before == done.files_after


def test_compaction_that_died_is_finished_by_the_next_one(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "ROWS_PER_GROUP", 4)
    monkeypatch.setattr(parts, "ROWS_PER_FILE", 8)
    lake = lake_of(tmp_path)
    before = rows_of(lake, HISTORY)

    def die(paths: list[str]) -> None:
        if paths:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lake, "delete", die)
        with pytest.raises(KeyboardInterrupt):
            compact(lake)
    assert (Path(lake.folder(HISTORY, "r")) / COMPACTED).exists()
    assert rows_of(lake, HISTORY) == before
    lake.delete(lake.parts(HISTORY, "r")[:2])
    compact(lake)
    assert rows_of(lake, HISTORY) == before
    assert not (Path(lake.folder(HISTORY, "r")) / COMPACTED).exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "{empty}", "--lake", "{lake}"), "is neither a run nor an export"),
        (("add", "{run}", "--lake", "{lake}", "--run-id", "a/b"), "cannot be the id of a run"),
        (("add", "{run}", "{run}", "--lake", "{lake}", "--run-id", "a"), "names one run"),
        (("add", "{run}", "--lake", "ftp://x/y"), "is no lake"),
        (("add", "{run}", "--lake", "{run}"), "is no lake, as it has no lake.json, and not empty"),
        (("add", "{run}", "--lake", "{lake}", "--run-id", ""), "cannot be the id of a run"),
        (("add", "{run}", "--lake", "{file}"), "is a file and no lake; name a folder"),
        (("list", "--lake", "{file}"), "is a file and no lake; name a folder"),
        (("list", "--lake", "{empty}"), "kvorum lake add RUN --lake"),
        (("compact", "--lake", "{empty}"), "is no lake: it has no lake.json"),
        (("list", "--lake", "{later}"), "is a lake of version 99, this Kvorum knows"),
        (("list", "--lake", "{torn}"), "not the description of a lake"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(tmp_path, arguments, words):
    places = {name: tmp_path / name for name in ("empty", "run", "lake", "later", "torn", "file")}
    places["file"].touch()
    for name in ("empty", "run", "later", "torn"):
        places[name].mkdir()
    write_run(places["run"], run_history())
    (places["later"] / "lake.json").write_text('{"lake": 99}')
    (places["torn"] / "lake.json").write_text("{")
    code, out, err = kvorum("lake", *(str(part).format(**places) for part in arguments))
    assert code != 0 and out == ""
    assert words in err and len(err.splitlines()) == 1


def test_a_damaged_file_is_named(tmp_path):
    lake = lake_of(tmp_path)
    (path,) = lake.parts(RUNS, "r")
    Path(path).write_bytes(b"PAR1 torn")
    code, _, err = kvorum("lake", "list", "--lake", tmp_path / "lake")
    assert code == 1 and path in err and "not a Parquet file" in err


def test_a_copied_run_is_named_by_its_folder(tmp_path):
    lake = lake_of(tmp_path)
    for table in (RUNS, HISTORY, FAULTS):
        shutil.copytree(lake.folder(table, "r"), lake.folder(table, "s"))
    code, out, _ = kvorum("lake", "list", "--lake", tmp_path / "lake")
    assert code == 0 and "s: the run r under a second name" in out


def test_a_run_that_is_replaced_takes_no_merged_file_with_it(tmp_path):
    """A compaction died, then the run was replaced: the old merged file is no part of the new."""
    lake = lake_of(tmp_path)
    folder = Path(lake.folder(HISTORY, "r"))
    shutil.copy(folder / "part-00000.parquet", folder / COMPACTED)
    add(lake, str(tmp_path / "run"), wall_ms=NOW_MS, is_replaced=True)
    assert not (folder / COMPACTED).exists()


def test_list_as_json_has_maps_as_objects(tmp_path):
    lake_of(tmp_path)
    code, out, _ = kvorum("lake", "list", "--lake", tmp_path / "lake", "-o", "json")
    answer = json.loads(out)
    assert code == 0 and answer["runs"][0]["rows"]["faults"] == 1 and answer["unfinished"] == []
