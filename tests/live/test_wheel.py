"""The wheel in an environment of its own, used from a folder with packages named like our top-level
packages.

The environment is empty but for what pip installs. The folder it is used from holds packages named
`runtime`, `storage`, `metadata` and `broker` that end the process when somebody imports them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("runtime", "storage", "metadata", "broker", "raft", "chaos", "wire", "launch")


@pytest.fixture(scope="module")
def distributions(tmp_path_factory) -> Path:
    """A folder with the sdist, and the wheel that is made from it."""
    folder = tmp_path_factory.mktemp("distributions")
    copy = folder / "copy"
    ignored = shutil.ignore_patterns(
        *(".venv", ".tools", ".git", ".*_cache", "__pycache__", ".hypothesis"),
        *("chaos-runs", "demo-data", "build"),
    )
    shutil.copytree(ROOT, copy, symlinks=True, ignore=ignored)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(copy)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    return folder


@pytest.fixture(scope="module")
def environment(distributions) -> Path:
    """An environment with the wheel, its extras for the demo, and what they need."""
    folder = distributions / "environment"
    venv.create(folder, with_pip=True)
    (wheel,) = distributions.glob("*.whl")
    install = [folder / "bin" / "pip", "install", "--quiet", f"{wheel}[chaos,spark]"]
    subprocess.run(install, check=True, env={**os.environ, **_pip_cache()})
    return folder


def _pip_cache() -> dict[str, str]:
    """Packages that set-up has fetched are not fetched again."""
    cache = ROOT / ".tools" / "pip-cache"
    return {"PIP_CACHE_DIR": str(cache)} if cache.is_dir() else {}


@pytest.fixture(scope="module")
def crowded_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("crowded")
    for room in ROOMS:
        (folder / room).mkdir()
        (folder / room / "__init__.py").write_text(f"raise SystemExit('imported {room}')\n")
    return folder


def run(environment: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(
        [str(environment / "bin"), str(ROOT / ".tools" / "bin"), os.environ["PATH"]]
    )
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return subprocess.run(
        command,
        cwd=folder,
        env={**kept, "PATH": path},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_wheel_holds_one_package_and_nothing_of_the_tests(distributions):
    (wheel,) = distributions.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"kvorum"}
    for file in (
        *(
            "raft/core/raft_core.py",
            "chaos/experiments/first-light.yaml",
            "chaos/live/shim/faults.c",
        ),
        "analytics/job.py",
    ):
        assert f"kvorum/{file}" in names
    assert not [name for name in names if "/bench/" in name or "/tests/" in name]


def test_sdist_holds_what_the_readme_links_to(distributions):
    (sdist,) = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for file in (
        *("kvorum/raft/core/raft_core.py", "proto/kvorum/rpc/raft.proto", "deploy/setup.sh"),
        *("docs/compat.md", "ARCHITECTURE.md", "CONTRIBUTING.md"),
    ):
        assert file in names


def test_command_and_module_answer_among_packages_of_the_same_names(environment, crowded_folder):
    for command in (["kvorum"], ["python", "-m", "kvorum"]):
        done = run(environment, crowded_folder, *command, "--version")
        assert (done.returncode, done.stderr) == (0, "")
        assert "kvorum" in done.stdout


@pytest.fixture(scope="module")
def unlinked(distributions) -> Path:
    """A checkout without its links, as a zip leaves it on a system that has none."""
    copy = distributions / "copy"
    for path in copy.iterdir():
        if path.is_symlink():
            path.unlink()
    return copy


def test_a_cluster_of_the_wheel_serves(environment, crowded_folder, tmp_path):
    assert_serves(environment, crowded_folder, tmp_path, "kvorum")


def test_a_checkout_without_links_serves(environment, unlinked, tmp_path):
    done = run(
        environment, unlinked, "python", "-c", "import kvorum.raft.core.raft_core as c; print(c)"
    )
    assert str(unlinked / "kvorum" / "raft" / "core" / "raft_core.py") in done.stdout, done.stderr
    assert_serves(environment, unlinked, tmp_path, "python -m kvorum")


def assert_serves(environment: Path, folder: Path, tmp_path: Path, kvorum: str) -> None:
    """The command takes a shipped experiment, and its cluster creates a topic."""
    ready = tmp_path / "ready"
    dev = f"{kvorum} dev --port 0 --data-dir {tmp_path / 'data'}"
    script = f"""
        {kvorum} chaos validate leader-kill || exit
        {dev} --ready-file {ready} >{tmp_path}/dev.log 2>&1 &
        cluster=$!
        for attempt in $(seq 600); do [ -s {ready} ] && break; sleep 0.1; done
        export KVORUM_BOOTSTRAP_SERVER=$(cat {ready})
        {kvorum} topics create orders --partitions 2 --replication-factor 3 && {kvorum} topics list
        answer=$?
        kill -INT $cluster; wait $cluster
        exit $answer
    """
    done = run(environment, folder, "bash", "-c", script)
    said = (tmp_path / "dev.log").read_text()
    assert done.returncode == 0, done.stdout + done.stderr + said
    assert "orders" in done.stdout


def test_demo_of_the_wheel_ends_in_a_verdict(environment, crowded_folder, tmp_path):
    done = run(environment, crowded_folder, "kvorum", "demo", "--out", str(tmp_path / "runs"))
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    assert "passed" in done.stdout
