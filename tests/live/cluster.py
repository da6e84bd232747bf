"""A cluster of real processes under a test: `kvorum dev` as a subprocess, and clients for it.

Ports come in blocks of twenty below the ephemeral range. A listening guard socket on the last
port of a block keeps test runs that go on in parallel out of it. A block has a second one for the
brokers' listener NODES, which a secure cluster puts NODES_PORT_SHIFT above their ports.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from kvorum.launch.cluster.secure_plan import NODES_PORT_SHIFT
from tests.polling import DEADLINE_S, eventually

_PORT_LOW, _PORT_HIGH = 30_000, 32_700
_BLOCK = 20
_CONTROLLER_SHIFT = 10


class Ports:
    """A block of free ports and the one of its brokers' listener NODES, reserved until closed.
    broker: the first; controller: ten later."""

    def __init__(self) -> None:
        starts = list(range(_PORT_LOW, _PORT_HIGH - NODES_PORT_SHIFT - _BLOCK, _BLOCK))
        random.SystemRandom().shuffle(starts)
        for start in starts:
            with contextlib.ExitStack() as guards:
                if _reserve(start, guards) and _reserve(start + NODES_PORT_SHIFT, guards):
                    self._guards = guards.pop_all()
                    self.broker, self.controller = start, start + _CONTROLLER_SHIFT
                    return
        raise AssertionError(f"no free block of ports between {_PORT_LOW} and {_PORT_HIGH}")

    def close(self) -> None:
        self._guards.close()


def _reserve(start: int, guards: contextlib.ExitStack) -> bool:
    """Keep the block that begins at `start` until `guards` closes; False if it is in use."""
    guard = _bind(start + _BLOCK - 1)
    if guard is None:
        return False
    guards.callback(guard.close)
    return all(_is_free(port) for port in range(start, start + _BLOCK - 1))


def _bind(port: int) -> socket.socket | None:
    probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind(("127.0.0.1", port))
        probe.listen(1)
    except OSError:
        probe.close()
        return None
    return probe


def _is_free(port: int) -> bool:
    probe = _bind(port)
    if probe is not None:
        probe.close()
    return probe is not None


def is_alive(pid: int) -> bool:
    """True if a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def run_kvorum(
    *arguments: str, timeout_s: float = DEADLINE_S, **environment: str
) -> subprocess.CompletedProcess[str]:
    """One run of the command line to its end."""
    return subprocess.run(
        [sys.executable, "-m", "kvorum", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=_environment(environment),
        check=False,
    )


def _environment(more: dict[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("KVORUM_")}
    return {**kept, "KVORUM_PROFILES": os.devnull, "PYTHONUNBUFFERED": "1", **more}


class Command:
    """A `kvorum` that keeps running; its lines are read as they come."""

    def __init__(self, *arguments: str, error_file: Path, **environment: str) -> None:
        self._error_file = error_file
        with open(error_file, "ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kvorum", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=_environment(environment),
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._is_at_end = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_line(self, part: str, *, after: int = 0) -> str:
        """The first line from number `after` on that holds `part`, once it is there."""
        found: list[str] = []

        def is_there() -> bool:
            found[:] = [line for line in self.lines[after:] if part in line]
            return bool(found) or self._is_at_end

        with self._changed:
            self._changed.wait_for(is_there, DEADLINE_S)
        assert found, f"no line {part!r}; it said {self.lines} and {self.errors()!r}"
        return found[0]

    def errors(self) -> str:
        return self._error_file.read_text()

    def is_running(self) -> bool:
        return self._process.poll() is None

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Its exit code; all its lines have been read by then."""
        code = self._process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        return code

    def close(self) -> None:
        """End it in any case."""
        if self.is_running():
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(DEADLINE_S)
        self._process.kill()
        self._process.wait()
        self._reader.join(DEADLINE_S)

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        with stream:
            for line in stream:
                with self._changed:
                    self.lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._is_at_end = True
            self._changed.notify_all()


class Cluster:
    """A whole cluster in `folder`/data. As a context manager it is started and always ended.

    links, config: files for `kvorum dev`, which are read at the start.
    """

    def __init__(
        self,
        folder: Path,
        *,
        controllers: int = 3,
        brokers: int = 3,
        settings: Sequence[str] = (),
        links: Path | None = None,
        config: Path | None = None,
        is_secure: bool = False,
        has_metrics: bool = False,
    ) -> None:
        """is_secure: see `kvorum dev --secure`. has_metrics: each node has a page, on a free
        port."""
        self.ports = Ports()
        self.data_dir = folder / "data"
        self._error_file = folder / "launcher.err"
        self._arguments = ["--controllers", str(controllers), "--brokers", str(brokers)]
        self._arguments += ["--data-dir", str(self.data_dir), "--port", str(self.ports.broker)]
        self._arguments += ["--controller-port", str(self.ports.controller)]
        for setting in settings:
            self._arguments += ["--set", setting]
        if config is not None:
            self._arguments += ["--config", str(config)]
        if is_secure:
            self._arguments.append("--secure")
        if has_metrics:
            self._arguments += ["--metrics-port", "0"]
        self.command_config = self.data_dir / "secrets" / "admin.properties" if is_secure else None
        if links is not None:
            self._arguments += ["--links", str(links)]
        self._seen_pids: set[int] = set()
        self.bootstrap = ",".join(f"127.0.0.1:{self.ports.broker + i}" for i in range(brokers))
        self.bootstrap_controller = ",".join(
            f"127.0.0.1:{self.ports.controller + i}" for i in range(controllers)
        )
        self.launcher: Command

    def __enter__(self) -> Cluster:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Return when the launcher says that the cluster is usable."""
        self.launcher = Command("dev", *self._arguments, error_file=self._error_file)
        self.launcher.wait_line("bootstrap: ")
        self.nodes()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Tell the launcher to stop; its exit code."""
        self.nodes()
        self.launcher.send(number)
        return self.launcher.wait()

    def close(self) -> None:
        """No process of this cluster is left when this returns, whatever happened before."""
        with contextlib.suppress(FileNotFoundError):
            self.nodes()
        for pid in self._seen_pids:
            self._signal_if_ours(pid, signal.SIGCONT)
        if hasattr(self, "launcher"):
            self.launcher.close()
        with contextlib.suppress(FileNotFoundError):
            self.nodes()
        for pid in self._seen_pids:
            self._signal_if_ours(pid, signal.SIGKILL)
        self.ports.close()

    def _signal_if_ours(self, pid: int, number: int) -> None:
        # A pid may have been given to somebody else since it was written down.
        with contextlib.suppress(OSError):
            if str(self.data_dir).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, number)

    # The cluster's state, as its files tell it.

    def document(self) -> dict[str, Any]:
        """cluster.json."""
        document: dict[str, Any] = json.loads((self.data_dir / "cluster.json").read_text())
        return document

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Node name to its entry in cluster.json."""
        nodes = {node["name"]: node for node in self.document()["nodes"]}
        self._seen_pids |= {node["pid"] for node in nodes.values() if node["pid"] is not None}
        return nodes

    def pid(self, name: str) -> int:
        pid: int | None = self.nodes()[name]["pid"]
        assert pid is not None, f"{name} does not run"
        return pid

    def processes_left(self) -> list[int]:
        """Pids of nodes that this cluster ever had and that still run."""
        self.nodes()
        return [pid for pid in sorted(self._seen_pids) if is_alive(pid)]

    def log_of(self, name: str) -> str:
        return Path(self.nodes()[name]["log_file"]).read_text()

    # Faults: signals to nodes, restarts.

    def signal(self, name: str, number: int) -> None:
        os.kill(self.pid(name), number)

    def kill(self, *names: str) -> None:
        """SIGKILL all at once; returns when the launcher has seen each of them die."""
        for name in names:
            self.signal(name, signal.SIGKILL)
        for name in names:
            self.wait_dead(name)

    def wait_dead(self, name: str) -> None:
        eventually(lambda: self.nodes()[name]["state"] == "dead", f"{name} is shown as dead")

    def restart(self, *names: str) -> None:
        """`kvorum dev restart`, which returns when all are ready again."""
        done = run_kvorum("dev", "restart", *names, "--data-dir", str(self.data_dir))
        assert done.returncode == 0, done.stderr

    # Commands of `kvorum` against the cluster.

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command line, with this cluster's brokers in the environment."""
        if self.command_config is not None:
            arguments += ("--command-config", str(self.command_config))
        return run_kvorum(*arguments, KVORUM_BOOTSTRAP_SERVER=self.bootstrap)

    def cli_json(self, *arguments: str) -> Any:
        done = self.cli(*arguments, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def broker_name(broker_id: int) -> str:
    return f"broker-{broker_id}"


def controller_name(node_id: int) -> str:
    return f"controller-{node_id}"
