"""The export, read back by pyarrow, and its schema held against the Spark job's."""

import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvorum.metadata.inspect.export import export_history
from kvorum.metadata.inspect.export_schema import SCHEMA_VERSION, TABLES, Column, arrow_schema
from kvorum.metadata.inspect.history import MetadataCopy, OffsetNotHeld, history_of
from kvorum.metadata.inspect.tree import content
from kvorum.metadata.inspect.tree_queries import leaf_text
from kvorum.runtime.ids import uuid_text
from tests.test_metadata.folders import batches_of, records_of_seed, replayed, snapshot_bytes

RECORDS = records_of_seed(11)
END = len(RECORDS)


def history(base=0):
    batches = batches_of(RECORDS, random.Random(1), start=base)
    snapshot = snapshot_bytes(replayed(RECORDS, base)) if base else b""
    copy = MetadataCopy(snapshot=snapshot, records=b"".join(batches))
    return history_of(copy, name="the cluster")


def tables_in(folder, ending="parquet"):
    return {table.name: pq.read_table(folder / f"{table.name}.{ending}") for table in TABLES}


@pytest.mark.parametrize("base", [0, 40])
@pytest.mark.parametrize("at_offset", [None, 55])
def test_tables_say_what_the_image_and_the_log_say(tmp_path, base, at_offset):
    stop = END if at_offset is None else at_offset
    written = export_history(history(base), str(tmp_path), at_offset=at_offset)
    tables = tables_in(tmp_path)
    assert written == {str(tmp_path / f"{n}.parquet"): t.num_rows for n, t in tables.items()}
    image = replayed(RECORDS, stop)

    records = tables["metadata_records"].to_pylist()
    assert [row["offset"] for row in records] == list(range(base, stop))
    kinds = ["LeaderChange" if r is None else type(r).__name__ for r in RECORDS[base:stop]]
    assert [row["record_type"] for row in records] == kinds
    assert all(row["epoch"] == 1 and row["timestamp_ms"] >= 1000 for row in records)
    assert all(isinstance(json.loads(row["payload_json"]), dict) for row in records)
    # The last record of each existing partition has its epochs.
    last = {(r["topic_id"], r["partition"]): r for r in records if r["partition"] is not None}
    for row in tables["partitions"].to_pylist():
        found = last.get((row["topic_id"], row["partition"]))
        if found is not None:
            assert found["topic"] == row["topic"]
            assert (found["leader_epoch"], found["partition_epoch"]) == (
                row["leader_epoch"], row["partition_epoch"]
            )  # fmt: skip
    partitions = {
        (uuid_text(topic_id), number): partition
        for topic_id, topic in image.topics.items()
        for number, partition in topic.partitions.items()
    }
    shown = {(r["topic_id"], r["partition"]): r for r in tables["partitions"].to_pylist()}
    assert shown.keys() == partitions.keys()
    for key, row in shown.items():
        assert (tuple(row["isr"]), row["leader"]) == (partitions[key].isr, partitions[key].leader)
    assert tables["topics"].column("topic").to_pylist() == sorted(image.topic_ids)
    assert tables["brokers"].column("broker_id").to_pylist() == sorted(image.brokers)
    for row in tables["image"].to_pylist():
        assert content(image, row["path"]) == json.loads(row["value_json"])
    assert leaf_text(stop) in tables["image"].column("value_json").to_pylist()


def test_schema_goes_with_every_file_and_beside_them(tmp_path):
    export_history(history(), str(tmp_path))
    document = json.loads((tmp_path / "schema.json").read_text())
    assert document["version"] == SCHEMA_VERSION
    assert (document["source"], document["end_offset"]) == ("the cluster", END)
    assert set(document["tables"]) == {table.name for table in TABLES}
    for table in TABLES:
        schema = pq.read_schema(tmp_path / f"{table.name}.parquet")
        assert schema.equals(arrow_schema(table), check_metadata=False)
        assert schema.metadata[b"kvorum.schema.version"].decode() == str(SCHEMA_VERSION)
        told = document["tables"][table.name]["columns"]
        assert [Column(**column) for column in told] == list(table.columns)
        for column in told:
            assert schema.field(column["name"]).metadata[b"kvorum.meaning"] == (
                column["meaning"].encode()
            )
        assert document["files"][table.name]["rows"] == (
            pq.read_metadata(tmp_path / f"{table.name}.parquet").num_rows
        )


def test_table_with_many_rows_is_a_folder_of_files_and_a_later_export_replaces_it(tmp_path):
    export_history(history(), str(tmp_path), rows_per_file_max=7)
    folder = tmp_path / "metadata_records.parquet"
    parts = sorted(folder.iterdir())
    assert [part.name for part in parts[:2]] == ["part-00000.parquet", "part-00001.parquet"]
    assert [pq.read_metadata(part).num_rows for part in parts] == (
        [7] * (END // 7) + ([END % 7] if END % 7 else [])
    )
    assert tables_in(tmp_path)["metadata_records"].column("offset").to_pylist() == [*range(END)]
    export_history(history(), str(tmp_path), rows_per_file_max=END)
    assert folder.is_file() and pq.read_metadata(folder).num_rows == END
    export_history(history(), str(tmp_path), rows_per_file_max=END - 1)
    assert folder.is_dir()
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_json_lines_hold_the_same_rows(tmp_path):
    export_history(history(), str(tmp_path / "a"))
    export_history(history(), str(tmp_path / "b"), form="jsonl")
    for name, table in tables_in(tmp_path / "a").items():
        lines = (tmp_path / "b" / f"{name}.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in lines] == table.to_pylist()


def test_an_export_leaves_nothing_of_one_before_in_another_form(tmp_path):
    export_history(history(), str(tmp_path), rows_per_file_max=7)
    export_history(history(), str(tmp_path), form="jsonl")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"{table.name}.jsonl" for table in TABLES} | {"schema.json"}
    export_history(history(), str(tmp_path))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"{table.name}.parquet" for table in TABLES} | {"schema.json"}


def test_offset_that_is_not_held_leaves_the_folder_alone(tmp_path):
    with pytest.raises(OffsetNotHeld):
        export_history(history(40), str(tmp_path / "out"), at_offset=3)
    assert not (tmp_path / "out").exists()


def test_columns_are_named_once_and_say_what_they_mean():
    for table in TABLES:
        names = [column.name for column in table.columns]
        assert len(set(names)) == len(names)
        assert all(column.meaning for column in table.columns)
        assert isinstance(arrow_schema(table), pa.Schema)
