"""Each table of the job against DuckDB, from the same files; and what the job leaves behind."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kvorum.analytics.catalogue import CATALOGUE
from tests.test_analytics.duck import COMPUTED, Duck
from tests.test_analytics.lakes import make_lake

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

RUNS = {
    "run-0": {"started_wall_ms": 0},
    "run-a": {"started_wall_ms": 1},
    "run-b": {"started_wall_ms": 2, "version": "0.2.0"},
    "006": {"started_wall_ms": 3, "system": "kafka", "version": "4.2.0"},
    "007": {"started_wall_ms": 3, "system": "kafka", "version": "4.3.1", "verdict": "failed"},
    "run-c": {"started_wall_ms": 4, "seed": 2, "version": "0.2.0"},
}


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> tuple[Path, Path, str]:
    """The lake, the folder of the job's results, and what it printed; run as users run it."""
    base = tmp_path_factory.mktemp("analytics")
    make_lake(base / "lake", RUNS)
    command = [sys.executable, "-m", "kvorum.analytics.job", "--lake", str(base / "lake")]
    command += ["--output", str(base / "out"), "--master", "local[2]"]
    root = Path(__file__).resolve().parents[2]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=280)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return base / "lake", base / "out", finished.stdout


def rows_of(output: Path, name: str) -> list[dict[str, Any]]:
    return pq.read_table(output / "tables" / f"{name}.parquet").to_pylist()


def plain(value: Any) -> Any:
    """Every number as a float of nine or ten significant digits, as far as the sums of two engines
    agree."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    number = float(value)
    return 0.0 if number == 0 else round(number, 9 - math.ceil(math.log10(abs(number))))


def sorted_rows(rows: list[dict[str, Any]], columns: list[str]) -> list[tuple[str, ...]]:
    return sorted(tuple(str(plain(row[column])) for column in columns) for row in rows)


@pytest.mark.parametrize("name", COMPUTED)
def test_spark_and_duckdb_agree(done, name):
    lake, output, _ = done
    columns = list(CATALOGUE[name].columns)
    spark = rows_of(output, name)
    duck = Duck(lake, output).rows(name)
    assert spark, f"{name} is empty: the comparison would say nothing"
    assert sorted_rows(spark, columns) == sorted_rows(duck, columns)


def test_every_table_but_the_drawn_intervals_is_compared():
    assert set(CATALOGUE) - set(COMPUTED) == {"regressions"}


def duck_count(done, source: str) -> int:
    return Duck(*done[:2]).count(source)


def test_the_generated_runs_show_every_case(done):
    _, output, _ = done
    recoveries = rows_of(output, "recoveries")
    assert {row["role"] for row in recoveries} == {"led", "other", "administration"}
    assert {row["is_over"] for row in recoveries} == {True, False}
    assert any(row["fence_ms"] is not None for row in recoveries)
    assert any(row["elect_ms"] is not None and row["ack_ms"] is not None for row in recoveries)
    assert duck_count(done, "blamed where not is_owner"), "no outage of an earlier fault"
    assert any(row["continued"] for row in rows_of(output, "failover_by_fault"))
    assert duck_count(done, "starts where until_ms - begin_ms <= 5000"), "no start of a load"
    later = "elections e join struck f using (run_id, fault_id) where elect_at > last_ms"
    assert duck_count(done, later), "no election after the next fault's begin"
    kept = "fences f join with_ids n using (run_id, fault_id) where n.id is not null and exists ("
    kept += "from others o where (o.run_id, o.fault_id) = (f.run_id, f.fault_id) "
    kept += "and o.id is null and f.fence_at >= o.begin_ms and f.fence_at < o.end_ms)"
    assert duck_count(done, kept), "no kill during an outage of a fault that struck no broker"
    assert {row["is_over"] for row in rows_of(output, "silences")} == {True, False}
    assert {row["has_majority"] for row in rows_of(output, "what_if")} == {True, False}
    assert any(row["cause"] == "no fault" for row in rows_of(output, "fencing_causes"))
    shared = rows_of(output, "share_deliveries")
    assert any(row["fault"] == "none" for row in shared)
    assert any(row["fault"] != "none" and row["redeliveries"] for row in shared)
    assert any(0 < row["accepted"] < row["records"] for row in shared)
    assert any(row["fault"] == "none" for row in rows_of(output, "latency_by_fault"))


def test_versions_are_compared_with_the_one_before(done):
    _, output, _ = done
    rows = rows_of(output, "regressions")
    assert {(row["baseline"], row["candidate"]) for row in rows} == {
        ("version=0.1.0", "version=0.2.0")
    }
    with_interval = [row for row in rows if row["ratio_low"] is not None]
    assert with_interval
    for row in with_interval:
        assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]


def test_each_question_of_the_catalogue_is_answered_by_its_query(done):
    lake, output, _ = done
    duck = Duck(lake, output)
    for name, entry in CATALOGUE.items():
        duck.query(entry.query, name, output)


def test_summary_csv_pictures_and_page_are_there(done):
    _, output, printed = done
    summary = json.loads((output / "summary.json").read_text())
    assert summary["runs"] == list(RUNS)
    assert summary["skipped"] == {}
    assert set(summary["tables"]) == set(CATALOGUE)
    for name, count in summary["tables"].items():
        assert len(rows_of(output, name)) == count
        csv = (output / "tables" / f"{name}.csv").read_text().splitlines()
        assert csv[0].split(",") == list(CATALOGUE[name].columns)
    assert len(summary["plots"]) == 8
    for name in summary["plots"]:
        assert (output / "plots" / name).read_bytes().startswith(b"\x89PNG")
    page = (output / "index.html").read_text()
    assert page.count("<img") == 8
    for run_id in RUNS:
        assert run_id in page
    assert f"outcomes: {len(RUNS)} rows" in printed
