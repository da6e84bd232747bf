"""docs/checks.md has every check, as the code and the bad histories describe it."""

from __future__ import annotations

from kvorum.chaos.checks import CHECKS
from tests.tree import ROOT

from .bad_histories import BAD_HISTORIES

DOCUMENT = ROOT / "docs" / "checks.md"
BEGIN, END = "<!-- checks -->\n", "<!-- end -->\n"


def table() -> str:
    lines = ["| check | promise | Jepsen's name | fires when |", "| --- | --- | --- | --- |"]
    for promise in CHECKS:
        also = " (allowed)" if promise.is_allowed else ""
        jepsen = f"`{promise.jepsen}`" if promise.jepsen else ""
        story = BAD_HISTORIES[promise.check].__doc__
        lines.append(f"| `{promise.check}`{also} | {promise.promise} | {jepsen} | {story} |")
    return "\n".join(lines) + "\n"


def test_the_table_of_checks_is_that_of_the_code(request):
    text = DOCUMENT.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    present, tail = rest.split(END)
    if request.config.getoption("--rewrite"):
        DOCUMENT.write_text(head + BEGIN + table() + END + tail, encoding="utf-8")
        return
    assert present == table()
