"""The tree as a whole: packaging, house rules, and the tools that check the rest."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tree import (
    DEVELOPERS_FOLDERS,
    ROOT,
    packages,
    packages_on_disk,
    packages_to_install,
    pyproject,
    sources,
)

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
TOOL_TIMEOUT_S = 280

#: Folders of one machine, which no file of the tree may name. The pattern does not match itself.
FOREIGN_PATHS = tuple(f"/{name}/" for name in ("work", "farm"))


@pytest.fixture(scope="module")
def trees() -> list[tuple[str, ast.Module]]:
    """Every Python file, parsed once for all rules."""
    return [(path, ast.parse(text)) for path, text in sources(with_tests=True)]


def of_the_product(trees: list[tuple[str, ast.Module]]) -> list[tuple[str, ast.Module]]:
    return [(path, tree) for path, tree in trees if not path.startswith(("tests/", "examples/"))]


def test_every_folder_of_python_is_installed():
    ours = {n for n in packages_on_disk() if n.partition(".")[0] not in DEVELOPERS_FOLDERS}
    assert set(packages_to_install()) == ours


def test_the_only_links_are_those_of_the_design_and_lead_into_the_package():
    """A link within the package would show each file twice."""
    links = {path for path in ROOT.iterdir() if path.is_symlink() and path.name[0] != "."}
    assert {path.name for path in links} <= {"raft", "metadata", "broker", "snapshots", "chaos"}
    assert all(os.readlink(path) == f"kvorum/{path.name}" for path in links)
    assert not [path for path in (ROOT / "kvorum").rglob("*") if path.is_symlink()]


def test_no_module_is_imported_under_two_names(trees):
    """`raft.core` beside `kvorum.raft.core` would be two classes of each name, and isinstance would
    deny that they are the same."""
    wrong = [
        f"{path}:{node.lineno} {name}"
        for path, tree in trees
        for node in ast.walk(tree)
        for name in _imported(node)
        if name.partition(".")[0] in packages()
    ]
    assert wrong == []


def test_no_module_imports_a_test_module(trees):
    """Helpers that test modules share live in modules named after what they build."""
    wrong = [
        f"{path}:{node.lineno} {name}"
        for path, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in _test_modules(node, (ROOT / path).parent)
    ]
    assert wrong == []


def _test_modules(node: ast.Import | ast.ImportFrom, folder: Path) -> Iterator[str]:
    """The test modules that an import statement in a file of `folder` loads."""
    names, top = _imported(node), ROOT
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        names = [module, *(f"{module}.{alias.name}".lstrip(".") for alias in node.names)]
        top = folder.joinpath(*[".."] * (node.level - 1)) if node.level else ROOT
    for name in names:
        parts = name.split(".")
        if parts[-1].startswith("test_") and top.joinpath(*parts).with_suffix(".py").is_file():
            yield name


def test_every_module_is_loaded_from_one_file_once():
    script = (
        "import collections, importlib, os, pkgutil, sys, kvorum\n"
        "for found in pkgutil.walk_packages(kvorum.__path__, 'kvorum.'):\n"
        "    if not found.name.endswith('__main__'):\n"
        "        importlib.import_module(found.name)\n"
        "names = collections.defaultdict(list)\n"
        "for name, module in list(sys.modules.items()):\n"
        "    file = getattr(module, '__file__', None)\n"
        "    if file and os.path.realpath(file).startswith(os.getcwd() + os.sep):\n"
        "        names[os.path.realpath(file)].append(name)\n"
        "names = {file: given for file, given in names.items() if '.venv' not in file}\n"
        "assert len(names) > 400, len(names)\n"
        "twice = {file: given for file, given in names.items() if len(given) > 1}\n"
        "assert not twice, twice\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4_000:]


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []


@pytest.mark.parametrize("name", packages_to_install())
def test_package_imports_from_this_tree(name):
    module = importlib.import_module(name)
    places = [module.__file__] if module.__file__ else list(module.__path__)
    assert all(Path(place).is_relative_to(ROOT) for place in places)


def test_package_data_is_there():
    for package, patterns in pyproject()["tool"]["setuptools"]["package-data"].items():
        for pattern in patterns:
            assert list((ROOT / package.replace(".", "/")).glob(pattern)), (package, pattern)


def test_console_script_is_there():
    module_name, _, attribute = pyproject()["project"]["scripts"]["kvorum"].partition(":")
    assert callable(getattr(importlib.import_module(module_name), attribute))


def test_product_code_has_no_assert_and_prints_only_in_the_command_line(trees):
    wrong = []
    for path, tree in of_the_product(trees):
        for node in ast.walk(tree):
            if isinstance(node, ast.Assert):
                wrong.append(f"{path}:{node.lineno} assert")
            elif _is_print(node) and not path.startswith(("kvorum/cli/", "bench/")):
                wrong.append(f"{path}:{node.lineno} print")
    assert wrong == []


def _is_print(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("print", "pprint")
    )


def test_files_and_functions_are_not_too_long(trees):
    wrong = []
    for path, text in sources(with_tests=True):
        lines = len(text.splitlines())
        if lines > FILE_LINES_MAX:
            wrong.append(f"{path}: {lines} lines")
    for path, tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES_MAX:
                    wrong.append(f"{path}:{node.lineno} {node.name}: {length} lines")
    assert wrong == []


def test_nothing_is_caught_without_a_name(trees):
    wrong = [
        f"{path}:{node.lineno}"
        for path, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    assert wrong == []


def test_every_module_says_what_it_is(trees):
    silent = [
        path for path, tree in of_the_product(trees) if tree.body and not ast.get_docstring(tree)
    ]
    assert silent == []


def test_what_calls_itself_pure_waits_for_nothing(trees):
    """The folders of cores are in import-linter's contract; this holds the modules elsewhere."""
    waiting = {"asyncio", "socket", "time", "grpc", "aiofiles", "threading"}
    wrong = [
        f"{path}: {name}"
        for path, tree in of_the_product(trees)
        if re.search(r"\bPure\b", ast.get_docstring(tree) or "")
        for node in ast.walk(tree)
        for name in _imported(node)
        if name.partition(".")[0] in waiting
    ]
    assert wrong == []


def test_tracked_files_name_no_folder_of_a_machine():
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True,
    )  # fmt: skip
    wrong = []
    for name in filter(None, listed.stdout.decode().split("\0")):
        path = ROOT / name
        if not path.is_file():
            continue
        text = path.read_bytes().decode("utf-8", errors="replace")
        wrong += [f"{name}: {foreign}" for foreign in FOREIGN_PATHS if foreign in text]
    assert wrong == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["-m", "ruff", "check", "."], "All checks passed!"),
        (["-m", "ruff", "format", "--check", "."], "already formatted"),
        (["-m", "mypy"], "Success: no issues found in "),
        (["-c", "from importlinter.cli import lint_imports_command as run; run()"], " 0 broken."),
    ],
    ids=["ruff", "format", "mypy", "lint-imports"],
)
def test_tool_finds_nothing(command, words):
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    assert words in done.stdout
