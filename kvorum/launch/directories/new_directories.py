"""The directories to which a node's start gave an identity, until the node is part of a cluster.

Bad sequence without `undo`:
1. A new broker is started with a mistyped node.id, and claims its empty directory.
2. The cluster refuses it, and the property is corrected.
3. The directory refuses the broker, as it belongs to another node id.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress

from kvorum.launch.directories.identity import LOCK_NAME
from kvorum.raft.node.committed_mark import FILE_NAME as COMMITTED_OFFSET
from kvorum.raft.node.metadata_log import FOLDER_NAME
from kvorum.runtime.disk import Disk
from kvorum.storage.files.checkpoints import CLEAN_SHUTDOWN, META_PROPERTIES

_log = logging.getLogger(__name__)


class NewDirectories:
    """Call `look` before a directory is claimed, `note` once it is claimed and locked."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._looked_at: dict[str, tuple[str, ...]] = {}
        self._noted: list[str] = []

    def look(self, directory: str) -> bool:
        """True for a directory without an identity. The missing folders of its path are kept."""
        with suppress(OSError):  # the claim reports a directory that cannot be read
            if not self._disk.exists(f"{directory}/{META_PROPERTIES}"):
                self._looked_at[directory] = tuple(_missing(self._disk, directory))
        return directory in self._looked_at

    def note(self, directory: str) -> None:
        """This process holds the lock on the directory: nobody else can have claimed it."""
        if directory in self._looked_at:
            self._noted.append(directory)

    def undo(self) -> None:
        """Take the identity back, as if the start had not been; for a node that no cluster knows.

        What this start did not make stays, such as a folder of log files.
        """
        for directory in self._noted:
            try:
                self._empty(directory)
            except OSError as failure:
                _log.warning(
                    "%s keeps what this start made: %s; empty it before the next start",
                    directory,
                    failure,
                )
        self._noted.clear()

    def _empty(self, directory: str) -> None:
        self._disk.remove_tree(f"{directory}/{FOLDER_NAME}")
        # The identity after the log: a broker may start without its metadata log, but not with one
        # of nobody.
        for name in (CLEAN_SHUTDOWN, COMMITTED_OFFSET, META_PROPERTIES, LOCK_NAME):
            self._disk.remove(f"{directory}/{name}")
        self._disk.sync_dir(directory)
        with suppress(OSError):  # a folder that holds something else stays
            for made in self._looked_at[directory]:
                os.rmdir(made)


def _missing(disk: Disk, directory: str) -> list[str]:
    """The folders that making this directory would make, the innermost first."""
    found = []
    path = os.path.abspath(directory)
    while not disk.exists(path) and path != os.path.dirname(path):
        found.append(path)
        path = os.path.dirname(path)
    return found
