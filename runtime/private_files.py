"""Files and folders that no other user of the machine can read.

The file mode creation mask (umask) does it for everything that a process and its children create,
libraries' files included: folders 0700, files 0600. What exists keeps its mode.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

_MASK = 0o077


def create_files_private() -> None:
    """From now on; for a process that does nothing else."""
    os.umask(_MASK)


@contextmanager
def private_files() -> Iterator[None]:
    """Within the block, in all threads of the process."""
    before = os.umask(_MASK)
    try:
        yield
    finally:
        os.umask(before)


def is_readable_by_others(path: str) -> bool:
    """True if every user of the machine may read the file. Raises OSError."""
    return bool(os.stat(path).st_mode & stat.S_IROTH)
