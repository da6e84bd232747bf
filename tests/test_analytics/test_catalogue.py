"""The catalogue of the job's tables, and the document that has it."""

from __future__ import annotations

from pathlib import Path

from kvorum.analytics.catalogue import CATALOGUE, markdown

ROOT = Path(__file__).resolve().parents[2]


def test_the_document_has_the_catalogue():
    """`python -m kvorum.analytics.catalogue` prints the part to paste."""
    assert markdown() in (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")


def test_every_table_has_a_meaning_for_each_column_and_a_query_about_itself():
    for name, entry in CATALOGUE.items():
        assert entry.meaning and entry.question.endswith("?")
        assert f"FROM {name}" in entry.query
        assert all(entry.columns.values())
