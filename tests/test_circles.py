"""There is no circular import, also under TYPE_CHECKING.

import-linter's layers find circles between top-level packages, but not within one. The graph is
import-linter's own (grimp).
"""

from __future__ import annotations

from collections.abc import Mapping

from grimp import build_graph


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


def test_no_files_import_each_other():
    graph = build_graph("kvorum", exclude_type_checking_imports=False, cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert len(imports) > 500
    assert [sorted(group) for group in circles(imports)] == []


def test_a_circle_is_found():
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert sorted(map(sorted, circles(imports))) == [["a", "b", "c"], ["d", "e"]]
