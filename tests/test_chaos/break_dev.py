"""The commands of an attached `kvorum dev`: `python break_dev.py DATA_DIR COMMAND NODE`."""

from __future__ import annotations

import os
import signal
import sys
import time

from kvorum.launch.cluster.cluster_file import NodeEntry, read_cluster_file
from kvorum.launch.dev.control import request_restart, wait_restarted

SIGNALS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "resume": signal.SIGCONT}
START_TIMEOUT_MS = 20_000


def entry_of(data_dir: str, name: str) -> NodeEntry:
    cluster = read_cluster_file(data_dir)
    assert cluster is not None
    entry = cluster.node(name)
    assert entry is not None, name
    return entry


def main(data_dir: str, command: str, name: str) -> None:
    if command in SIGNALS:
        pid = entry_of(data_dir, name).pid
        assert pid is not None, f"{name} is not running"
        os.kill(pid, SIGNALS[command])
        return
    starts = request_restart(data_dir, [name])[0].starts
    deadline_ms = time.monotonic() * 1000 + START_TIMEOUT_MS
    wait_restarted(data_dir, name, deadline_ms=int(deadline_ms), starts_before=starts)


if __name__ == "__main__":
    main(*sys.argv[1:])
