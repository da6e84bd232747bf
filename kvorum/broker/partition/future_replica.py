"""A replica's copy in another data directory of its broker, while a move fills it (KIP-113).

The move's task (`kvorum/broker/manager/directory_moves`) owns it; the replica only notes here what
happens to its own log.
"""

from __future__ import annotations

import asyncio

from kvorum.broker.log_dirs.log_directories import LogDirectory
from kvorum.storage.log.log import Log


class FutureReplica:
    """One future replica.

    log_dir: the destination.
    folder: name of its folder there.
    is_clean: the folder was found at the start, and its log had been closed cleanly.
    log: None until it is opened.
    cut_offset: least offset that the current log was truncated to since the move's last step.
    has_producers: it has all producers that the current log knows.
    is_identity_durable: its partition.metadata is fsynced.
    is_promised: the metadata is to name the destination, for the swap follows.
    task: carries out the move; None until it is started.
    is_dropped: the folder is removed once the move's task has ended.
    """

    __slots__ = (
        "cut_offset",
        "folder",
        "has_producers",
        "is_clean",
        "is_dropped",
        "is_identity_durable",
        "is_promised",
        "log",
        "log_dir",
        "task",
    )

    def __init__(self, log_dir: LogDirectory, folder: str, *, is_clean: bool) -> None:
        self.log_dir = log_dir
        self.folder = folder
        self.is_clean = is_clean
        self.log: Log | None = None
        self.cut_offset: int | None = None
        self.has_producers = False
        self.is_identity_durable = False
        self.is_promised = False
        self.is_dropped = False
        self.task: asyncio.Task[None] | None = None

    @property
    def end_offset(self) -> int:
        return 0 if self.log is None else self.log.end_offset

    @property
    def size_bytes(self) -> int:
        return 0 if self.log is None else self.log.size_bytes

    def note_cut(self, offset: int) -> None:
        """The current log was truncated to `offset`; 0: it began anew."""
        self.cut_offset = offset if self.cut_offset is None else min(self.cut_offset, offset)

    def summary(self) -> str:
        log = "not open" if self.log is None else self.log.summary()
        return f"future dir={self.log_dir.path} folder={self.folder} {log}"
