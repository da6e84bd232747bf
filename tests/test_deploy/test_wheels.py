"""What `pip install` of the cluster needs has wheels for every Python that README.md names: a
user needs no compiler. Asks the package index, so it runs in `make deploy-check` alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement

from tests.tree import ROOT

pytestmark = pytest.mark.skipif(
    "KVORUM_DEPLOY_CHECK" not in os.environ, reason="make deploy-check asks the package index"
)
NAMED = re.search(r"Python 3\.(\d+) to 3\.(\d+)", (ROOT / "README.md").read_text())
PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_28_x86_64")


def versions() -> list[str]:
    assert NAMED is not None, "README.md names the Pythons as `Python 3.X to 3.Y`"
    return [f"3.{minor}" for minor in range(int(NAMED[1]), int(NAMED[2]) + 1)]


@pytest.mark.parametrize("version", versions())
def test_every_runtime_dependency_has_a_wheel(version, tmp_path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [Requirement(line) for line in project["dependencies"]]
    # pip reads markers for the Python that runs it.
    here = {"python_version": version, "python_full_version": f"{version}.0"}
    needed = [
        f"{one.name}{one.specifier}"
        for one in wanted
        if one.marker is None or one.marker.evaluate(here)
    ]
    done = subprocess.run(
        [
            sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed",
            "--disable-pip-version-check", "--only-binary", ":all:", "--implementation", "cp",
            "--python-version", version, "--target", str(tmp_path),
            *(word for platform in PLATFORMS for word in ("--platform", platform)), *needed,
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
