"""There is no circular import, among files or among folders, also under TYPE_CHECKING.

import-linter's layers find circles between top-level packages, but not within one. The graph is
import-linter's own (grimp).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import pytest
from grimp import build_graph

OWN_FILES = "(its own files)"


def circles(imports: Mapping[str, set[str]]) -> list[set[str]]:
    """Groups of two and more modules that reach each other (strongly connected components)."""
    forward = {name: _reach(name, imports) for name in imports}
    groups = {
        frozenset(other for other in forward[name] if name in forward.get(other, ()))
        for name in imports
    }
    return [set(group) for group in groups if len(group) > 1]


def _reach(start: str, imports: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    todo = [start]
    while todo:
        for name in imports.get(todo.pop(), ()):
            if name not in found:
                found.add(name)
                todo.append(name)
    return found


def circles_of_folders(imports: Mapping[str, set[str]]) -> set[tuple[str, ...]]:
    """(package, folder, folder, ...) for each group of a package's folders that reach each other.
    The files that lie in the package itself count as one folder of it."""
    packages = {name.rpartition(".")[0] for name in imports if "." in name}
    graphs: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for importer, names in imports.items():
        for package in packages:
            source = _folder(importer, package, packages)
            if source:
                targets = {_folder(name, package, packages) for name in names}
                graphs[package][source] |= targets - {source, ""}
    found = set()
    for package, graph in graphs.items():
        graph |= {name: set() for name in set().union(*graph.values()) - set(graph)}
        found |= {(package, *sorted(group)) for group in circles(graph)}
    return found


def _folder(module: str, package: str, packages: set[str]) -> str:
    """The folder of `package` in which a module lies; "" for a module outside."""
    if module == package:
        return OWN_FILES
    if not module.startswith(f"{package}."):
        return ""
    head = module.removeprefix(f"{package}.").partition(".")[0]
    return head if f"{package}.{head}" in packages else OWN_FILES


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    graph = build_graph("kvorum", exclude_type_checking_imports=False, cache_dir=None)
    # Nobody imports a __main__, so it closes no circle.
    names = [name for name in graph.modules if not name.endswith("__main__")]
    return {name: graph.find_modules_directly_imported_by(name) for name in names}


def test_no_files_import_each_other(imports):
    assert len(imports) > 500
    assert [sorted(group) for group in circles(imports)] == []


def test_no_folders_import_each_other(imports):
    assert circles_of_folders(imports) == set()


def test_a_circle_of_folders_is_found_in_every_package():
    imports = {
        "k": set(), "k.a": set(), "k.a.x": {"k.b.y"}, "k.b": set(), "k.b.y": set(),
        "k.b.z": {"k.a.w"}, "k.a.w": set(), "k.a.low": set(), "k.a.low.m": {"k.a.x"},
    }  # fmt: skip
    assert circles_of_folders(imports) == {("k", "a", "b")}
    imports["k.a.w"] = {"k.a.low.m"}
    assert circles_of_folders(imports) == {("k", "a", "b"), ("k.a", OWN_FILES, "low")}


def test_a_circle_is_found():
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert sorted(map(sorted, circles(imports))) == [["a", "b", "c"], ["d", "e"]]
