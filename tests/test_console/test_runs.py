"""The runs of a folder: what is listed, and which files a page may open."""

from __future__ import annotations

import json
import os

import pytest

from kvorum.console.runs import Runs
from tests.test_console.run_folders import write_run


@pytest.fixture
def folder(tmp_path):
    runs = tmp_path / "runs"
    write_run(runs / "a")
    write_run(runs / "b", title="Later", started_wall_ms=2_000, verdict="failed")
    write_run(runs / "d" / "1-kvorum")
    runs_of = [{"system": s, "verdict": "passed", "summary": "x"} for s in ("kvorum", "kafka")]
    (runs / "d" / "duel.json").write_text(
        json.dumps({"experiment": "A duel", "seed": 1, "runs": runs_of})
    )
    (runs / "d" / "duel.html").write_text("<p>the duel</p>")
    (tmp_path / "secret.html").write_text("secret")
    return runs


def test_runs_and_duels_are_listed_with_the_newest_first(folder):
    listed = Runs(str(folder)).listed()
    rows = {row["name"]: row for row in listed["rows"]}
    # A duel's time is that of its file.
    assert list(rows)[:3] == ["d", "b", "a"]
    assert (rows["b"]["verdict"], rows["b"]["page"]) == ("failed", "report.html")
    assert (rows["d"]["kind"], rows["d"]["verdict"]) == ("duel", "passed / passed")
    assert rows["d/1-kvorum"]["kind"] == "run"


def test_run_that_appears_or_changes_is_seen(folder):
    runs = Runs(str(folder))
    assert runs.listed()["total"] == 4
    write_run(folder / "e", started_wall_ms=9)
    (folder / "a" / "report.json").write_text("{}")
    os.utime(folder / "a" / "report.json", ns=(5, 5))
    listed = {row["name"]: row for row in runs.listed()["rows"]}
    assert "e" in listed
    assert listed["a"]["verdict"] == "damaged"
    assert "KeyError('title')" in listed["a"]["summary"]


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"title": 1}', "\xff"])
def test_damaged_report_is_listed_as_damaged(folder, text):
    (folder / "a" / "report.json").write_bytes(text.encode("latin-1"))
    row = next(row for row in Runs(str(folder)).listed()["rows"] if row["name"] == "a")
    assert row["verdict"] == "damaged"


def test_pages_of_listed_runs_are_opened(folder):
    runs = Runs(str(folder))
    assert runs.page("a", "report.html") == folder / "a" / "report.html"
    assert runs.page("d", "duel.html") == folder / "d" / "duel.html"
    assert runs.page("d/1-kvorum", "report.html") is not None


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("..", "secret.html"), ("a", "../secret.html"), ("a/../..", "report.html"),
        ("a", "report.json"), ("a", "history.jsonl"), ("/etc", "report.html"), ("", "duel.html"),
        ("a", "report.html\0"), ("nothing", "report.html"), ("a", ""), ("%2e%2e", "report.html"),
    ],
)  # fmt: skip
def test_no_other_file_is_opened(folder, name, file):
    assert Runs(str(folder)).page(name, file) is None


def test_page_that_is_a_link_out_of_the_folder_is_not_opened(folder):
    (folder / "a" / "report.html").unlink()
    (folder / "a" / "report.html").symlink_to(folder.parent / "secret.html")
    os.symlink(folder.parent, folder / "outside")
    runs = Runs(str(folder))
    assert runs.page("a", "report.html") is None
    assert runs.page("outside", "secret.html") is None


def test_folder_that_vanished_has_no_runs(folder):
    runs = Runs(str(folder))
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
    assert runs.listed()["rows"] == []
