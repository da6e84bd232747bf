"""The live job in a process of its own, to be killed; arguments: a folder, then the job's own.

While FOLDER/stop-at exists, the batch with the number in that file makes FOLDER/reached once it has
written the tables events and churn, and never goes on.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

from kvorum.analytics import events
from kvorum.analytics.event_tables import EventTables


def main(folder: Path, arguments: list[str]) -> int:
    stop_at = folder / "stop-at"
    add = EventTables._add_counts

    def stopping_add(self: Any, table: str, counts: Any, batch: int, watermark_ms: Any) -> None:
        if table == "late" and stop_at.exists() and int(stop_at.read_text()) == batch:
            (folder / "reached").touch()
            threading.Event().wait()
        add(self, table, counts, batch, watermark_ms)

    EventTables._add_counts = stopping_add  # type: ignore[method-assign]
    return events.main(arguments)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
