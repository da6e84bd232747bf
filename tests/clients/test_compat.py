"""docs/compat.md says what the code says."""

from __future__ import annotations

from broker.api import SERVED
from tests.clients.compat import BEGIN, DOCUMENT, END, api_names, with_generated


def test_the_tables_of_compat_md_are_up_to_date():
    document = DOCUMENT.read_text(encoding="utf-8")
    assert document.count(BEGIN) == document.count(END) == 1
    assert with_generated(document) == document, "run: python -m tests.clients.compat"


def test_every_served_api_has_a_name():
    names = api_names()
    assert [key for key, _, _ in SERVED.advertised() if key not in names] == []
    assert names[0] == "Produce"
    assert names[2] == "ListOffsets"
