"""The log files of `kvorum dev`: a file that has grown is put aside, and the node writes on."""

from __future__ import annotations

import os
import shutil

BYTES_MAX = 64 << 20
KEPT = 3
"""Older files of a node: NAME.log.1 is the newest."""


def rotate(path: str, *, bytes_max: int = BYTES_MAX, kept: int = KEPT) -> bool:
    """Put a file's content aside if it is larger; True if that was done.

    The file itself is copied and emptied: its node has it open for appending, and goes on at its
    begin. What the node writes between the two steps is lost. Raises OSError.
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
