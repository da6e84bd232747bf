"""Processes of Kvorum that Kvorum starts."""

from __future__ import annotations

import subprocess
import sys

from kvorum.runtime.python_module import module_command
from tests.tree import ROOT


def test_a_folder_named_like_the_package_is_not_taken_for_it(tmp_path, monkeypatch):
    """As in the parent of a clone, which `git clone` calls kvorum."""
    (tmp_path / "kvorum").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = subprocess.run(
        module_command("kvorum", "version"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_checkout_that_is_not_installed_runs_itself(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert module_command("kvorum", "dev") == [sys.executable, "-m", "kvorum", "dev"]
