"""Files of `kvorum metadata export`, read by the Spark job."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kvorum.metadata.inspect.export import export_history
from kvorum.metadata.inspect.export_schema import SCHEMA_VERSION, TABLES
from kvorum.metadata.inspect.history import MetadataCopy, history_of
from tests.test_metadata.folders import batches_of, records_of_seed

pytest.importorskip("pyspark")

from kvorum.analytics.exports import SCHEMA_VERSION_MAX, UnreadableExport, check_exports, type_name
from kvorum.analytics.schemas import SCHEMAS

RECORDS = records_of_seed(11)


def write(folder: Path) -> None:
    batches = batches_of(RECORDS, random.Random(1))
    history = history_of(MetadataCopy(records=b"".join(batches)), name="the cluster")
    export_history(history, str(folder), rows_per_file_max=20)


def test_the_job_declares_the_columns_that_the_exporter_writes() -> None:
    assert SCHEMA_VERSION == SCHEMA_VERSION_MAX
    shared = [table for table in TABLES if table.name in SCHEMAS]
    assert [table.name for table in shared] == [
        "metadata_records", "partitions", "topics", "brokers"
    ]  # fmt: skip
    for table in shared:
        declared = [(f.name, type_name(f.dataType)) for f in SCHEMAS[table.name].fields]
        assert declared == [(column.name, column.type) for column in table.columns]


@pytest.mark.parametrize("place", ["", "metadata"])
def test_export_of_another_schema_is_refused_by_column(tmp_path: Path, place: str) -> None:
    write(tmp_path / place)
    check_exports([str(tmp_path)])
    path = tmp_path / place / "schema.json"
    document = json.loads(path.read_text())
    column = document["tables"]["partitions"]["columns"][2]
    column["type"] = "string"
    path.write_text(json.dumps(document))
    with pytest.raises(UnreadableExport, match=r"partitions\.partition is string, .* int32"):
        check_exports([str(tmp_path)])
    path.write_text(json.dumps({**document, "version": SCHEMA_VERSION_MAX + 1}))
    with pytest.raises(UnreadableExport, match="is newer than 2; run a newer job"):
        check_exports([str(tmp_path)])
    path.write_text('{"version": 2}')
    with pytest.raises(UnreadableExport, match="not the schema of an export"):
        check_exports([str(tmp_path)])


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_spark_reads_an_export_of_many_files(tmp_path: Path) -> None:
    write(tmp_path / "run")
    assert (tmp_path / "run" / "metadata_records.parquet").is_dir()
    output = tmp_path / "out"
    command = [sys.executable, "-m", "kvorum.analytics.job", "--input", str(tmp_path / "run")]
    command += ["--output", str(output), "--master", "local[1]"]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=root, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    mix = pq.read_table(output / "tables" / "record_mix.parquet").to_pylist()
    counted = {row["record_type"]: row["records"] for row in mix}
    names = ["LeaderChange" if record is None else type(record).__name__ for record in RECORDS]
    assert counted == {name: names.count(name) for name in names}
    skew = pq.read_table(output / "tables" / "leader_skew.parquet").to_pylist()
    partitions = pq.read_table(tmp_path / "run" / "partitions.parquet").to_pylist()
    for row in skew:
        led = sum(each["leader"] == row["broker_id"] for each in partitions)
        assert row["leaders"] == led
