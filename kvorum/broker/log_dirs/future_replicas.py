"""The future replicas in one data directory: the folders that moves between directories fill.

A future replica's folder is `<topic>-<partition>.<32 hex digits>-future`, as in Kafka, with the
topic id in partition.metadata. At the swap it gets the replica's own name. Blocking.
"""

from __future__ import annotations

import random
from collections import Counter

from kvorum.broker.log_dirs.core.move_rules import future_name, replica_of_future
from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData, required
from kvorum.storage.files.checkpoints import put_partition_metadata, read_partition_metadata
from kvorum.storage.log.log import Log, LogConfig


class FutureReplicas:
    """The future replicas in one directory.

    found: folder name -> topic id (None if it is missing or damaged), of folders that the start
        found and no move has continued.
    """

    def __init__(self, disk: Disk, directory: str, rng: random.Random) -> None:
        self._disk = disk
        self._directory = directory
        self._rng = rng
        self.found: dict[str, bytes | None] = {}
        self._under_way: Counter[tuple[str, int]] = Counter()

    def load(self, folder: str) -> None:
        """Note a folder that the start has found."""
        path = self.path(folder)
        try:
            self.found[folder] = read_partition_metadata(self._disk, path)
        except CorruptData:
            # Power failed just after the folder was made. Nothing is lost: the current replica has
            # every record.
            self.found[folder] = None

    def path(self, folder: str) -> str:
        return f"{self._directory}/{folder}"

    def of(self, name: str) -> list[str]:
        """The folders found of the replica whose own folder is `name`."""
        return [folder for folder in self.found if replica_of_future(folder) == name]

    def keys(self) -> list[tuple[str, int]]:
        """Topic and partition of each move to this directory. Their entries in the checkpoints
        stay: the log start is saved before the swap."""
        return list(self._under_way)

    def new_folder(self, name: str) -> str:
        """The name of a new future replica's folder."""
        return future_name(name, self._rng.randbytes(16).hex())

    def begin(self, key: tuple[str, int]) -> None:
        """A move to this directory begins or continues."""
        self._under_way[key] += 1

    def end(self, key: tuple[str, int]) -> None:
        """The move has ended, by its swap or without it."""
        self._under_way[key] -= 1
        self._under_way = +self._under_way

    def create(self, folder: str, topic_id: bytes) -> None:
        """Make the folder, with the topic id; the first flush makes them durable."""
        self._disk.make_dirs(self.path(folder))
        put_partition_metadata(self._disk, self.path(folder), topic_id)

    def open(self, folder: str, config: LogConfig, *, now_ms: int, is_clean: bool) -> Log:
        """Open the log in the folder. Unless it was closed cleanly, every batch is checked: no
        recovery point is kept for it. Raises CorruptData, OSError."""
        return Log.open(self._disk, self.path(folder), config, now_ms=now_ms, is_clean=is_clean)

    def promote(self, folder: str) -> str:
        """Give the folder the replica's own name; returns that. The caller makes it durable."""
        name = required(replica_of_future(folder), f"{folder} is no future replica's")
        self._disk.rename(self.path(folder), self.path(name))
        self.found.pop(folder, None)
        return name
