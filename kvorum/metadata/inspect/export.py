"""Exports a history of the metadata as tables: Parquet or JSON lines, and schema.json.

Rows are written in portions, so an export needs the memory of the history and one portion. Only
this module imports pyarrow, and only for an export.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Protocol

from kvorum.metadata.configs.secrets import shown_config
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.inspect.export_schema import (
    ACLS,
    BROKERS,
    CLIENT_QUOTAS,
    CONFIGS,
    CONTROLLERS,
    DELEGATION_TOKENS,
    FEATURES,
    IMAGE,
    METADATA_RECORDS,
    PARTITIONS,
    SCHEMA_FILE,
    TABLES,
    TOPICS,
    Table,
    arrow_schema,
    document,
)
from kvorum.metadata.inspect.history import MetadataHistory
from kvorum.metadata.inspect.record_rows import record_rows
from kvorum.metadata.inspect.thing_rows import (
    Row,
    acl_row,
    broker_row,
    controller_row,
    feature_row,
    partition_row,
    token_row,
    topic_row,
)
from kvorum.metadata.inspect.tree import REPEATING, Folder, key_text, leaves, root

ROWS_PER_FILE_MAX = 1_000_000
"""A table with more rows becomes a folder of files, which readers read in parallel."""

_ROWS_PER_WRITE = 20_000
"""Rows in memory at once; also the size of a row group in a Parquet file."""


class TableWriter(Protocol):
    """Writes one table into a folder; returns its path and the number of rows."""

    def __call__(
        self, table: Table, rows: Iterator[Row], folder: str, rows_per_file_max: int
    ) -> tuple[str, int]: ...


def export_history(
    history: MetadataHistory,
    folder: str,
    *,
    at_offset: int | None = None,
    form: str = "parquet",
    rows_per_file_max: int = ROWS_PER_FILE_MAX,
) -> dict[str, int]:
    """Write every table of the history below at_offset: path to rows, in the order of TABLES.

    Tables of an earlier export in the folder are replaced one by one, schema.json last. The records
    table begins at the history's first_offset. Raises OffsetNotHeld, CorruptData, OSError, and
    ImportError without pyarrow.

    form: a key of WRITERS.
    """
    image = history.image_at(at_offset)
    stop = history.end_offset if at_offset is None else at_offset
    os.makedirs(folder, exist_ok=True)
    write = WRITERS[form]
    written: dict[str, int] = {}
    files: dict[str, Row] = {}
    for table in TABLES:
        if table is METADATA_RECORDS:
            rows = record_rows(history, stop)
        else:
            rows = iter(_IMAGE_ROWS[table.name](image))
        path, count = write(table, rows, folder, rows_per_file_max)
        for form_before in WRITERS:
            # Remove the table of an earlier export in another form: a reader would take it for a
            # part of this one.
            if (before := os.path.join(folder, f"{table.name}.{form_before}")) != path:
                _remove(before)
        written[path] = count
        files[table.name] = {"path": os.path.basename(path), "rows": count}
    described = document() | {
        "source": history.name,
        "records_from_offset": min(history.first_offset, stop),
        "end_offset": stop,
        "epoch": image.epoch,
        "files": files,
    }
    _replace_text(os.path.join(folder, SCHEMA_FILE), json.dumps(described, indent=1))
    return written


# --- writers ----------------------------------------------------------------------------------


def _write_parquet(
    table: Table, rows: Iterator[Row], folder: str, rows_per_file_max: int
) -> tuple[str, int]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema(table)
    target = os.path.join(folder, f"{table.name}.parquet")
    # Readers skip names that begin with a dot or an underscore.
    scratch = os.path.join(folder, f".{table.name}.parquet.part")
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    count, parts = 0, 0
    ahead: list[Row] = []  # a row of the next file; without one, this file is the last
    while parts == 0 or ahead:
        of_file = chain(ahead, islice(rows, rows_per_file_max - len(ahead)))
        with pq.ParquetWriter(os.path.join(scratch, f"part-{parts:05d}.parquet"), schema) as file:
            while portion := list(islice(of_file, _ROWS_PER_WRITE)):
                file.write_table(pa.Table.from_pylist(portion, schema=schema))
                count += len(portion)
        parts += 1
        ahead = list(islice(rows, 1))
    _remove(target)
    if parts == 1:
        os.replace(os.path.join(scratch, "part-00000.parquet"), target)
        os.rmdir(scratch)
    else:
        os.replace(scratch, target)
    return target, count


def _write_json_lines(
    table: Table, rows: Iterator[Row], folder: str, rows_per_file_max: int
) -> tuple[str, int]:
    # Always one file, because readers split JSON lines themselves.
    names = [column.name for column in table.columns]
    target = os.path.join(folder, f"{table.name}.jsonl")
    part = f"{target}.part"
    count = 0
    with open(part, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps({name: row.get(name) for name in names}) + "\n")
            count += 1
    os.replace(part, target)
    return target, count


WRITERS: dict[str, TableWriter] = {"parquet": _write_parquet, "jsonl": _write_json_lines}


def _remove(path: str) -> None:
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.unlink(path)


def _replace_text(path: str, text: str) -> None:
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.part", path)


# --- rows of the image ------------------------------------------------------------------------


def _partition_rows(image: ClusterImage) -> Iterator[Row]:
    for topic in sorted(image.topics.values(), key=lambda t: t.name):
        for partition_id, partition in sorted(topic.partitions.items()):
            yield partition_row(topic, partition_id, partition)


def _topic_rows(image: ClusterImage) -> Iterator[Row]:
    for topic in sorted(image.topics.values(), key=lambda t: t.name):
        factors = (len(partition.replicas) for partition in topic.partitions.values())
        yield topic_row(topic) | {
            "partitions": len(topic.partitions),
            "replication_factor": max(factors, default=0),
        }


def _broker_rows(image: ClusterImage) -> Iterator[Row]:
    for _, broker in sorted(image.brokers.items()):
        yield broker_row(broker)


def _controller_rows(image: ClusterImage) -> Iterator[Row]:
    for _, controller in sorted(image.controllers.items()):
        yield controller_row(controller)


def _config_rows(image: ClusterImage) -> Iterator[Row]:
    for (kind, resource), values in sorted(image.configs.items(), key=lambda item: item[0]):
        for name, value in sorted(values.items()):
            yield {
                "resource_type": kind,
                "resource_name": resource,
                "name": name,
                "value": shown_config(kind, name, value),
            }


def _feature_rows(image: ClusterImage) -> Iterable[Row]:
    return (feature_row(name, level) for name, level in sorted(image.features.items()))


def _quota_rows(image: ClusterImage) -> Iterator[Row]:
    for entity, values in sorted(image.client_quotas.items(), key=lambda item: key_text(item[0])):
        for key, value in sorted(values.items()):
            yield {"entity": key_text(entity), "key": key, "value": value}


def _acl_rows(image: ClusterImage) -> Iterator[Row]:
    for acl_id, acl in sorted(image.acls.items(), key=lambda item: item[0]):
        yield acl_row(acl_id, acl)


def _token_rows(image: ClusterImage) -> Iterator[Row]:
    for _, token in sorted(image.delegation_tokens.items()):
        yield token_row(token)


def _leaf_rows(image: ClusterImage) -> Iterator[Row]:
    for name, node in root(image).build().items():
        if name in REPEATING and isinstance(node, Folder) and name != "provenance":
            continue
        for path, value in leaves(node, f"/{name}"):
            yield {"path": path, "value_json": json.dumps(value)}


_IMAGE_ROWS: dict[str, Callable[[ClusterImage], Iterable[Row]]] = {
    PARTITIONS.name: _partition_rows,
    TOPICS.name: _topic_rows,
    BROKERS.name: _broker_rows,
    CONTROLLERS.name: _controller_rows,
    CONFIGS.name: _config_rows,
    FEATURES.name: _feature_rows,
    CLIENT_QUOTAS.name: _quota_rows,
    ACLS.name: _acl_rows,
    DELEGATION_TOKENS.name: _token_rows,
    IMAGE.name: _leaf_rows,
}
