"""A lake's files, on a local disk or any file system that pyarrow knows (s3, gs, hdfs).

A file is written under a name that readers skip, and then moved to its own. A run counts once it
has its row in the table `runs`, which is written last: a run that was broken off while it was added
has none, and is replaced when it is added again. One process at a time may change a lake.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kvorum.chaos.lake.tables import LAKE_FILE, LAKE_VERSION, RUNS, TABLES, document
from kvorum.metadata.inspect.export_schema import Table
from kvorum.runtime.errors import ConfigError, CorruptData

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
COMPACTED = "_compacted.parquet"
"""A whole merged file whose parts are not all removed yet; readers skip the name."""

_PARTITION = "run_id="
_UNFINISHED = ".inprogress"


class Lake:
    """One lake, by its URI or path."""

    def __init__(self, uri: str) -> None:
        """Raises ConfigError for a URI that no file system of pyarrow takes."""
        from pyarrow import ArrowException, fs

        self.uri = uri
        try:
            if "://" in uri:
                self.fs, self.root = fs.FileSystem.from_uri(uri)
            else:
                self.fs, self.root = fs.LocalFileSystem(), str(Path(uri).absolute())
        except (ArrowException, OSError) as error:
            raise ConfigError(
                f"{uri!r} is no lake: {error}; use a path, or a URI of file, s3, gs or hdfs"
            ) from error
        self._is_directory = fs.FileType.Directory
        self._is_file = fs.FileType.File
        self._selector = fs.FileSelector

    def check_place(self) -> bool:
        """True if there is a lake. Raises ConfigError if the place holds other files, or a lake of
        another version; CorruptData if lake.json is damaged."""
        path = f"{self.root}/{LAKE_FILE}"
        if self._type(path) == self._is_file:
            self._described(path)
            return True
        if self._type(self.root) == self._is_file:
            raise ConfigError(f"{self.uri} is a file and no lake; name a folder")
        if any(not name.endswith(_UNFINISHED) for name in self._names(self.root)):
            raise ConfigError(
                f"{self.uri} is no lake, as it has no {LAKE_FILE}, and not empty; name a lake, or "
                "an empty folder for a new one"
            )
        return False

    def create(self) -> None:
        """Write lake.json, for a lake that is new or lacks tables or columns of this release.

        Raises as `check_place` does.
        """
        path = f"{self.root}/{LAKE_FILE}"
        if self.check_place() and _covers(self._described(path), document()):
            return
        self.fs.create_dir(self.root, recursive=True)
        self._replace(path, json.dumps(document(), indent=1).encode())

    def check(self) -> None:
        """Raises ConfigError if there is no lake, or one that this release cannot read."""
        if not self.check_place():
            raise ConfigError(
                f"{self.uri} is no lake: it has no {LAKE_FILE}; kvorum lake add RUN --lake "
                f"{self.uri} makes one"
            )

    def _described(self, path: str) -> dict[str, Any]:
        """The content of lake.json. Raises CorruptData, ConfigError for another version."""
        with self.fs.open_input_file(path) as file:
            content = file.read()
        try:
            found: dict[str, Any] = json.loads(content)
            version = found["lake"]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptData(path, 0, f"not the description of a lake: {error!r}") from error
        if version != LAKE_VERSION:
            raise ConfigError(
                f"{self.uri} is a lake of version {version}, this Kvorum knows {LAKE_VERSION}"
            )
        return found

    def folder(self, table: Table, run_id: str) -> str:
        """Where the files of a run's table are."""
        return f"{self.root}/{table.name}/v={LAKE_VERSION}/{_PARTITION}{run_id}"

    def parts(self, table: Table, run_id: str) -> list[str]:
        """Paths of the run's files of a table, by name."""
        folder = self.folder(table, run_id)
        return [
            f"{folder}/{name}"
            for name in self._names(folder)
            if name.endswith(".parquet") and name[0] not in "._"
        ]

    def run_ids(self, table: Table) -> list[str]:
        """The runs that have a folder in a table, by id."""
        names = self._names(f"{self.root}/{table.name}/v={LAKE_VERSION}")
        return [item.removeprefix(_PARTITION) for item in names if item.startswith(_PARTITION)]

    def unfinished(self) -> list[str]:
        """Runs that have files and no row in `runs`: they were broken off while being added."""
        done = {run_id for run_id in self.run_ids(RUNS) if self.parts(RUNS, run_id)}
        begun = {run_id for table in TABLES for run_id in self.run_ids(table)}
        return sorted(begun - done)

    def runs(self) -> list[dict[str, Any]]:
        """The rows of the table `runs`, by the run of their folder, which each has as run_id.

        A row whose id is another run is a copied folder. Raises CorruptData.
        """
        return [
            {"run_id": run_id} | row
            for run_id in self.run_ids(RUNS)
            for path in self.parts(RUNS, run_id)
            for row in self._read(path).to_pylist()
        ]

    def _read(self, path: str) -> Any:
        """A file as an Arrow table. Raises CorruptData."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.ParquetFile(path, filesystem=self.fs).read()
        except (pa.ArrowException, OSError) as error:
            reason = f"not a Parquet file: {error}; kvorum lake add RUN --replace writes it again"
            raise CorruptData(path, 0, reason) from error

    def remove(self, run_id: str) -> None:
        """Remove every file of a run that is not in progress, its row in `runs` first."""
        for table in TABLES:
            folder = self.folder(table, run_id)
            whole = [name for name in self._names(folder) if not name.endswith(_UNFINISHED)]
            self.delete([f"{folder}/{name}" for name in whole])
            self._remove_if_empty(table, run_id)

    def remove_leftovers(self, table: Table, run_id: str) -> None:
        """Remove files that were never finished."""
        folder = self.folder(table, run_id)
        names = self._names(folder)
        self.delete([f"{folder}/{name}" for name in names if name.endswith(_UNFINISHED)])
        self._remove_if_empty(table, run_id)

    def _remove_if_empty(self, table: Table, run_id: str) -> None:
        folder = self.folder(table, run_id)
        if self._type(folder) == self._is_directory and not self._names(folder):
            self.fs.delete_dir(folder)

    def begin(self, path: str) -> str:
        """The name under which a file is written before `finish` gives it its own."""
        folder, name = posixpath.split(path)
        self.fs.create_dir(folder, recursive=True)
        return f"{folder}/.{name}{_UNFINISHED}"

    def finish(self, path: str) -> None:
        """Move a file that was written under `begin(path)` to its place."""
        folder, name = posixpath.split(path)
        self.fs.move(f"{folder}/.{name}{_UNFINISHED}", path)

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.fs.delete_file(path)

    def exists(self, path: str) -> bool:
        """True if there is a file at the path."""
        return bool(self._type(path) == self._is_file)

    def _replace(self, path: str, content: bytes) -> None:
        beside = self.begin(path)
        with self.fs.open_output_stream(beside) as file:
            file.write(content)
        self.finish(path)

    def _type(self, path: str) -> Any:
        return self.fs.get_file_info(path).type

    def _names(self, folder: str) -> list[str]:
        return sorted(self._listed(folder))

    def _listed(self, folder: str) -> Iterator[str]:
        for info in self.fs.get_file_info(self._selector(folder, allow_not_found=True)):
            yield info.base_name


def _covers(described: dict[str, Any], known: dict[str, Any]) -> bool:
    """True if a description has every table and column of another one: a release with fewer columns
    does not take those of a newer one away."""
    tables = described.get("tables", {})
    return all(
        {column["name"] for column in table["columns"]}
        <= {column["name"] for column in tables.get(name, {"columns": []})["columns"]}
        for name, table in known["tables"].items()
    )
