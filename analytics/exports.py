"""Compares the schema.json beside exported metadata with the schemas that the job reads.

The exporter and the job do not import each other; schema.json is their contract. A run folder
without a schema.json (an older export, or a history alone) is read without a check.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql.types import ArrayType, DataType

from kvorum.analytics.schemas import PLACES, SCHEMAS

SCHEMA_FILE = "schema.json"
SCHEMA_VERSION_MAX = 2
"""The newest version that the job reads; in a later one, columns may have another meaning."""

_NAMES = {"integer": "int32", "long": "int64", "string": "string", "boolean": "bool",
          "double": "double"}  # fmt: skip


class UnreadableExport(Exception):
    """An export that the job must not read; the message names file and column."""


def check_exports(folders: list[str]) -> None:
    """Raise UnreadableExport for the first input whose schema.json does not match the job's
    schemas."""
    for folder in folders:
        for place in PLACES:
            path = Path(folder) / place / SCHEMA_FILE
            if path.is_file():
                _check(path)


def _check(path: Path) -> None:
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = int(document["version"])
        tables = {
            name: {column["name"]: column["type"] for column in table["columns"]}
            for name, table in document["tables"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableExport(f"{path}: not the schema of an export: {error!r}") from error
    if version > SCHEMA_VERSION_MAX:
        raise UnreadableExport(
            f"{path}: schema version {version} is newer than {SCHEMA_VERSION_MAX}; run a newer job"
        )
    for name, columns in tables.items():
        for field in SCHEMAS[name].fields if name in SCHEMAS else ():
            written, read = columns.get(field.name), type_name(field.dataType)
            if written is not None and written != read:
                raise UnreadableExport(
                    f"{path}: column {name}.{field.name} is {written}, this job reads {read}"
                )


def type_name(kind: DataType) -> str:
    """A Spark type under its name in schema.json."""
    if isinstance(kind, ArrayType):
        return f"list<{type_name(kind.elementType)}>"
    return _NAMES.get(kind.typeName(), kind.typeName())
