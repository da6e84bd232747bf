"""The Python that deploy/setup.sh takes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.tree import ROOT

FUNCTIONS = re.compile(
    r"^(?:python_is_good|find_python|install_other_pythons|quietly|say|fail)\(\) \{.*?^\}$",
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        (["python3.14", "python3.15"], "python3.14"),
        (["python3.15"], "python3.15"),
        (["python3.11", "python3.14"], "python3.11"),
        (["python3", "python3.13"], "python3"),
        (["python3.10"], ""),
    ],
)
def test_set_up_takes_a_python_that_every_dependency_has_wheels_for_first(
    tmp_path: Path, there: list[str], taken: str
) -> None:
    for name in there:
        (tmp_path / name).write_text("#!/bin/sh\nexit 0\n")
        (tmp_path / name).chmod(0o755)
    script = "\n".join(FUNCTIONS.findall((ROOT / "deploy" / "setup.sh").read_text()))
    found = subprocess.run(
        ["/bin/bash", "-c", f"venv=/nowhere\n{script}\nfind_python"],
        env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    wanted = f"{tmp_path / taken}\n" if taken else ""
    assert (found.stdout, found.returncode) == (wanted, 0 if taken else 1), found.stderr


PYTHON = """#!/bin/sh
# Stands for a Python: says the version of its name, makes a venv of itself, installs nothing.
name=$(cat "$0.version" 2>/dev/null || basename "$0")
case "$*" in
*sys.version_info\\[:2]*) echo "${name#python}" ;;
*venv*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && echo "$name" >"$3/bin/python.version" ;;
*pip*) [ "$name" != python3.15 ] ;;
esac
"""


@pytest.mark.parametrize(
    ("there", "filled"),
    [
        ([], []),
        (["3.12"], []),
        (["3.11", "3.12", "3.13", "3.14"], ["3.11", "3.14"]),
        (["3.12", "3.14"], ["3.14"]),
        (["3.11", "3.12", "3.15"], ["3.11"]),  # 3.15 lacks a wheel
    ],
)
def test_unit_tests_run_on_the_oldest_and_the_newest_python_too(
    tmp_path: Path, there: list[str], filled: list[str]
) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("basename", "cat", "cksum", "cp", "mkdir", "rm", "sh", "sort"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or name)
    for name in (*(f"bin/python{version}" for version in there), "python3.12"):
        (tmp_path / name).write_text(PYTHON)
        (tmp_path / name).chmod(0o755)
    own = tmp_path / "venv" / "bin"
    own.mkdir(parents=True)
    (tmp_path / "python3.12").rename(own / "python")
    (own / "python.version").write_text("python3.12")
    (tmp_path / "pyproject.toml").write_text("")
    script = "\n".join(FUNCTIONS.findall((ROOT / "deploy" / "setup.sh").read_text()))
    folders = f"root={tmp_path} tools=$root/tools venv=$root/venv log=$root/log"
    command = ["/bin/bash", "-euc", f"{folders}\n{script}\ninstall_other_pythons"]
    done, again = (
        subprocess.run(
            command,
            env={"PATH": str(tmp_path / "bin")}, capture_output=True, text=True, check=False,
        )
        for _ in range(2)
    )  # fmt: skip
    assert (done.returncode, again.returncode) == (0, 0), done.stderr + again.stderr
    assert "installing" not in again.stdout, "neither what is there nor what cannot be had"
    stamps = (tmp_path / "tools").glob("python-*/.setup-stamp")
    assert sorted(path.parent.name.removeprefix("python-") for path in stamps) == filled
    assert ("a dependency has no wheel for 3.15" in done.stdout) == ("3.15" in there)
