"""All names of files, modules and sections in documents, docstrings and comments exist.

Four kinds of names are checked: links of Markdown with their sections, paths (`docs/log.md`,
`kvorum/broker/api/produce`), modules with their attributes (`raft.core.raft_core`,
`metadata.controller.loop`), and bare names of documents (`replication.md`).
"""

from __future__ import annotations

import ast
import importlib
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.tree import DEVELOPERS_FOLDERS, ROOT, packages, sources

WORDS_MAX = 25
"""Limit for an entry of the changelog."""

FOLDERS = (*sorted(packages()), *DEVELOPERS_FOLDERS, "kvorum", "docs", "tests", "deploy", "proto")
_PATH = re.compile(
    rf"(?<![\w./<-])((?:{'|'.join(FOLDERS)}|\.ci)/[\w./*{{}},-]*[\w/*}}])(?![\w<(]|/<)"
)
_MODULE = re.compile(
    rf"`(?:kvorum\.)?((?:{'|'.join(sorted(packages()))})(?:\.(?!py\b)\w+)+)(?:\(\))?`"
)
_DOCUMENT = re.compile(r"(?<![\w/.-])([\w-]+\.md)\b")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@cache
def tracked() -> tuple[str, ...]:
    """Files of the repository, links left out."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    names = filter(None, listed.stdout.decode().split("\0"))
    return tuple(n for n in names if (ROOT / n).is_file() and not (ROOT / n).is_symlink())


@cache
def property_names() -> frozenset[str]:
    """Names of configs and features, as `metadata.version` and `broker.rack`, which look
    like modules."""
    text = (ROOT / "tests" / "golden" / "kafka_configs_4_4.tsv").read_text(encoding="utf-8")
    names = re.findall(r"[a-z]+(?:\.[a-z]+)+", text)
    names += ["metadata.version", "broker.stream.grace.ms", "client.rack", *own_property_names()]
    return frozenset(names)


@cache
def own_property_names() -> tuple[str, ...]:
    """The names of configs that only Kvorum has, from the table of keys."""
    tables = [
        ROOT / "kvorum" / "metadata" / "configs" / f"{name}_keys.py"
        for name in ("broker", "security")
    ]
    text = "".join(table.read_text(encoding="utf-8") for table in tables)
    return tuple(re.findall(r'"([a-z]+(?:\.[a-z]+)+)"', text))


@cache
def document_names() -> frozenset[str]:
    return frozenset(Path(name).name for name in tracked() if name.endswith(".md"))


@cache
def words_of(name: str) -> tuple[tuple[int, str], ...]:
    """(line, text) of a document, or of the docstrings and comments of a Python file."""
    return tuple(_words_of(name))


def _words_of(name: str) -> Iterator[tuple[int, str]]:
    text = (ROOT / name).read_text(encoding="utf-8")
    if name.endswith(".md"):
        yield from enumerate(text.splitlines(), 1)
        return
    docstrings = {
        (node.value.lineno, node.value.col_offset)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_docstring = token.type == tokenize.STRING and token.start in docstrings
        if token.type == tokenize.COMMENT or is_docstring:
            yield from enumerate(token.string.splitlines(), token.start[0])


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


@cache
def anchors(path: Path) -> frozenset[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return frozenset(slug(line.lstrip("#")) for line in lines if line.startswith("#"))


def path_exists(path: str) -> bool:
    """A file or folder; a module without `.py`; the same with a name in it behind a dot.

    A .proto is named as protoc sees it, from proto/."""
    if (ROOT / path.partition("/")[0]).is_symlink() and not path.startswith("chaos/experiments"):
        return False  # documents name real files, and experiments as people type them
    if path.endswith(".proto"):
        return (ROOT / path).exists() or (ROOT / "proto" / path).exists() or "*" in path
    if "{" in path:
        head, _, rest = path.partition("{")
        inner, _, tail = rest.partition("}")
        return all(path_exists(head + part.strip() + tail) for part in inner.split(","))
    if "*" in path:
        return any(ROOT.glob(path))
    if (ROOT / path).exists() or (ROOT / f"{path}.py").exists():
        return True
    module, dot, attribute = path.rpartition(".")
    return bool(dot) and (ROOT / f"{module}.py").exists() and _defines(f"{module}.py", attribute)


def _defines(file: str, name: str) -> bool:
    text = (ROOT / file).read_text(encoding="utf-8")
    return re.search(rf"\b(def|class)\s+{name}\b|^\s*{name}\b.*=", text, re.MULTILINE) is not None


def module_exists(dotted: str) -> bool:
    """A module of ours, or something that can be reached from one by its attributes."""
    parts = f"kvorum.{dotted}".split(".")
    for end in range(len(parts), 1, -1):
        place = ROOT.joinpath(*parts[:end])
        if place.with_suffix(".py").exists() or (place / "__init__.py").exists():
            value = importlib.import_module(".".join(parts[:end]))
            for attribute in parts[end:]:
                if not hasattr(value, attribute):
                    return attribute in getattr(
                        value, "__annotations__", {}
                    ) or attribute in getattr(value, "__slots__", ())
                value = getattr(value, attribute)
            return True
    return False


def test_links_of_documents_lead_somewhere():
    wrong = []
    for name in tracked():
        if not name.endswith(".md"):
            continue
        for number, line in words_of(name):
            for target in _LINK.findall(line):
                if re.match(r"[a-z]+:", target):
                    continue
                file, _, anchor = target.partition("#")
                path = (ROOT / name).parent / file if file else ROOT / name
                if not path.exists():
                    wrong.append(f"{name}:{number} {target}: no such file")
                elif anchor and anchor not in anchors(path):
                    wrong.append(f"{name}:{number} {target}: no such section")
    assert wrong == []


def test_paths_that_words_name_exist():
    wrong = [
        f"{name}:{number} {path}"
        for name in tracked()
        if name.endswith((".md", ".py")) and name != "CHANGELOG.md"
        for number, line in words_of(name)
        for path in _PATH.findall(line)
        if not path_exists(path.rstrip("."))
    ]
    assert wrong == []


def test_modules_that_words_name_exist():
    wrong = [
        f"{name}:{number} {module}"
        for name in tracked()
        if name.endswith((".md", ".py")) and name != "CHANGELOG.md"
        for number, line in words_of(name)
        for module in _MODULE.findall(line)
        if not module_exists(module) and module not in property_names()
    ]
    assert wrong == []


def test_documents_that_words_name_exist():
    wrong = [
        f"{name}:{number} {document}"
        for name in tracked()
        if name.endswith((".md", ".py"))
        for number, line in words_of(name)
        for document in _DOCUMENT.findall(line)
        if document not in document_names()
    ]
    assert wrong == []


def test_an_entry_of_the_changelog_is_one_line_of_few_words():
    entries = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    long = [
        line
        for line in entries
        if line.startswith(" ") or (line.startswith("- ") and len(line.split()) > 1 + WORDS_MAX)
    ]
    assert long == []


def test_what_is_not_there_is_found_missing():
    for path in ("kvorum/raft/core/raft_core.py", "kvorum/raft/core/raft_core", "kvorum/raft/*.py"):
        assert path_exists(path)
    assert path_exists("kvorum/broker/{api,network}/__init__.py")
    assert path_exists("kvorum/rpc/raft.proto")
    for path in ("nowhere.py", "core.nothing", "*.nothing", "{roles,x}/a.py"):
        assert not path_exists(f"kvorum/raft/{path}")
    assert module_exists("raft.core.raft_core.RaftCore")
    assert "broker.rack" in property_names() and "metadata.loop" not in property_names()
    assert not module_exists("raft.nowhere") and not module_exists("raft.core.raft_core.Nothing")
    assert slug("Look, a `name` (KIP-1)") == "look-a-name-kip-1"
    assert _PATH.findall("see kvorum/raft/core/raft_core.py, docs/log.md; not x/raft/a.py") == [
        "kvorum/raft/core/raft_core.py",
        "docs/log.md",
    ]


def test_what_a_walk_names_is_in_the_code():
    """Classes, functions and fields; paths and modules have tests of their own."""
    known = names_of_the_code()
    wrong = [
        f"{path.name}:{number} {word}"
        for path in sorted((ROOT / "docs" / "walks").glob("*.md"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for word in re.findall(r"`([A-Za-z]\w*(?:\.\w+)*)(?:\([^`]*\))?`", line)
        if not module_exists(word) and not set(word.removesuffix(".py").split(".")) <= known
        if word not in property_names()
    ]
    assert wrong == []


@cache
def names_of_the_code() -> frozenset[str]:
    """The names that the product defines: classes, functions, variables, fields, modules."""
    found: set[str] = set()
    for path, text in sources(with_tests=False):
        found.add(Path(path).stem)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
    return frozenset(found)
