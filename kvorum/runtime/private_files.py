"""Files and folders that no other user of the machine can read.

The file mode creation mask (umask) does it for everything that a process and its children create,
also for the files of libraries: folders 0700, files 0600. Files that exist keep their modes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

_MASK = 0o077


def create_files_private() -> None:
    """Make private what this process creates from now on. For a process that only runs a node."""
    os.umask(_MASK)


@contextmanager
def private_files() -> Iterator[None]:
    """Make private what is created within the block, by any thread of the process."""
    before = os.umask(_MASK)
    try:
        yield
    finally:
        os.umask(before)


def is_readable_by_others(path: str) -> bool:
    """True if every user of the machine may read the file. Raises OSError."""
    return bool(os.stat(path).st_mode & stat.S_IROTH)
