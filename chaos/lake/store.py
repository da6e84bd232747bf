"""A lake's files, on a local disk or any file system that pyarrow knows (s3, gs, hdfs).

A file is written under a name that readers skip, and then moved to its own. A run counts once it
has its row in the table `runs`, which is written last: a run that was broken off while it was added
has none, and is replaced when it is added again.
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

    def create(self) -> None:
        """Write lake.json, for a lake that is new or was made with fewer columns.

        Raises ConfigError if the place holds other files, or a lake of a later version.
        """
        path = f"{self.root}/{LAKE_FILE}"
        wanted = json.dumps(document(), indent=1).encode()
        if self._type(path) != self._is_file:
            if self._names(self.root):
                raise ConfigError(f"{self.uri} is no lake and not empty; name an empty folder")
        elif self._described(path) == wanted:
            return
        self.fs.create_dir(self.root, recursive=True)
        self._replace(path, wanted)

    def check(self) -> None:
        """Raises ConfigError if there is no lake, or one that this release cannot read."""
        path = f"{self.root}/{LAKE_FILE}"
        if self._type(path) != self._is_file:
            raise ConfigError(f"{self.uri} is no lake: it has no {LAKE_FILE}; kvorum lake add")
        self._described(path)

    def _described(self, path: str) -> bytes:
        """The content of lake.json. Raises CorruptData, ConfigError for another version."""
        with self.fs.open_input_file(path) as file:
            content: bytes = file.read()
        try:
            version = json.loads(content)["lake"]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptData(path, 0, f"not the description of a lake: {error!r}") from error
        if version != LAKE_VERSION:
            raise ConfigError(
                f"{self.uri} is a lake of version {version}, this Kvorum knows {LAKE_VERSION}"
            )
        return content

    def folder(self, table: Table | str, run_id: str) -> str:
        """Where the files of a run's table are."""
        name = table if isinstance(table, str) else table.name
        return f"{self.root}/{name}/v={LAKE_VERSION}/{_PARTITION}{run_id}"

    def parts(self, table: Table | str, run_id: str) -> list[str]:
        """Paths of the run's files of a table, by name."""
        folder = self.folder(table, run_id)
        return [
            f"{folder}/{name}"
            for name in self._names(folder)
            if name.endswith(".parquet") and name[0] not in "._"
        ]

    def run_ids(self, table: Table | str) -> list[str]:
        """The runs that have a folder in a table, by id."""
        name = table if isinstance(table, str) else table.name
        names = self._names(f"{self.root}/{name}/v={LAKE_VERSION}")
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
            raise CorruptData(path, 0, f"not a Parquet file: {error}") from error

    def remove(self, run_id: str) -> None:
        """Remove every file of a run, its row in `runs` first."""
        for table in TABLES:
            folder = self.folder(table, run_id)
            if self._type(folder) == self._is_directory:
                self.fs.delete_dir(folder)

    def remove_leftovers(self, table: Table | str, run_id: str) -> int:
        """Remove files that were never finished. Returns their number."""
        folder = self.folder(table, run_id)
        left = [name for name in self._names(folder) if name.endswith(_UNFINISHED)]
        for name in left:
            self.fs.delete_file(f"{folder}/{name}")
        return len(left)

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
