"""`make mutants`: break one rule at a time and see the tests, or the simulator, object.

Each mutant runs in a copy of the tree: first the tests that are quick, then seeds of the simulator,
each with the time that is left of a minute. A mutant that nothing objects to is a bug of the
tests: the exit code is 1 and its name is printed.
"""

from __future__ import annotations

import argparse
import difflib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.all import MUTANTS
from tests.mutants.model import Mutant

ROOT = Path(__file__).parents[2]
ALLOWED_S = 60.0
"""A rule that takes longer to miss is not guarded well enough."""

FOLDERS = ("kvorum", "tests", "docs", "bench", "deploy")
DEADLINE_S = 15
"""Of a wait in a test: one that waits in vain fails before the time of its mutant is over."""

SEEDS = 100_000
_IGNORED = shutil.ignore_patterns("__pycache__", "live", "clients", "*.pyc")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The tests or the simulator that noticed a mutant, empty for none, and the time that it
    took."""

    mutant: Mutant
    killer: str
    seconds: float


def main(arguments: list[str] | None = None) -> int:
    """Run all mutants, or those named; 0 if each was caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    worlds = sorted({m.world for m in MUTANTS})
    parser.add_argument("--world", choices=worlds, help="only those that this world judges")
    options = parser.parse_args(arguments)
    chosen = [
        m
        for m in MUTANTS
        if (not options.names or m.name in options.names) and options.world in (None, m.world)
    ]
    unknown = set(options.names) - {m.name for m in chosen}
    if unknown:
        near = [difflib.get_close_matches(name, [m.name for m in MUTANTS], 1) for name in unknown]
        hint = "".join(f"; did you mean {found[0]}?" for found in near if found)
        parser.error(
            f"no such mutant: {', '.join(sorted(unknown))}{hint} All: "
            f"{', '.join(m.name for m in MUTANTS)}"
        )
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        # Copied once, at the start: the tree may be edited while this runs.
        base = Path(folder) / "base"
        _copy_tree(base)
        for clean in pool.map(lambda mutant: _judge(mutant, base), _unbroken(chosen)):
            if clean.killer:
                sys.stdout.write(f"the tree without a mutant fails already: {clean.killer}\n")
                return 1
        verdicts = []
        for verdict in pool.map(lambda mutant: _judge(mutant, base), chosen):
            verdicts.append(verdict)
            said = verdict.killer or "SURVIVED"
            sys.stdout.write(f"{verdict.mutant.name:<36} {verdict.seconds:5.1f} s  {said}\n")
            sys.stdout.flush()
    survivors = [v.mutant for v in verdicts if not v.killer]
    sys.stdout.write(
        f"{len(verdicts) - len(survivors)} of {len(verdicts)} caught in "
        f"{time.monotonic() - began:.0f} s\n"
    )
    for mutant in survivors:
        sys.stdout.write(f"survived: {mutant.name}: {mutant.rule} ({mutant.path})\n")
    return 1 if survivors else 0


def _unbroken(chosen: list[Mutant]) -> list[Mutant]:
    """One mutant that breaks nothing for each choice of tests and simulator."""
    judges = {(m.tests, m.has_simulator, m.world) for m in chosen}
    return [
        Mutant(
            *(f"none-{number}", "nothing is broken", "", "", ""),
            tests=tests,
            has_simulator=has_simulator,
            world=world,
        )
        for number, (tests, has_simulator, world) in enumerate(sorted(judges))
    ]


def _judge(mutant: Mutant, base: Path) -> Verdict:
    began = time.monotonic()
    tree = base.parent / mutant.name
    shutil.copytree(base, tree, symlinks=True)
    try:
        if mutant.old:
            path = tree / mutant.path
            path.write_text(mutant.apply(path.read_text()))
        killer = _objection(mutant, tree, began)
    finally:
        shutil.rmtree(tree)
    return Verdict(mutant, killer, time.monotonic() - began)


def _copy_tree(tree: Path) -> None:
    tree.mkdir()
    for name in FOLDERS:
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=_IGNORED)
    shutil.copy(ROOT / "pyproject.toml", tree)


def _objection(mutant: Mutant, tree: Path, began: float) -> str:
    """The first complaint; a run that outlives the time allowed makes none."""
    is_clean = not mutant.old
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["KVORUM_TEST_DEADLINE_S"] = str(DEADLINE_S)
    tests = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider"]
    tests += ["--hypothesis-profile", "mutants"]
    # It compares the tree with the list of mutants and would object to each of them.
    tests += ["--ignore", "tests/test_raft/test_mutants_apply.py"]
    simulator = [sys.executable, "-m", "kvorum", "chaos", "sim", "--seed", "0", "--jobs", "1"]
    simulator += [
        "--fail-fast",
        "--count",
        "3" if is_clean else str(SEEDS),
        "--world",
        mutant.world,
    ]
    steps = [("tests", [*tests, *mutant.tests])] if mutant.tests else []
    if mutant.has_simulator:
        steps.append(("simulator", simulator))
    for name, command in steps:
        left_s = ALLOWED_S - (time.monotonic() - began)
        if left_s <= 0:
            return ""
        try:
            done = subprocess.run(
                command,
                cwd=tree,
                env=environment,
                capture_output=True,
                text=True,
                timeout=left_s * (4 if is_clean else 1),
                check=False,
            )
        except subprocess.TimeoutExpired:
            continue
        if done.returncode != 0:
            return f"{name}: {_last_words(done.stdout + done.stderr)}"
    return ""


def _last_words(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("FAILED", "ERROR", "kvorum:"))]
    return (telling or lines or ["no word"])[0][:120]


if __name__ == "__main__":
    sys.exit(main())
