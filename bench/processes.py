"""Memory and CPU of processes, from /proc. Linux only."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CONTROLLER = "controller"
BROKER = "broker"
LAUNCHER = "launcher"

_RESIDENT = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterProcess:
    """One running process. role: controller, broker or launcher; node_id is -1 for the last."""

    name: str
    role: str
    node_id: int
    pid: int


def resident_bytes(status: str) -> int:
    """Resident memory, from the text of /proc/PID/status. Raises ValueError if it has none."""
    found = _RESIDENT.search(status)
    if found is None:
        raise ValueError("no VmRSS: the process has ended")
    return int(found[1]) * 1024


def cpu_ticks(stat: str) -> int:
    """User and system time in clock ticks, from the text of /proc/PID/stat."""
    # The command's name may have spaces and brackets, but it ends at the last bracket.
    fields = stat.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def resident_mb(pid: int) -> float:
    """Resident memory in MB (10**6 bytes), including pages that are shared with other processes."""
    return resident_bytes(Path(f"/proc/{pid}/status").read_text(encoding="utf-8")) / 1e6


def cpu_seconds(pids: Sequence[int]) -> dict[int, float]:
    """CPU time that each process has used since its start."""
    return {
        pid: cpu_ticks(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")) / _TICKS_PER_S
        for pid in pids
    }


def cpu_percent_over(pids: Sequence[int], seconds: float) -> Mapping[int, float]:
    """Each process's share of one core over the next `seconds`, in per cent. Blocks."""
    began = time.monotonic()
    before = cpu_seconds(pids)
    time.sleep(seconds)
    after = cpu_seconds(pids)
    elapsed = time.monotonic() - began
    return {pid: (after[pid] - before[pid]) / elapsed * 100 for pid in pids}
