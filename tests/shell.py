"""Shell commands of documents, run as a reader runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.polling import DEADLINE_S
from tests.tree import ROOT


def shell_block(document: str, mark: str) -> str:
    """The text of the document's block behind `<!-- mark -->`."""
    text = (ROOT / document).read_text(encoding="utf-8")
    block = re.search(rf"<!-- {mark} -->\n```sh\n(.*?)```", text, re.DOTALL)
    assert block is not None, f"{document} has no block {mark}"
    return block[1]


class Shell:
    """A shell in `folder`, with `kvorum` of this checkout and the programs that `install` adds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._bin = folder / "bin"
        self._bin.mkdir(parents=True)
        self.install("kvorum", f'#!/bin/sh\nexec {sys.executable} -m kvorum "$@"\n')

    def install(self, name: str, text: str) -> None:
        """A program that goes before the system's own."""
        path = self._bin / name
        path.write_text(text)
        path.chmod(0o755)

    def run(self, script: str) -> str:
        """The output of a script, each command of which must succeed."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("KVORUM_")}
        environment = {
            "PATH": f"{self._bin}:{kept['PATH']}",
            "KVORUM_PROFILES": str(self.folder / "profiles.yaml"),
        }
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=kept | environment,
            capture_output=True,
            text=True,
            timeout=4 * DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, (script, done.stdout, done.stderr)
        return done.stdout
