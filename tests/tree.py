"""The files of the checkout, for tests that read them: top-level packages, packages, sources."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from setuptools import find_packages

ROOT = Path(__file__).resolve().parents[1]
#: Folders of Python that are not installed: they need a checkout.
DEVELOPERS_FOLDERS = ("bench", "examples")


@cache
def pyproject() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@cache
def packages() -> frozenset[str]:
    """The packages in `kvorum`, one for each part of the system: `raft`, `broker`, `cli`."""
    names = find_packages(str(ROOT / "kvorum"))
    return frozenset(name for name in names if "." not in name)


@cache
def packages_on_disk() -> frozenset[str]:
    """Folders with Python, as the checkout has them: `kvorum.raft.core`, `bench.logs`."""
    found = set()
    for top in sorted(path for path in ROOT.iterdir() if path.is_dir()):
        if top.is_symlink() or top.name.startswith(".") or top.name in ("tests", "build", "dist"):
            continue
        for folder, folders, files in os.walk(top):
            folders[:] = [name for name in folders if not name.startswith((".", "__"))]
            if any(name.endswith(".py") for name in files):
                found.add(".".join(Path(folder).relative_to(ROOT).parts))
    return frozenset(found)


@cache
def packages_to_install() -> tuple[str, ...]:
    """The packages that setuptools puts into a wheel."""
    include = pyproject()["tool"]["setuptools"]["packages"]["find"]["include"]
    return tuple(sorted(find_packages(str(ROOT), include=include)))


def sources(*, with_tests: bool) -> Iterator[tuple[str, str]]:
    """(path below the root, text) of every Python file of ours; generated code is left out."""
    names = [name.replace(".", "/") for name in packages_on_disk() if name != "kvorum.rpc"]
    files = [path for name in names for path in (ROOT / name).glob("*.py")]
    if with_tests:
        files += (ROOT / "tests").rglob("*.py")
    for path in sorted(files):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
