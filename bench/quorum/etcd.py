"""etcd's side: three members with default settings and etcd's own benchmark tool.

`deploy/setup.sh etcd` installs both binaries; without them only Kvorum's figures are taken.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cluster import HOST, BenchFailed, wait_for
from bench.quorum.members import MEMBERS
from kvorum.chaos.live.host.processes import is_alive, start_process, stop_process

TOOLS = Path(".tools/etcd")
_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_MS = 10_000
_STATUS_TIMEOUT_S = 2.0
_BENCHMARK_TIMEOUT_S = 300
_LAST_WORDS_BYTES = 2_000

_RATE = re.compile(r"Requests/sec:\s+([\d.]+)")
_PERCENTILE = re.compile(r"^\s+(\d+)% in ([\d.]+) secs", re.MULTILINE)
_ERRORS = re.compile(r"Error distribution:\s*\n(.*)", re.DOTALL)
_COUNT = re.compile(r"^\s+[\d.]+ \[(\d+)\]", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Puts:
    """The report of etcd's benchmark tool."""

    per_second: float
    p50_ms: float
    p99_ms: float


def version() -> str | None:
    """The version of the installed etcd, None if there is none."""
    if not all(os.access(TOOLS / name, os.X_OK) for name in ("etcd", "benchmark")):
        return None
    done = subprocess.run(
        [TOOLS / "etcd", "--version"], capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout.splitlines()[0].rpartition(" ")[2]


def read_report(text: str, *, total: int) -> Puts:
    """The figures in the output of `benchmark put`. Raises BenchFailed for an incomplete run."""
    rate = _RATE.search(text)
    percentiles = {int(percent): float(s) for percent, s in _PERCENTILE.findall(text)}
    errors = _ERRORS.search(text)
    answered = sum(map(int, _COUNT.findall(text)))
    if rate is None or 50 not in percentiles or 99 not in percentiles:
        raise BenchFailed(f"etcd's benchmark gave no figures: {text[-500:]}")
    if errors is not None or answered < total:
        raise BenchFailed(f"etcd answered {answered} of {total} puts: {text[-500:]}")
    return Puts(
        per_second=float(rate[1]), p50_ms=percentiles[50] * 1000, p99_ms=percentiles[99] * 1000
    )


class EtcdCluster:
    """`start` on an empty directory; `stop` leaves no process behind and may be called at any
    time."""

    def __init__(self, *, directory: Path, port: int) -> None:
        self._directory = directory
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.addresses = {member: f"{HOST}:{port + member}" for member in MEMBERS}
        self._peer_urls = {member: f"http://{HOST}:{port + 10 + member}" for member in MEMBERS}

    def start(self) -> None:
        """Return when a leader is known."""
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        for member in MEMBERS:
            self.start_member(member)
        wait_for(
            lambda: self.leader_id() or None,
            timeout_s=_START_TIMEOUT_S,
            what="etcd has a leader",
        )

    def start_member(self, member: int) -> None:
        """Start a stopped member on its data."""
        client_url = f"http://{self.addresses[member]}"
        peer_url = self._peer_urls[member]
        cluster = ",".join(f"m{other}={url}" for other, url in self._peer_urls.items())
        command = [str(TOOLS / "etcd"), "--name", f"m{member}", "--log-level", "error"]
        command += ["--data-dir", str(self._directory / str(member))]
        command += ["--listen-client-urls", client_url, "--advertise-client-urls", client_url]
        command += ["--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url]
        command += ["--initial-cluster", cluster, "--initial-cluster-token", "bench"]
        log_file = str(self._directory / f"{member}.log")
        self._processes[member] = start_process(command, log_file=log_file)

    def leader_id(self) -> int:
        """The leading member, 0 if no member reports one."""
        for member in MEMBERS:
            if (status := self._status(member)) is None:
                continue
            if status["header"]["member_id"] == status.get("leader"):
                return member
        return 0

    def await_healthy(self) -> None:
        """Return when every member answers and knows a leader. Raises BenchFailed."""

        def is_healthy() -> bool | None:
            statuses = [self._status(member) for member in MEMBERS]
            return True if all(status and "leader" in status for status in statuses) else None

        wait_for(is_healthy, timeout_s=_START_TIMEOUT_S, what="every member of etcd is healthy")

    def _status(self, member: int) -> dict[str, Any] | None:
        url = f"http://{self.addresses[member]}/v3/maintenance/status"
        # An HTTP proxy from the environment must not be used for loopback.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(url, data=b"{}", timeout=_STATUS_TIMEOUT_S) as reply:
                fields: dict[str, Any] = json.load(reply)
        except OSError:
            return None
        return fields

    def put(self, *, clients: int, connections: int, total: int, value_bytes: int) -> Puts:
        """Run etcd's own load generator against all members. Raises BenchFailed."""
        command = [str(TOOLS / "benchmark"), f"--endpoints={','.join(self.addresses.values())}"]
        command += [f"--clients={clients}", f"--conns={connections}", "put", "--key-size=8"]
        command += ["--sequential-keys", f"--total={total}", f"--val-size={value_bytes}"]
        command += ["--key-space-size=1000000"]
        if connections == 1:
            # The best case for etcd: no hop from a follower to the leader.
            command.append("--target-leader")
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_BENCHMARK_TIMEOUT_S
        )
        if done.returncode != 0:
            raise BenchFailed(f"etcd's benchmark failed: {done.stderr[-500:]}")
        return read_report(done.stdout, total=total)

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
