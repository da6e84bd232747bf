"""The tables of docs/experiments.md, made from the code.

`python -m kvorum.chaos.experiment_file.reference docs/experiments.md` writes them into the
document, between the lines `<!-- table: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvorum.chaos.checks import CHECKS
from kvorum.chaos.experiment_file.faults import words_of
from kvorum.chaos.experiment_file.keys import (
    CONFIGURATION_KEYS,
    LOAD_KEYS,
    PROMISE_KEYS,
    SECURE_MEANING,
    STORM_KEYS,
    TOPIC_KEYS,
    IntegerKey,
)
from kvorum.chaos.experiment_file.shipped import shipped
from kvorum.chaos.experiment_file.steps import PROBES
from kvorum.chaos.experiment_file.workloads import WORKLOADS
from kvorum.chaos.faults import LIVE_FAULTS, SIMULATED_FAULTS
from kvorum.chaos.targets import MEANINGS, TargetKind

_MARK = re.compile(r"(<!-- table: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(document: str) -> str:
    """The document with every table made anew. Raises ValueError for an unknown table."""

    def table(mark: re.Match[str]) -> str:
        make = TABLES.get(mark[2])
        if make is None:
            raise ValueError(f"no table is named {mark[2]!r}; known: {', '.join(TABLES)}")
        return mark[1] + make() + mark[3]

    return _MARK.sub(table, document)


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _keys(keys: Iterable[IntegerKey]) -> str:
    rows = [
        [
            f"`{key.name}`",
            "none" if key.default is None else f"{key.default:,}",
            f"{key.low:,} to {key.high:,}",
            key.meaning,
        ]
        for key in keys
    ]
    return _table(["key", "default", "values", "meaning"], rows)


def _faults(faults: Mapping[str, type[Any]]) -> str:
    rows = [
        [f"`{name}`", _arguments(kind) or "none", _sentence(kind)] for name, kind in faults.items()
    ]
    return _table(["fault", "arguments", "effect"], rows)


def _arguments(kind: type[Any]) -> str:
    texts = []
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if field.default is dataclasses.MISSING:
            texts.append(f"**`{field.name}`**")
        elif field.default in (None, "", ()):
            texts.append(f"`{field.name}`")
        else:
            default = field.default
            text = default.text() if hasattr(default, "text") else str(default)
            if isinstance(default, bool):
                text = text.lower()
            if words := words_of(hints[field.name]):
                text = f"{text} of {', '.join(words)}"
            texts.append(f"`{field.name}` ({text})")
    return ", ".join(texts)


def _sentence(kind: type[Any]) -> str:
    return " ".join((kind.__doc__ or "").split())


def _probes() -> str:
    return _table(["probe", "result"], ([f"`{name}`", text] for name, text in PROBES.items()))


def _targets() -> str:
    return _table(["target", "nodes"], (MEANINGS[kind] for kind in TargetKind))


def _workloads() -> str:
    rows = []
    for name, kind in WORKLOADS.items():
        hints = typing.get_type_hints(kind)
        texts = [
            f"`{field.name}` ({field.default}{_values(hints[field.name])})"
            for field in dataclasses.fields(kind)
        ]
        rows.append([f"`{name}`", ", ".join(texts), _sentence(kind)])
    return _table(["workload", "arguments (default)", "meaning"], rows)


def _values(hint: object) -> str:
    return f" of {', '.join(words)}" if (words := typing.get_args(hint)) else ""


def _checks() -> str:
    rows = [
        [
            f"`{check.check}`",
            check.promise,
            f"`{check.jepsen}`" if check.jepsen else "-",
            "no" if check.is_allowed else "yes",
        ]
        for check in CHECKS
    ]
    return _table(["check", "promise", "Jepsen's name", "fails a run"], rows)


def _shipped() -> str:
    rows = [
        [f"`{one.name}`", f"{one.seconds}", ", ".join(one.tags), one.proves] for one in shipped()
    ]
    return _table(["experiment", "seconds", "tags", "what it proves"], rows)


_SECURE = f"| `secure` | false | true, false | {SECURE_MEANING} |\n"

TABLES: Mapping[str, Callable[[], str]] = {
    "configuration": lambda: _keys(CONFIGURATION_KEYS) + _SECURE,
    "topic": lambda: _keys(TOPIC_KEYS),
    "workload": lambda: _keys(LOAD_KEYS),
    "workloads": _workloads,
    "promises": lambda: _keys(PROMISE_KEYS),
    "faults": lambda: _faults(LIVE_FAULTS),
    "simulated-faults": lambda: ", ".join(f"`{name}`" for name in SIMULATED_FAULTS) + ".\n",
    "storm": lambda: _keys(STORM_KEYS),
    "targets": _targets,
    "probes": _probes,
    "checks": _checks,
    "shipped": _shipped,
}


def main(path: str) -> None:
    """Write the tables into a document."""
    file = Path(path)
    file.write_text(with_tables(file.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
