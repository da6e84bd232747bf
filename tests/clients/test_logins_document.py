"""docs/security.md has what refused clients show, out of the outcomes recorded from Kafka."""

from __future__ import annotations

from typing import Any

from tests.clients.logins.cases import CASES, recorded
from tests.tree import ROOT

DOCUMENT = ROOT / "docs" / "security.md"
BEGIN, END = "<!-- logins -->\n", "<!-- end -->\n"
FAMILIES = ("java", "librdkafka", "kafkajs", "franz-go", "kafka-python", "aiokafka", "kcat")


def table() -> str:
    outcomes = recorded()
    lines = [f"| refused for | {' | '.join(FAMILIES)} |", "| --- |" + " --- |" * len(FAMILIES)]
    for case in CASES:
        if outcomes["java"][case.name] != "read":
            cells = (cell(family, outcomes[family][case.name]) for family in FAMILIES)
            lines.append(f"| {case.name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def cell(family: str, outcome: dict[str, Any] | str) -> str:
    """The error's name, with the words that Java's client adds, and those of a nameless error."""
    if isinstance(outcome, str):
        return outcome
    error, says = outcome["error"], outcome.get("says", "")
    log = [name for name in outcome.get("log", ()) if name != error]
    parts = [f"`{error}`"] if error else []
    if family == "java" or not error:
        parts.append(says.partition(" (")[0].removeprefix("unable to dial: "))
    if log:
        parts.append(f"in the log `{', '.join(log)}`")
    return ": ".join(parts)


def test_the_table_of_refusals_is_what_clients_show(request) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    present, tail = rest.split(END, 1)
    if request.config.getoption("--rewrite"):
        DOCUMENT.write_text(head + BEGIN + table() + END + tail, encoding="utf-8")
        return
    assert present == table()
