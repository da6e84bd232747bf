"""The transition table as the diagram and the table of docs/protocol/election.md.

`python -m kvorum.raft.transition_diagram` prints both; a test holds the document to it.
"""

from __future__ import annotations

import sys

from kvorum.raft.roles.states import TRANSITIONS, Unattached


def diagram() -> str:
    """A Mermaid state diagram of all roles."""
    lines = ["stateDiagram-v2", f"    [*] --> {_name(Unattached)}"]
    for role, following in TRANSITIONS.items():
        for other in following:
            lines.append(f"    {_name(role)} --> {_name(other)}")
    return "\n".join(lines)


def table() -> str:
    """A Markdown table: from, to, when."""
    lines = ["| from | to | when |", "| --- | --- | --- |"]
    for role, following in TRANSITIONS.items():
        for other, when in following.items():
            lines.append(f"| {_name(role)} | {_name(other)} | {when} |")
    return "\n".join(lines)


def document() -> str:
    """Diagram and table, as they stand between the marks of the document."""
    return f"```mermaid\n{diagram()}\n```\n\n{table()}"


def _name(role: type) -> str:
    return role.__name__.lower()


if __name__ == "__main__":
    sys.stdout.write(document() + "\n")
