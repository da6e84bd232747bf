"""Builds the library that gives a JVM's disk and clock faults (kvorum/chaos/live/shim/faults.c).

The machine's own C compiler builds it once, into the user's cache; its name has the hash of its
source, so that another version of Kvorum never uses it by mistake.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kvorum.runtime.errors import KvorumError

SOURCE = Path(__file__).parent.parent / "shim" / "faults.c"
_COMPILERS = ("cc", "gcc", "clang")
_COMPILE_TIMEOUT_S = 60.0


class NoShim(KvorumError):
    """The library cannot be had on this machine; the message gives the reason and the way out."""


def shim_library(cache: Path | None = None) -> Path:
    """The library, built if it is not in the cache. Raises NoShim.

    cache: the folder to keep it in; by default `kvorum` in XDG_CACHE_HOME or ~/.cache.
    """
    if not sys.platform.startswith("linux"):
        raise NoShim("faults of a JVM's disk and clock need Linux (LD_PRELOAD and /proc)")
    source = SOURCE.read_bytes()
    name = hashlib.sha256(source + platform.machine().encode()).hexdigest()[:16]
    library = (cache or _cache()) / f"faults-{name}.so"
    if not library.exists():
        _build(library)
    return library


def shim_environment(library: Path, *, board: str, directory: Path) -> Mapping[str, str]:
    """The variables of a process that obeys a board, for its files below a directory."""
    preloaded = os.environ.get("LD_PRELOAD", "")
    return {
        "LD_PRELOAD": f"{library} {preloaded}".strip(),
        "KVORUM_FAULT_BOARD": board,
        "KVORUM_FAULT_DIRECTORY": str(directory),
    }


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvorum"


def _build(library: Path) -> None:
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise NoShim(
            "faults of a JVM's disk and clock need a C compiler, and none of "
            f"{', '.join(_COMPILERS)} is on PATH; install one (Debian: apt install gcc libc6-dev)"
        )
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            # Renamed when it is whole: two runs may build at the same time.
            built = Path(folder) / library.name
            command = [compiler, "-O2", "-fPIC", "-shared", "-o", str(built), str(SOURCE), "-ldl"]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False
            )
            if done.returncode != 0:
                first = (done.stderr.strip() or f"it ended with {done.returncode}").splitlines()[0]
                raise NoShim(
                    f"faults of a JVM's disk and clock need {SOURCE.name}, which {compiler} does "
                    f"not compile: {first}"
                )
            built.rename(library)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoShim(
            f"faults of a JVM's disk and clock need a library in {library.parent}, which cannot be "
            f"built there: {error}; name another folder with XDG_CACHE_HOME"
        ) from error
