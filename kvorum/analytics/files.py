"""Files on any file system that Spark's Hadoop client knows, read and written by the driver."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_PROBE = ".writable"


class Files:
    """A folder by its path or URI (file, hdfs, s3a, ...). A path without a scheme is local."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._jvm: Any = spark._jvm
        self.uri = uri if "://" in uri or uri.startswith("file:") else _local(uri)
        configuration = spark._jsc.hadoopConfiguration()
        self._fs = self._path("").getFileSystem(configuration)

    def at(self, name: str) -> str:
        """The URI of something in the folder."""
        return f"{self.uri.rstrip('/')}/{name}" if name else self.uri

    def exists(self, name: str) -> bool:
        return bool(self._fs.exists(self._path(name)))

    def names(self, name: str = "") -> list[str]:
        """Names of what a folder holds, empty if it is not there."""
        path = self._path(name)
        if not self._fs.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._fs.listStatus(path))

    def read(self, name: str) -> bytes:
        stream = self._fs.open(self._path(name))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, content: bytes) -> None:
        """Write a file, replacing an earlier one."""
        if self.uri.startswith("file:"):
            path = Path(self._path(name).toUri().getPath())
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            return
        stream = self._fs.create(self._path(name), True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    def replace(self, name: str, content: bytes) -> None:
        """Write a file so that no reader finds a part of it, replacing an earlier one."""
        folder, _, last = name.rpartition("/")
        part = f"{folder}/.{last}.part" if folder else f".{last}.part"
        self.write(part, content)
        self._fs.delete(self._path(name), False)
        if not self._fs.rename(self._path(part), self._path(name)):
            raise OSError(f"{self.at(part)} cannot be renamed to {last}")

    def check_writable(self) -> None:
        """Raise OSError or Py4JError unless files can be written here; nothing is left behind."""
        folder = self._path("")
        was_there = bool(self._fs.exists(folder))
        self.write(_PROBE, b"")
        self._fs.delete(self._path(_PROBE), False)
        if not was_there:
            with contextlib.suppress(Py4JError):  # another process writes here already
                self._fs.delete(folder, False)

    def remove(self, name: str) -> None:
        """Remove a file or a folder, if it is there."""
        self._fs.delete(self._path(name), True)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.at(name))


def _local(path: str) -> str:
    return Path(path).absolute().as_uri()
