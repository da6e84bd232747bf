"""Three members of the store as processes of this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.cluster import HOST
from kvorum.chaos.live.host.processes import is_alive, start_process, stop_process

MEMBERS = (1, 2, 3)
_STOP_TIMEOUT_MS = 5_000
_LAST_WORDS_BYTES = 2_000


class StoreCluster:
    """`start` on an empty directory; `stop` leaves no process behind and may be called at any time.

    links: (source, destination) to the host:port at which source finds destination, if not at its
    own listener.
    """

    def __init__(
        self,
        *,
        directory: Path,
        port: int,
        links: Mapping[tuple[int, int], str] | None = None,
    ) -> None:
        self._directory = directory
        self._links = dict(links or {})
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.addresses = {member: f"{HOST}:{port + member}" for member in MEMBERS}

    def start(self) -> None:
        """Start the members, without waiting; a client waits for the leader."""
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        for member in MEMBERS:
            self.start_member(member)

    def start_member(self, member: int) -> None:
        """Start a stopped member on its data."""
        command = [sys.executable, "-m", "bench.quorum.store", "--id", str(member)]
        command += ["--listen", self.addresses[member]]
        command += ["--directory", str(self._directory / str(member))]
        for peer, address in self.addresses.items():
            command.append(f"{peer}={self._links.get((member, peer), address)}")
        log_file = str(self._directory / f"{member}.log")
        self._processes[member] = start_process(command, log_file=log_file)

    def pid(self, member: int) -> int:
        return self._processes[member].pid

    def strike(self, member: int, number: signal.Signals) -> None:
        os.kill(self.pid(member), number)
        if number == signal.SIGKILL:
            self._processes[member].wait()

    def stop(self) -> None:
        for process in self._processes.values():
            if is_alive(process.pid):
                # SIGTERM stays pending while a process is stopped by SIGSTOP.
                os.kill(process.pid, signal.SIGCONT)
        for process in self._processes.values():
            stop_process(process, timeout_ms=_STOP_TIMEOUT_MS)
        self._processes.clear()

    def last_words(self) -> str:
        """The end of every member's log, for the message of a failure."""
        texts = [path.read_text(errors="replace") for path in self._directory.glob("*.log")]
        return "\n".join(text[-_LAST_WORDS_BYTES:] for text in texts)
