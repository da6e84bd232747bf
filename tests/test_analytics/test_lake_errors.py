"""Lakes that are damaged or strange: an error that names the file, or a run that is left out."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvorum.analytics.files import Files
from kvorum.analytics.job import analyse, main
from kvorum.analytics.lake import UnreadableLake, open_lake
from kvorum.analytics.schemas import RUN_ID, SCHEMAS, type_name
from kvorum.analytics.session import open_session
from kvorum.analytics.tables import history
from kvorum.analytics.tables.compare import Side
from kvorum.chaos.lake.tables import FAULTS, HISTORY
from tests.test_analytics.lakes import add_run, make_lake, random_tables, table_named, write

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    scratch = str(tmp_path_factory.mktemp("scratch"))
    session = open_session("local[2]", "1g", scratch, is_short=True)
    yield session
    session.stop()


@pytest.fixture
def lake(tmp_path):
    return make_lake(tmp_path / "lake", {"a": {"started_wall_ms": 1}, "b": {"started_wall_ms": 2}})


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_job_reads_the_columns_that_the_lake_describes(name):
    written = {column.name: column.type for column in table_named(name).columns}
    for field in SCHEMAS[name].fields:
        if field.name != RUN_ID:
            assert written[field.name] == type_name(field.dataType)


def first(lake, table: str, run_id: str = "a") -> Path:
    return Path(lake.parts(table_named(table), run_id)[0])


def torn(lake) -> str:
    path = first(lake, "history")
    path.write_bytes(path.read_bytes()[:-100])
    return f"{path} is torn or no Parquet file; kvorum lake add RUN --replace writes"


def foreign(lake) -> str:
    path = first(lake, "faults")
    table = pq.ParquetFile(path).read()
    place = table.schema.get_field_index("fault_id")
    pq.write_table(table.set_column(place, "fault_id", table["fault_id"].cast(pa.string())), path)
    return f"{path.parent}: column fault_id is string, this job reads int32; add the run again"


def foreign_everywhere(lake) -> str:
    for run_id in ("a", "b"):
        path = first(lake, "faults", run_id)
        table = pq.ParquetFile(path).read()
        place = table.schema.get_field_index("fault_id")
        column = table["fault_id"].cast(pa.string())
        pq.write_table(table.set_column(place, "fault_id", column), path)
    return "column fault_id is string, this job reads int32"


def later(lake) -> str:
    (Path(lake.root) / "lake.json").write_text('{"lake": 3}')
    return "is a lake of version 3, this job reads 2"


def undescribed(lake) -> str:
    (Path(lake.root) / "lake.json").unlink()
    return "is no lake: it has no lake.json"


def emptied(lake) -> str:
    for name in ("a", "b"):
        lake.remove(name)
    return "has no run: add one with kvorum lake add"


def nothing_counts(lake) -> str:
    for run_id in ("a", "b"):
        shutil.rmtree(lake.folder(table_named("milestones"), run_id))
    return "counts: milestones has 0 rows of "


@pytest.mark.parametrize(
    "damage", [torn, foreign, foreign_everywhere, later, undescribed, emptied, nothing_counts]
)
def test_an_unreadable_lake_is_one_sentence(spark, lake, damage: Callable[..., str]):
    words = damage(lake)
    with pytest.raises(UnreadableLake) as error:
        open_lake(spark, lake.root)
    assert words in str(error.value) and len(str(error.value).splitlines()) == 1


def test_a_column_that_a_file_lacks_reads_as_null(spark, lake):
    for run_id in ("a", "b"):
        path = first(lake, "faults", run_id)
        pq.write_table(pq.ParquetFile(path).read().drop_columns("struck_ms"), path)
    rows = open_lake(spark, lake.root).tables["faults"].collect()
    assert rows and all(row.struck_ms is None and row.begin_ms is not None for row in rows)


def copied_part(lake) -> str:
    path = first(lake, "history")
    shutil.copy(path, path.with_name("part-00001.parquet"))
    return "rows of a where runs states"


def lost_part(lake) -> str:
    shutil.rmtree(first(lake, "milestones").parent)
    return "milestones has 0 rows of a where runs states"


def copied_run(lake) -> str:
    """The folders of another run under this one's name."""
    for table in ("runs", *(name for name in SCHEMAS if name != "runs")):
        place = Path(lake.folder(table_named(table), "a"))
        shutil.rmtree(place)
        shutil.copytree(lake.folder(table_named(table), "b"), place)
    return "a is a copy of the run b"


def unfinished(lake) -> str:
    shutil.rmtree(lake.folder(table_named("runs"), "a"))
    return "a was never added completely"


def twice(lake) -> str:
    path = first(lake, "runs")
    shutil.copy(path, path.with_name("part-00001.parquet"))
    return "a is twice in runs"


@pytest.mark.parametrize("damage", [copied_part, lost_part, copied_run, unfinished, twice])
def test_a_run_that_does_not_count_is_left_out_and_named(spark, lake, damage):
    words = damage(lake)
    opened = open_lake(spark, lake.root)
    assert [run[RUN_ID] for run in opened.runs] == ["b"]
    assert list(opened.left_out) == ["a"] and words in opened.left_out["a"]
    for table in opened.tables.values():
        assert {row[RUN_ID] for row in table.select(RUN_ID).distinct().collect()} <= {"b"}


def test_one_run_can_be_chosen_and_must_exist(spark, lake):
    opened = open_lake(spark, lake.root, run_ids=["b"])
    assert [run[RUN_ID] for run in opened.runs] == ["b"]
    assert {row[RUN_ID] for row in opened.tables["history"].collect()} == {"b"}
    with pytest.raises(UnreadableLake, match="has no run c"):
        open_lake(spark, lake.root, run_ids=["c"])


def test_a_uri_of_hadoop_is_a_lake_too(spark, lake):
    assert len(open_lake(spark, f"file://{lake.root}").runs) == 2


def test_a_run_without_faults_and_one_whose_clock_went_back_have_tables(spark, tmp_path, lake):
    tables = random_tables(random.Random(9))
    for row in tables["history"][::7]:
        row["wall_ms"] -= 3_600_000
    del tables["faults"]
    add_run(lake, "calm", tables, {"started_wall_ms": 3})
    out = tmp_path / "out"
    opened = open_lake(spark, lake.root, run_ids=["calm"])
    summary = analyse(opened, Files(spark, str(out)))
    assert summary["skipped"]["recoveries"] == "no input: faults"
    silences = pq.read_table(out / "tables" / "silences.parquet").to_pylist()
    assert silences and all(row["length_ms"] > 0 for row in silences)
    assert not (out / "tables" / "recoveries.parquet").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--compare", "version", "version=2"], "'version' chooses no runs: write KEY=VALUE"),
        (["--compare", "colour=red", "version=2"], "KEY one of run, version"),
    ],
)
def test_a_side_that_is_none_is_refused_before_spark_starts(capsys, arguments, words):
    assert main(["--lake", "x", "--output", "y", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("text", ["-1", "0", "nan", "inf", "x"])
def test_a_ratio_that_no_figure_can_have_is_refused(capsys, text):
    with pytest.raises(SystemExit):
        main(["--lake", "x", "--output", "y", "--regression-ratio", text])
    assert f"--regression-ratio: '{text}' is no number above 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--master", "foo", "'foo' is no master; give local[N], spark://HOST:PORT"),
        ("--master", "localhost", "'localhost' is no master"),
        ("--driver-memory", "lots", "'lots' is no size; write one as 512m or 2g"),
    ],
)
def test_what_a_jvm_would_answer_with_a_trace_is_refused_before(capsys, option, value, words):
    with pytest.raises(SystemExit) as ended:
        main(["--lake", "x", "--output", "y", option, value])
    assert ended.value.code == 2
    assert f"{option}: {words}" in capsys.readouterr().err


def test_a_side_without_a_run_is_refused_before_the_first_table(spark, tmp_path, lake):
    sides = (Side(key="version", value="0"), Side(key="version", value="9"))
    said: list[str] = []
    with pytest.raises(UnreadableLake, match="no run of the lake has version=0; kvorum lake list"):
        analyse(
            open_lake(spark, lake.root),
            Files(spark, str(tmp_path / "out")),
            sides=sides,
            say=said.append,
        )
    assert said == []


def test_an_output_that_cannot_be_written_is_an_error_of_the_file_system(spark, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="out"):
        Files(spark, str(tmp_path / "file" / "out")).write("summary.json", b"{}")


def test_lake_and_output_may_be_on_any_file_system_of_hadoop(spark, tmp_path, lake):
    """viewfs, which mounts a local folder here, stands for hdfs and s3a."""
    spark._jsc.hadoopConfiguration().set(
        "fs.viewfs.mounttable.lab.link./data", f"file://{tmp_path}"
    )
    opened = open_lake(spark, "viewfs://lab/data/lake", run_ids=["b"])
    summary = analyse(opened, Files(spark, "viewfs://lab/data/results"))
    for name, count in summary["tables"].items():
        path = tmp_path / "results" / "tables" / f"{name}.parquet"
        assert pq.read_table(path).num_rows == count
    assert (tmp_path / "results" / "index.html").exists()


def test_missing_java_is_one_sentence(monkeypatch, capsys):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["--lake", "x", "--output", "y"]) == 2
    assert capsys.readouterr().err == (
        "the Spark job needs Java 17 or later, on PATH or in JAVA_HOME\n"
    )


def test_silence_is_time_in_which_something_waits(spark, tmp_path, lake):
    """The load pauses for a second, then a record waits for 400 ms, then the load ends."""
    rows = []
    for invoked, done in ((0, 5), (1_000, 1_400), (1_390, 1_410), (1_500, None)):
        send = {
            "f": "send", "operation": "send", "process": "p", "topic": "t", "partition": 0,
            "value": invoked, "wall_ms": 0,
        }  # fmt: skip
        rows.append(send | {"type": "invoke", "time_ms": float(invoked)})
        if done is not None:
            rows.append(send | {"type": "ok", "time_ms": float(done),
                                "latency_ms": float(done - invoked)})  # fmt: skip
    rows.append(rows[-1] | {"type": "info", "time_ms": 2_000.0, "latency_ms": 500.0})
    for index, row in enumerate(rows):
        row["index"] = index
    assert write(lake, HISTORY, "x", rows) and not write(lake, FAULTS, "x", [])
    table = spark.read.parquet(lake.folder(HISTORY, "x")).selectExpr("'x' as run_id", "*")
    gaps = history.gaps(history.slices(history.operations(table))).orderBy("begin_ms").collect()
    assert [(row.begin_ms, row.end_ms, row.is_over) for row in gaps] == [
        (1_000, 1_400, True), (1_500, 2_000, False),
    ]  # fmt: skip
