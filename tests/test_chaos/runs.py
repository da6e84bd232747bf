"""Folders of runs, and the references in their pages."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

from .histories import HistoryBuilder

ACCEPTED = {
    "name": "led", "func": "offline_partitions", "value": 0.0, "tolerance": "0",
    "is_accepted": True, "reason": "",
}  # fmt: skip


def record(**changes):
    return {
        "version": 1, "title": "Tom & <Jerry>", "description": "d", "tags": [], "seed": 4,
        "rerun": "kvorum chaos run x.yaml --seed 4", "steady_state_title": "fine",
        "configuration": {"controllers": 3, "brokers": 3}, "started_wall_ms": 1000,
        "ended_wall_ms": 3500, "steady_state_before": [ACCEPTED], "steady_state_after": [ACCEPTED],
        "probes": [], "steps": [], "is_converged": True, "is_final_read_complete": True,
        "died_unasked": [],
        "notes": [], "error": None, "versions": {"kvorum": "1"}, **changes,
    }  # fmt: skip


def write_run(folder: Path, history: HistoryBuilder, **changes) -> None:
    history.write(str(folder / "history.jsonl"))
    (folder / "run.json").write_text(json.dumps(record(**changes)))


class References(HTMLParser):
    """Everything in a page that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.found += [value for key, value in attrs if key in ("src", "href", "srcset", "data")]
