"""The file `committed-offset` of a node: how far its metadata log was known to be committed.

A node that starts again does not know what is committed until it hears of a leader. If that leader
lacks records which this node had seen committed, it must not truncate them. The file is written
about once a second, without an fsync: after a power cut it may be behind, which is safe. Its
content is the offset in decimal digits and a line feed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kvorum.runtime.disk import Disk, DiskFile

logger = logging.getLogger("kvorum.raft")

FILE_NAME = "committed-offset"
DELAY_S = 1.0
"""From a commit to the write that has it."""
_DIGITS = 20

CallLater = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


def read_committed(disk: Disk, directory: str) -> int:
    """The offset (exclusive) in the file; -1 if there is none that can be read."""
    path = f"{directory}/{FILE_NAME}"
    if not disk.exists(path):
        return -1
    text = disk.read_bytes(path)[: _DIGITS + 1]
    is_whole = len(text) == _DIGITS + 1 and text.endswith(b"\n") and text[:-1].isdigit()
    return int(text) if is_whole else -1


class CommittedMark:
    """Writes the file of one node. call_later: of the event loop."""

    def __init__(self, disk: Disk, directory: str, call_later: CallLater) -> None:
        self._disk = disk
        self._path = f"{directory}/{FILE_NAME}"
        self._call_later = call_later
        self._file: DiskFile | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._offset = self._written = -1

    def note(self, offset: int) -> None:
        """Everything below the offset is committed; it never falls."""
        self._offset = offset
        if self._timer is None:
            self._timer = self._call_later(DELAY_S, self._write)

    def close(self) -> None:
        """Write what was noted last, and close the file."""
        if self._timer is not None:
            self._timer.cancel()
        self._write()
        if self._file is not None:
            self._file.close()

    def _write(self) -> None:
        self._timer = None
        if self._offset == self._written:
            return
        try:
            if self._file is None:
                self._file = self._disk.open(self._path)
            self._file.pwrite(b"%0*d\n" % (_DIGITS, self._offset), 0)
            self._written = self._offset
        except OSError as error:
            # The next start knows less of what is committed; nothing else depends on the file.
            logger.warning("cannot write %s: %s", self._path, error)
