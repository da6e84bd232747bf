"""The command line that runs a module of Kvorum in a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
"""The folder that has the folder `kvorum` of this process."""


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of the same Kvorum as this process.

    Python looks for `-m`'s module in the working directory first, and takes any folder `kvorum` for
    the package, such as a clone in its parent. `-P` prevents that. It is left out only where the
    working directory is what this process runs from, which need not be installed.
    """
    flags = [] if Path(os.getcwd()).resolve() == _ROOT else ["-P"]
    return [sys.executable, *flags, "-m", module, *arguments]
