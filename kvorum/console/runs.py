"""Runs and duels of a folder: their verdicts, and which of their files a page may open. Blocks.

A run is a folder with report.json, a duel one with duel.json and two runs in it. Only these files
and the pages beside them are served; a name in an address never reaches the disk unless this module
listed it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvorum.chaos.report.document import REPORT_JSON
from kvorum.chaos.report.report import REPORT_HTML
from kvorum.console.core.patch import Document, without_nulls

DUEL_HTML, DUEL_JSON = "duel.html", "duel.json"
FOLDERS_MAX = 2_000
"""Folders looked at; the newest runs are shown."""
RUNS_MAX = 200
REPORT_BYTES_MAX = 64 << 20

PAGES = (REPORT_HTML, DUEL_HTML)


@dataclass(slots=True)
class _Known:
    """A file that was read: it is read again when time or size differ."""

    stamp: tuple[int, int]
    row: Document


class Runs:
    """The runs below a folder, which may be written meanwhile. One caller at a time."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder).resolve()
        self._known: dict[str, _Known] = {}

    def listed(self) -> Document:
        """The runs and duels, the newest first."""
        rows = []
        looked_at = 0
        for path in self._folders():
            looked_at += 1
            name = path.relative_to(self._folder).as_posix()
            for file, read in ((DUEL_JSON, _duel), (REPORT_JSON, _run)):
                row = self._row(path / file, name, read)
                if row is not None:
                    rows.append(row)
                    break
        rows.sort(key=lambda row: (-row["at_ms"], row["name"]))
        return {
            "folder": str(self._folder),
            "total": len(rows),
            "is_cut": looked_at >= FOLDERS_MAX,
            "rows": rows[:RUNS_MAX],
        }

    def page(self, name: str, file: str) -> Path | None:
        """The HTML page `file` of the run `name`; None if there is none that may be opened."""
        if file not in PAGES:
            return None
        for path in self._folders():
            if path.relative_to(self._folder).as_posix() == name:
                page = path / file
                is_ours = page.is_file() and page.resolve().is_relative_to(self._folder)
                return page if is_ours else None
        return None

    def _folders(self) -> list[Path]:
        """The folder itself, those in it, and those in these: two levels down."""
        inner = _folders_in(self._folder)
        below = [path for parent in inner for path in _folders_in(parent)]
        return [self._folder, *inner, *below][:FOLDERS_MAX]

    def _row(self, path: Path, name: str, read: Any) -> Document | None:
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            known = self._known.get(str(path))
            if known is None or known.stamp != stamp:
                row = _read(path, name, status, read)
                known = self._known[str(path)] = _Known(stamp, without_nulls(row))
            return known.row
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            return _damaged(path, name, 0, str(error.strerror))


def _folders_in(parent: Path) -> list[Path]:
    try:
        with os.scandir(parent) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []  # it was removed meanwhile, or is not ours to read
    return [parent / name for name in names]


def _read(path: Path, name: str, status: os.stat_result, read: Any) -> Document:
    at_ms = status.st_mtime_ns // 1_000_000
    if status.st_size > REPORT_BYTES_MAX:
        return _damaged(path, name, at_ms, f"{status.st_size:,} bytes are too many to read")
    try:
        document = json.loads(path.read_bytes())
        row: Document = {"name": name, "at_ms": at_ms, **read(document)}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return _damaged(path, name, at_ms, f"{path.name} is damaged: {error!r}")
    page = {"run": REPORT_HTML, "duel": DUEL_HTML}[row["kind"]]
    row["page"] = page if (path.parent / page).is_file() else None
    return row


def _run(document: Any) -> Document:
    return {
        "kind": "run",
        "title": str(document["title"]),
        "verdict": str(document["verdict"]),
        "summary": str(document["summary"]),
        "seed": document["seed"],
        "at_ms": int(document["started_wall_ms"]),
        "system": str(document.get("system", {}).get("name", "kvorum")),
    }


def _duel(document: Any) -> Document:
    runs = document["runs"]
    return {
        "kind": "duel",
        "title": str(document["experiment"]),
        "verdict": " / ".join(str(run["verdict"]) for run in runs),
        "summary": "; ".join(f"{run['system']}: {run['summary']}" for run in runs),
        "seed": document["seed"],
        "system": " against ".join(str(run["system"]) for run in runs),
    }


def _damaged(path: Path, name: str, at_ms: int, why: str) -> Document:
    kind = "duel" if path.name == DUEL_JSON else "run"
    return {
        "name": name, "kind": kind, "at_ms": at_ms, "title": name, "verdict": "damaged",
        "summary": why, "system": "",
    }  # fmt: skip
