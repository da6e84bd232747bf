"""`python -m tests.live.switch_build FOLDER NODE`: stop a node of whatever build in good order, and
start it with this one. The restart command of a rolling upgrade."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.live.cluster import is_alive
from tests.polling import eventually


def start(folder: Path, node: str, tree: str) -> subprocess.Popen[bytes]:
    """Start a node with the build in `tree`; its pid is in the folder."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("KVORUM_")}
    environment["PYTHONPATH"] = tree
    command = [sys.executable, "-m", "kvorum", node.partition("-")[0]]
    with open(folder / f"{node}.log", "ab") as log:
        process = subprocess.Popen(
            [*command, "--config", str(folder / "conf" / f"{node}.toml")],
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    (folder / f"{node}.pid").write_text(str(process.pid))
    return process


def stop(folder: Path, node: str, number: int = signal.SIGTERM) -> None:
    """Stop a node, if it was started; returns when it is gone."""
    file = folder / f"{node}.pid"
    if not file.exists():
        return
    pid = int(file.read_text())
    if is_alive(pid):
        os.kill(pid, number)
        eventually(lambda: not is_alive(pid), f"{node} has ended")
    file.unlink()


if __name__ == "__main__":
    stop(Path(sys.argv[1]), sys.argv[2])
    start(Path(sys.argv[1]), sys.argv[2], str(Path(__file__).resolve().parents[2]))
