"""The tools that check the deployment files.

hadolint comes with `make setup`; the others, which take minutes to build, with `make deploy-check`.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.tree import ROOT

DEPLOY = ROOT / "deploy"
TOOLS = ROOT / ".tools" / "deploy"


def tool(name: str) -> str:
    """Path of a tool; skips the test where the tool is not installed."""
    own = [
        path for path in (TOOLS / "bin" / name, TOOLS / "hadolint" / "bin" / name) if path.exists()
    ]
    found = str(own[0]) if own else shutil.which(name)
    if found is None:
        pytest.skip(f"no {name}; make deploy-check fetches it")
    return found


def run(*command: str | Path, cwd: Path = ROOT, text: str | None = None) -> str:
    """Output of a command that must succeed."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout
