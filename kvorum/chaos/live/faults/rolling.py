"""The fault `roll`: `kvorum cluster roll`, as an operator runs it, beside the load.

The command is a process of its own, so that the run measures what an operator would see.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Protocol, runtime_checkable

from kvorum.chaos.live.host.processes import start_process, stop_process
from kvorum.runtime.errors import KvorumError

_STOP_TIMEOUT_MS = 5_000


@runtime_checkable
class CanRoll(Protocol):
    """A system whose nodes one command restarts in turn."""

    def roll_command(self) -> list[str]:
        """The command line."""

    @property
    def roll_log(self) -> str:
        """The file for its output."""


class RollingRestart:
    """One rolling restart. outcome: for the history, filled by `finish`."""

    def __init__(self, system: CanRoll) -> None:
        self._system = system
        self._process: subprocess.Popen[bytes] | None = None
        self.outcome: dict[str, object] = {}

    def start(self) -> None:
        """Begin; the nodes are restarted meanwhile."""
        self._process = start_process(self._system.roll_command(), log_file=self._system.roll_log)

    def is_over(self) -> bool:
        """True once every node is restarted. Raises KvorumError if the roll stopped early."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return False
        if code != 0:
            raise KvorumError(f"kvorum cluster roll ended with exit code {code}: {self._said()}")
        return True

    def finish(self) -> None:
        """Stop a roll that is not complete. The node that is being restarted still comes back."""
        process, self._process = self._process, None
        if process is None:
            return
        is_complete = process.poll() == 0
        stop_process(process, timeout_ms=_STOP_TIMEOUT_MS)
        self.outcome["is_complete"] = is_complete

    def _said(self) -> str:
        text = Path(self._system.roll_log).read_text(encoding="utf-8", errors="replace")
        return (text.strip().splitlines() or ["nothing was printed"])[-1]
