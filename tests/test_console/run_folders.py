"""Folders of runs, as `kvorum chaos run` leaves them."""

from __future__ import annotations

import json
from pathlib import Path


def write_run(folder: Path, title: str = "Leaders die", **more: object) -> None:
    """A run with the two files that the console reads."""
    folder.mkdir(parents=True)
    report = {
        "title": title, "verdict": "passed", "summary": "0 lost", "seed": 4,
        "started_wall_ms": 1_000, "system": {"name": "kvorum"}, **more,
    }  # fmt: skip
    (folder / "report.json").write_text(json.dumps(report))
    (folder / "report.html").write_text("<p>the report</p>")
