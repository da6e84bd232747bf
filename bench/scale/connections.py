"""Idle connections to one broker: memory and CPU.

`python -m bench.scale.connections HOST:PORT COUNT` opens them, prints `ready`, and keeps them.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from bench.cluster import BenchFailed, wait_for
from bench.kvorum_cluster import KvorumCluster
from bench.observe import BrokerView
from bench.processes import BROKER, cpu_percent_over, resident_mb

WATCH_S = 10.0
SETTLE_S = 3.0
_START_TIMEOUT_S = 60.0
_READY_TIMEOUT_S = 120.0
_API_VERSIONS = struct.pack(">hhih", 18, 0, 1, 5) + b"bench"


def _hold(address: str, count: int) -> None:
    """Open the connections, each with one answered request, and keep them."""
    host, _, port = address.rpartition(":")
    held = []
    for _ in range(count):
        connection = socket.create_connection((host, int(port)), timeout=_START_TIMEOUT_S)
        connection.sendall(struct.pack(">i", len(_API_VERSIONS)) + _API_VERSIONS)
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        connection.recv(size, socket.MSG_WAITALL)
        held.append(connection)
    print("ready", flush=True)
    time.sleep(3_600)


async def measure(directory: Path, port: int, count: int) -> dict[str, float]:
    """connections_mb and connections_percent. Raises BenchFailed."""
    cluster = KvorumCluster(directory=directory, port=port, brokers=1)
    cluster.prepare()
    cluster.launch()
    process: asyncio.subprocess.Process | None = None
    (address,) = cluster.brokers
    try:

        def answers() -> bool | None:
            with contextlib.suppress(OSError), BrokerView(address) as view:
                return view.active_controller() >= 0 or None
            return None

        await asyncio.to_thread(
            wait_for, answers, timeout_s=_START_TIMEOUT_S, what="a broker answers", poll_s=0.1
        )
        await asyncio.sleep(SETTLE_S)
        (pid,) = (each.pid for each in cluster.processes() if each.role == BROKER)
        memory = resident_mb(pid)
        idle = (await asyncio.to_thread(cpu_percent_over, [pid], WATCH_S))[pid]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.scale.connections", address, str(count),
            stdout=subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(_READY_TIMEOUT_S):
            if process.stdout is None or await process.stdout.readline() != b"ready\n":
                raise BenchFailed(f"{count} connections could not be opened")
        await asyncio.sleep(SETTLE_S)
        busy = (await asyncio.to_thread(cpu_percent_over, [pid], WATCH_S))[pid]
        return {
            "connections_mb": resident_mb(pid) - memory,
            "connections_percent": busy - idle,
        }
    finally:
        if process is not None:
            process.kill()
            await process.wait()
        await asyncio.to_thread(cluster.stop)


if __name__ == "__main__":
    _hold(sys.argv[1], int(sys.argv[2]))
