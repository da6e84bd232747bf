"""The document shows the transitions that the code allows, and no others."""

from __future__ import annotations

from pathlib import Path

from kvorum.raft.core.states import TRANSITIONS
from kvorum.raft.core.transition_diagram import document

ELECTION = Path(__file__).parents[2] / "docs" / "protocol" / "election.md"
BEGIN = "<!-- drawn by python -m kvorum.raft.core.transition_diagram -->\n"
END = "\n<!-- end of drawing -->"


def test_the_document_holds_what_is_drawn_from_the_table() -> None:
    text = ELECTION.read_text()
    drawn = text[text.index(BEGIN) + len(BEGIN) : text.index(END)]
    assert drawn == document()


def test_every_role_has_a_row_and_leads_to_known_roles() -> None:
    roles = set(TRANSITIONS)
    assert all(set(following) <= roles for following in TRANSITIONS.values())
    assert all(when for following in TRANSITIONS.values() for when in following.values())
