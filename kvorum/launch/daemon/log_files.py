"""The log files of `kvorum dev`: the content of a large file is put aside while its node runs."""

from __future__ import annotations

import os
import shutil

BYTES_MAX = 64 << 20
KEPT = 3
"""Older files of a node: NAME.log.1 is the newest."""


def rotate(path: str, *, bytes_max: int = BYTES_MAX, kept: int = KEPT) -> bool:
    """Put a file's content aside if it is larger; True if that was done.

    The file is copied and then emptied, because its node has it open for appending and continues
    in it. Lines that the node writes between the two steps are lost. Raises OSError.
    """
    try:
        if os.path.getsize(path) <= bytes_max:
            return False
    except FileNotFoundError:
        return False
    for number in range(kept - 1, 0, -1):
        if os.path.exists(f"{path}.{number}"):
            os.replace(f"{path}.{number}", f"{path}.{number + 1}")
    shutil.copyfile(path, f"{path}.1")
    os.truncate(path, 0)
    return True
