"""Queries on the tree of an image: print it to a depth, search it, compare two trees.

Each visits only what it must. Equal parts of two images are skipped, and a pattern that begins with
a folder's name is matched within that folder only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from kvorum.metadata.inspect.tree import (
    REPEATING,
    Folder,
    Leaf,
    Node,
    expanded,
    names_in,
    parts_of,
    resolve,
)
from kvorum.runtime.text import whole_number

BELOW = "..."
"""Stands for the content below the requested depth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One path that differs. change: added, removed or changed.

    An added or removed path stands for everything below it. before, after: its whole content as
    plain values, None where there is none.
    """

    change: str
    path: str
    before: Any
    after: Any


def tree_lines(node: Node, depth_max: int | None, *, indent: str = "") -> Iterator[str]:
    """A node as lines, two spaces per level; folders below depth_max are not opened."""
    if not isinstance(node, Folder):
        yield f"{indent}{leaf_text(node)}"
        return
    for name, child in node.build().items():
        if not isinstance(child, Folder):
            yield f"{indent}{name} = {leaf_text(child)}"
            continue
        yield f"{indent}{name}/"
        if depth_max is None or depth_max > 1:
            deeper = None if depth_max is None else depth_max - 1
            yield from tree_lines(child, deeper, indent=f"{indent}  ")


def tree_content(node: Node, depth_max: int | None) -> Any:
    """A node as plain values, with BELOW for folders that are not opened."""
    if not isinstance(node, Folder):
        return node
    if depth_max == 0:
        return BELOW
    deeper = None if depth_max is None else depth_max - 1
    return {name: tree_content(child, deeper) for name, child in node.build().items()}


def find(
    top: Folder, pattern: str, *, start: str = "/", value_text: str | None = None
) -> Iterator[tuple[str, Leaf | None, bool]]:
    """(path, value, is folder) of the nodes that a pattern matches at or below `start`.

    pattern: a path from `start` on; `*`, `?` and `[...]` match characters within a name, `**` any
        number of names. A pattern without a slash matches at any depth.
    value_text: only leaves whose value contains it. Folders in REPEATING are left out, unless
        `start` or the pattern's first name is one of them.
    Raises NoSuchPath.
    """
    parts = parts_of(pattern)
    if "/" not in pattern:
        parts = ["**", *parts]
    parts = [part for at, part in enumerate(parts) if (part, parts[at - 1 : at]) != ("**", ["**"])]
    prefix = "".join(f"/{part}" for part in parts_of(start))
    for path, node in _matches(resolve(top, start), tuple(parts), prefix):
        is_folder = isinstance(node, Folder)
        leaf = None if isinstance(node, Folder) else node
        if value_text is None or (not is_folder and value_text in leaf_text(leaf)):
            yield path or "/", leaf, is_folder


def difference(before: Folder, after: Folder) -> Iterator[Difference]:
    """The differences between the trees of two images, ordered by path, without REPEATING."""
    yield from _differences(before, after, "")


def complete(top: Folder, text: str, *, start: str = "/") -> list[str]:
    """Paths that begin with `text`, one level deep; folders end with a slash.

    start: the folder for a text that does not begin with a slash. Raises NoSuchPath.
    """
    folder, slash, name_start = text.rpartition("/")
    node = resolve(top, f"{folder}/" if text.startswith("/") else f"{start}/{folder}")
    if not isinstance(node, Folder):
        return []
    return [f"{folder}{slash}{name}" for name in names_in(node) if name.startswith(name_start)]


def _matches(node: Node, parts: tuple[str, ...], path: str) -> Iterator[tuple[str, Node]]:
    if not parts or (parts == ("**",) and path):
        yield path, node
    if not parts or not isinstance(node, Folder):
        return
    part, rest = parts[0], parts[1:]
    for name, child in node.build().items():
        below = f"{path}/{name}"
        is_repeating = not path and name in REPEATING
        if part == "**":
            if rest and _is_match(name, rest[0], is_repeating):
                yield from _matches(child, rest[1:], below)
            if not is_repeating and (not rest or isinstance(child, Folder)):
                yield from _matches(child, parts, below)
        elif _is_match(name, part, is_repeating):
            yield from _matches(child, rest, below)


def _is_match(name: str, part: str, is_repeating: bool) -> bool:
    return name == part if is_repeating else fnmatchcase(name, part)


def _differences(before: Folder, after: Folder, path: str) -> Iterator[Difference]:
    if before.value is after.value or before.value == after.value:
        return
    old, new = before.build(), after.build()
    for name in sorted({*old, *new}, key=_by_number):
        if not path and name in REPEATING:
            continue
        below = f"{path}/{name}"
        if name not in new:
            yield Difference(change="removed", path=below, before=expanded(old[name]), after=None)
        elif name not in old:
            yield Difference(change="added", path=below, before=None, after=expanded(new[name]))
        else:
            yield from _of_one_name(old[name], new[name], below)


def _of_one_name(old: Node, new: Node, path: str) -> Iterator[Difference]:
    if isinstance(old, Folder) and isinstance(new, Folder):
        yield from _differences(old, new, path)
        return
    before, after = expanded(old), expanded(new)
    if before != after:
        yield Difference(change="changed", path=path, before=before, after=after)


def _by_number(name: str) -> tuple[int, str]:
    number = whole_number(name)
    return (-1, name) if number is None else (number, "")


def leaf_text(leaf: Leaf) -> str:
    """A leaf as text for people."""
    match leaf:
        case None:
            return "-"
        case bool():
            return "true" if leaf else "false"
        case list():
            return "[" + ", ".join(str(item) for item in leaf) + "]"
        case _:
            return str(leaf)


def found_line(path: str, leaf: Leaf, *, is_folder: bool) -> str:
    """A line for a result of `find`."""
    return f"{path}/" if is_folder and path != "/" else f"{path} = {leaf_text(leaf)}"


def difference_line(each: Difference) -> str:
    """`+ path`, `- path` or `~ path: before -> after`, with the content as JSON."""
    match each.change:
        case "added":
            return f"+ {each.path} {json.dumps(each.after)}"
        case "removed":
            return f"- {each.path} {json.dumps(each.before)}"
        case _:
            return f"~ {each.path}: {json.dumps(each.before)} -> {json.dumps(each.after)}"
