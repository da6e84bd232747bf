"""Parses an experiment's text: YAML or JSON to plain values, with the line of every value.

This module does not know the format of experiments. It collects problems, so that a user sees all
of them at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from kvorum.chaos.experiment_file.keys import IntegerKey
from kvorum.runtime.errors import ConfigError

#: Where a value sits: keys and list positions from the top.
Path = tuple[str | int, ...]


@dataclass(slots=True, kw_only=True)
class Document:
    """A parsed file, the line of each value, and the problems found so far."""

    path: str
    value: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    aliases: dict[Path, Path] = field(default_factory=dict)

    def alias(self, where: Path, written: Path) -> None:
        """The value at `where` of a rewritten file comes from the place `written`; problems name
        the latter."""
        self.aliases[where] = written

    def problem(self, where: Path, message: str) -> None:
        """Note a problem at a value, or at the nearest value above it that has a line."""
        where = self._written(where)
        line = next(
            (self.lines[where[:n]] for n in range(len(where), -1, -1) if where[:n] in self.lines), 1
        )
        dotted = ".".join(str(part) for part in where)
        self.problems.append(f"{self.path}:{line}: {dotted + ': ' if dotted else ''}{message}")

    def _written(self, where: Path) -> Path:
        """The place in the file that a place of the rewritten file comes from."""
        for n in range(len(where), 0, -1):
            if where[:n] in self.aliases:
                return self._written(self.aliases[where[:n]] + where[n:])
        return where

    def raise_if_problems(self) -> None:
        """Raise ConfigError that lists every problem, one a line."""
        if self.problems:
            raise ConfigError("\n".join(self.problems))


def parse_document(path: str, text: str) -> Document:
    """Parse YAML; JSON is read in the same way, as it is a subset of YAML for the contents of
    experiments.

    Raises ConfigError when the text is not well formed. Duplicate keys become problems.
    """
    import yaml

    document = Document(path=path)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is not None:
            document.value = yaml.safe_load(text)
            _note_lines(document, node, ())
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: {error.problem or 'not well formed'}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}:1: not well formed: {error}") from error
    return document


def _note_lines(document: Document, node: Any, where: Path) -> None:
    import yaml

    document.lines.setdefault(where, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            child = (*where, key.value)
            if child in document.lines:
                document.problem(child, f"the key is given twice (again in line {_line(key)})")
                continue
            document.lines[child] = _line(key)
            _note_lines(document, value, child)
    elif isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            _note_lines(document, item, (*where, position))


def _line(node: Any) -> int:
    line: int = node.start_mark.line
    return line + 1


class Section:
    """One mapping of a document: typed access by key; unknown keys are problems."""

    def __init__(self, document: Document, where: Path, value: Any, known: Iterable[str]) -> None:
        self.document = document
        self.where = where
        self.values: Mapping[str, Any] = {}
        self._misspelt: set[str] = set()
        if value is None:
            return
        if not isinstance(value, dict):
            document.problem(where, f"must be a mapping, got {_kind(value)}")
            return
        self.values = value
        names = list(known)
        for key in value:
            if key not in names:
                near = get_close_matches(str(key), names, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
                document.problem((*where, key), f"unknown key; {hint}")
                self._misspelt.update(near)

    def problem(self, key: str, message: str) -> None:
        self.document.problem((*self.where, key), message)

    def has(self, key: str) -> bool:
        return key in self.values

    def text(self, key: str, default: str | None) -> str:
        """A string; a missing one without a default is a problem."""
        value = self._get(key, default)
        if not isinstance(value, str) or not value.strip():
            if value is not None or self.has(key):
                self.problem(key, f"must be a text, got {_kind(value)}")
            return default or ""
        return value.strip()

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        """A whole number within bounds."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self.problem(key, f"must be a whole number, got {_kind(value)}")
            return default
        if not low <= value <= high:
            self.problem(key, f"must lie between {low} and {high}, got {value}")
            return default
        return value

    def integers(self, keys: Iterable[IntegerKey]) -> dict[str, int]:
        """The values of keys that have a default or are present."""
        return {
            key.name: self.integer(
                key.name, key.low if key.default is None else key.default, key.low, key.high
            )
            for key in keys
        }

    def number(self, key: str, default: float, low: float, high: float) -> float:
        """A number within bounds."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.problem(key, f"must be a number, got {_kind(value)}")
            return default
        if not low <= value <= high:
            self.problem(key, f"must lie between {low:g} and {high:g}, got {value:g}")
            return default
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """true or false."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            self.problem(key, f"must be true or false, got {_kind(value)}")
            return default
        return value

    def items(self, key: str) -> list[tuple[Path, Any]]:
        """The items of a list with their places; empty when missing."""
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            self.problem(key, f"must be a list, got {_kind(value)}")
            return []
        return [((*self.where, key, position), item) for position, item in enumerate(value)]

    def section(self, key: str, known: Iterable[str]) -> Section:
        """A nested mapping; an empty one when missing."""
        return Section(self.document, (*self.where, key), self.values.get(key), known)

    def mapping(self, key: str) -> dict[str, Any]:
        """A nested mapping with free keys."""
        value = self.values.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.problem(key, f"must be a mapping, got {_kind(value)}")
            return {}
        return {str(name): item for name, item in value.items()}

    def _get(self, key: str, default: Any) -> Any:
        if key in self.values:
            return self.values[key]
        # A misspelt key is a problem already; that it is missing follows from it.
        if default is None and key not in self._misspelt:
            self.document.problem(self.where, f"needs the key {key!r}")
        return default


def _kind(value: object) -> str:
    names = {dict: "a mapping", list: "a list", type(None): "nothing"}
    return names.get(type(value)) or repr(value)
