"""Prints the transition table as the diagram and the table in docs/protocol/election.md.

`python -m kvorum.raft.core.transition_diagram` prints both; a test compares the document with them.
"""

from __future__ import annotations

import sys

from kvorum.raft.core.states import TRANSITIONS, Unattached


def diagram() -> str:
    """A Mermaid state diagram of all roles."""
    lines = ["stateDiagram-v2", f"    [*] --> {_name(Unattached)}"]
    for role, following in TRANSITIONS.items():
        for other in following:
            lines.append(f"    {_name(role)} --> {_name(other)}")
    return "\n".join(lines)


def table() -> str:
    """A Markdown table with the columns from, to and when."""
    lines = ["| from | to | when |", "| --- | --- | --- |"]
    for role, following in TRANSITIONS.items():
        for other, when in following.items():
            lines.append(f"| {_name(role)} | {_name(other)} | {when} |")
    return "\n".join(lines)


def document() -> str:
    """The diagram and the table, as they stand between the two marks in the document."""
    return f"```mermaid\n{diagram()}\n```\n\n{table()}"


def _name(role: type) -> str:
    return role.__name__.lower()


if __name__ == "__main__":
    sys.stdout.write(document() + "\n")
