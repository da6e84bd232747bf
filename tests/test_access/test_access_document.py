"""docs/access.md has the access that every API declares."""

from __future__ import annotations

import inspect
import re
from typing import Any

from kvorum.broker.api import registry
from tests.tree import ROOT

DOCUMENT = ROOT / "docs" / "access.md"
BEGIN, END = "<!-- access -->\n", "<!-- end -->\n"


def table() -> str:
    modules = sorted(registry.MODULES.values(), key=lambda module: module.API.key)
    lines = ["| API | operations | remarks |", "| --- | --- | --- |"]
    for module in modules:
        needs = ", ".join(f"{operation.name} {kind.name}" for operation, kind in module.ACCESS)
        name = module.API.name.title().replace("_", "")
        lines.append(f"| {name} ({module.API.key}) | {needs or 'none'} | {remark(module)} |")
    return "\n".join(lines) + "\n"


def remark(module: Any) -> str:
    """The text below the declaration."""
    below = inspect.getsource(module).split("\nACCESS = ")[1]
    found = re.match(r'(?:\(\n.*?^\)|[^\n]*)\n"""(.*?)"""', below, re.S | re.M)
    return "" if found is None else " ".join(found[1].split())


def test_the_table_of_access_is_that_of_the_apis(request):
    text = DOCUMENT.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    present, tail = rest.split(END)
    if request.config.getoption("--rewrite"):
        DOCUMENT.write_text(head + BEGIN + table() + END + tail, encoding="utf-8")
        return
    assert present == table()
