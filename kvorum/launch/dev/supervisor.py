"""Starts a planned cluster, watches its processes, restarts them on request, stops them in order.

It runs in the launcher, without event loop, threads or gRPC, so that it can fork at any time.
"""

from __future__ import annotations

import contextlib
import os
import random
import selectors
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

from kvorum.launch.cluster.cluster_file import FILE_NAME, ClusterFile, NodeEntry, write_cluster_file
from kvorum.launch.cluster.first_voters import format_planned, has_run
from kvorum.launch.cluster.plan import HOST, ClusterPlan, NodePlan
from kvorum.launch.cluster.secure_plan import prepare_secrets
from kvorum.launch.daemon.log_files import rotate
from kvorum.launch.dev.control import finish_restart, take_restart_requests
from kvorum.launch.dev.forking import READY, Child, preload_brokers, preload_controllers, spawn
from kvorum.runtime.errors import KvorumError

STOP_TIMEOUT_MS = 8_000
"""A node that takes longer to stop is killed; it recovers from disk at its next start."""

STARTUP_TIMEOUT_MS = 60_000
_LOGS_LOOK_S = 10.0
"""Pause between two looks at the sizes of the log files."""
_TELL_AGAIN_S = 1.0
_LAST_WORDS = "kvorum: "
_CRITICAL = " CRITICAL "
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1)


class StartupFailed(KvorumError):
    """A node ended, or did not become ready, during the start of the cluster."""


@dataclass(slots=True)
class _Process:
    node: NodePlan
    child: Child | None = None
    state: str = "stopped"
    is_ready: bool = False
    ready_fd: int | None = None
    """The child writes READY to it. None once it is closed, because its number is then reused."""
    log_position: int = 0
    reason: str = ""
    """The cause of its death."""
    starts: int = 0
    is_restarting: bool = False
    """True while a requester waits until the node is ready or dead again."""
    kill_at_s: float | None = None
    """The time at which a node that is being stopped for a restart is killed."""


class Supervisor:
    """The processes of one cluster. Use: start, wait_ready, run (until told to stop), stop."""

    def __init__(self, plan: ClusterPlan, *, print_line: Callable[[str], None]) -> None:
        self._plan = plan
        self._print_line = print_line
        self._processes = {node.name: _Process(node) for node in plan.nodes}
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        self._stop_asked = False
        self._is_cluster_file_stale = False
        self._has_begun = False
        self._had_handlers: dict[int, object] = {}

    @property
    def is_stopping(self) -> bool:
        """True if a stop was requested."""
        return self._stop_asked

    def start(self) -> None:
        """Fork every node, without waiting for them.

        Controllers come first: they elect a leader while the parent imports the brokers' code.
        """
        preload_controllers()
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in _SIGNALS:
            self._had_handlers[number] = signal.signal(number, self._on_signal)
        is_known = os.path.exists(os.path.join(self._plan.data_dir, FILE_NAME))
        if is_known:
            # A refusal leaves the file as it is: brokers in it that were never made would be
            # missed by the next start, which has fewer.
            self._prepare_secrets()
        # Before the first node: node data without a cluster file would be refused for ever.
        self._write_cluster_file()
        self._has_begun = True
        if not is_known:
            self._prepare_secrets()
        format_planned(self._plan, random.SystemRandom())
        for process in self._of_role("controller"):
            self._spawn(process)
        preload_brokers()
        for process in self._of_role("broker"):
            self._spawn(process)
        self._write_cluster_file()

    def wait_ready(self) -> None:
        """Return once every node is ready. Raises StartupFailed with the node that is not."""
        deadline = time.monotonic() + STARTUP_TIMEOUT_MS / 1000
        while not all(p.is_ready for p in self._processes.values()):
            self._turn(deadline - time.monotonic())
            for process in self._processes.values():
                if process.state == "dead":
                    raise StartupFailed(f"{process.node.name}: {process.reason}")
            if self._stop_asked:
                return
            if time.monotonic() > deadline:
                waiting = [p.node.name for p in self._processes.values() if not p.is_ready]
                raise StartupFailed(f"not ready after {STARTUP_TIMEOUT_MS} ms: {waiting}")
        self._record_nodes()

    def run(self) -> None:
        """Watch the processes until SIGTERM or SIGINT."""
        next_look_s = time.monotonic() + _LOGS_LOOK_S
        while not self._stop_asked:
            patience_s = self._patience_s()
            until_look_s = max(next_look_s - time.monotonic(), 0.0)
            self._turn(until_look_s if patience_s is None else min(patience_s, until_look_s))
            if time.monotonic() >= next_look_s:
                self._rotate_logs()
                next_look_s = time.monotonic() + _LOGS_LOOK_S

    def _rotate_logs(self) -> None:
        for process in self._processes.values():
            try:
                if rotate(process.node.log_file):
                    process.log_position = 0
            except OSError as failure:
                self._print_line(f"{process.node.log_file} cannot be put aside: {failure}")

    def stop(self) -> None:
        """Stop brokers, then controllers, in good order; kill those that take too long."""
        for role in ("broker", "controller"):
            self._stop_group(self._of_role(role))
        try:
            if self._has_begun:
                self._write_cluster_file(is_running=False)
        except OSError as failure:
            # All nodes have ended; the rest of this function must still run.
            self._print_line(f"cannot write to {FILE_NAME} that the cluster has stopped: {failure}")
        signal.set_wakeup_fd(-1)
        for number, handler in self._had_handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    # Helpers.

    def _prepare_secrets(self) -> None:
        if self._plan.is_secure:
            nodes: dict[str, tuple[str, ...]] = {node.name: () for node in self._plan.nodes}
            prepare_secrets(self._plan.data_dir, nodes, has_users=has_run(self._plan))

    def _patience_s(self) -> float | None:
        """Time until something must be done without an event; None for never."""
        times = [p.kill_at_s - time.monotonic() for p in self._processes.values() if p.kill_at_s]
        times += [_TELL_AGAIN_S] if self._is_cluster_file_stale else []
        return max(min(times), 0.0) if times else None

    def _of_role(self, role: str) -> list[_Process]:
        return [p for p in self._processes.values() if p.node.role == role]

    def _stop_group(self, group: list[_Process]) -> None:
        for process in group:
            self._tell_to_stop(process)
        deadline = time.monotonic() + STOP_TIMEOUT_MS / 1000
        while any(p.child is not None for p in group):
            left = deadline - time.monotonic()
            if left <= 0:
                for process in group:
                    if process.child is not None:
                        self._print_line(f"{process.node.name} did not stop in time and is killed")
                        os.kill(process.child.pid, signal.SIGKILL)
                deadline = time.monotonic() + STOP_TIMEOUT_MS / 1000
            self._turn(min(max(left, 0.0), 0.5))

    def _tell_to_stop(self, process: _Process) -> None:
        if process.child is not None and process.state == "running":
            process.state = "stopping"
            # A paused node (SIGSTOP) would not handle the SIGTERM.
            os.kill(process.child.pid, signal.SIGCONT)
            os.kill(process.child.pid, signal.SIGTERM)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stop_asked = True

    def _turn(self, timeout_s: float | None) -> None:
        """Wait for an event or the timeout, then handle all events."""
        for key, _ in self._selector.select(timeout_s):
            if key.fd == self._wake_read:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
            else:
                self._on_ready(key.data)
        self._reap()
        self._serve_requests()

    def _on_ready(self, process: _Process) -> None:
        child = process.child
        if child is None or process.ready_fd is None:
            return
        data = os.read(process.ready_fd, len(READY))
        self._close_ready_fd(process)
        if data == READY:
            process.is_ready = True
            node = process.node
            page = f" metrics http://{node.metrics}/metrics" if node.metrics else ""
            self._print_line(f"{node.name} ready on {HOST}:{node.port} pid {child.pid}{page}")
            if process.is_restarting:
                self._record_nodes()
                self._finish_restart(process)

    def _close_ready_fd(self, process: _Process) -> None:
        """Close the descriptor, only once. Bad sequence otherwise:
        1. Child A is ready, and its pipe is closed.
        2. Child B is forked, and its pipe gets the same number.
        3. A dies, and the number is closed again. B dies of a broken pipe when it writes READY.
        """
        if process.ready_fd is not None:
            self._selector.unregister(process.ready_fd)
            os.close(process.ready_fd)
            process.ready_fd = None

    def _reap(self) -> None:
        changed = False
        for process in self._processes.values():
            child = process.child
            if child is None:
                continue
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid == 0:
                continue
            changed = True
            self._close_ready_fd(process)
            process.child = None
            process.is_ready = False
            was_asked = process.state == "stopping"
            process.state = "stopped" if was_asked else "dead"
            if not was_asked:
                process.reason = _why_it_died(process.node, process.log_position, status)
                self._print_line(
                    f"{process.node.name} died ({_exit_text(status)}); it is left dead"
                )
        if changed or self._is_cluster_file_stale:
            self._record_nodes()
        for process in self._processes.values():
            if process.is_restarting and process.child is None:
                if process.kill_at_s is None or self._stop_asked:
                    self._finish_restart(process)
                else:
                    self._start_again(process)
        self._kill_late()

    def _kill_late(self) -> None:
        for process in self._processes.values():
            if process.kill_at_s is None or process.child is None:
                continue
            if time.monotonic() >= process.kill_at_s:
                self._print_line(f"{process.node.name} did not stop in time and is killed")
                os.kill(process.child.pid, signal.SIGKILL)
                process.kill_at_s = time.monotonic() + STOP_TIMEOUT_MS / 1000

    def _start_again(self, process: _Process) -> None:
        process.is_restarting = True
        process.kill_at_s = None
        self._spawn(process)
        self._record_nodes()
        self._print_line(f"{process.node.name} restarted")

    def _serve_requests(self) -> None:
        if self._stop_asked:
            return
        for name, stop_first in take_restart_requests(self._plan.data_dir).items():
            process = self._processes.get(name)
            if process is not None and process.child is None:
                self._start_again(process)
            elif process is not None and stop_first and process.state == "running":
                if not process.is_restarting:
                    process.is_restarting = True
                    process.kill_at_s = time.monotonic() + STOP_TIMEOUT_MS / 1000
                    self._tell_to_stop(process)
            elif process is None or not process.is_restarting:
                # The request is a leftover.
                finish_restart(self._plan.data_dir, name)

    def _finish_restart(self, process: _Process) -> None:
        process.is_restarting = False
        process.kill_at_s = None
        finish_restart(self._plan.data_dir, process.node.name)

    def _spawn(self, process: _Process) -> None:
        # The selector's files, with the read end of the wake-up pipe, belong to the parent.
        watched = [key.fd for key in self._selector.get_map().values()]
        process.log_position = _size_of(process.node.log_file)
        process.child = spawn(process.node, close_fds=(self._wake_write, *watched))
        process.state = "running"
        process.starts += 1
        process.is_ready = False
        process.reason = ""
        process.ready_fd = process.child.ready_fd
        self._selector.register(process.ready_fd, selectors.EVENT_READ, process)

    def _record_nodes(self) -> None:
        """Write the cluster file; on a full disk, try again later.

        Bad sequence if the launcher failed instead:
        1. A disk fills up.
        2. A broker ends, as it should.
        3. The launcher cannot record that and ends, and with it all healthy nodes.
        """
        was_untold, self._is_cluster_file_stale = self._is_cluster_file_stale, False
        try:
            self._write_cluster_file()
        except OSError as failure:
            self._is_cluster_file_stale = True
            if not was_untold:
                self._print_line(f"cannot write {FILE_NAME}, will try again: {failure}")

    def _write_cluster_file(self, *, is_running: bool = True) -> None:
        plan = self._plan
        entries = []
        for process in self._processes.values():
            node = process.node
            entries.append(
                NodeEntry(
                    name=node.name,
                    id=node.node_id,
                    roles=(node.role,),
                    pid=None if process.child is None else process.child.pid,
                    state="running" if process.child is not None else process.state,
                    listener=f"{HOST}:{node.port}",
                    advertised=node.advertised,
                    directory=node.directory,
                    log_file=node.log_file,
                    is_ready=process.is_ready,
                    reason=process.reason,
                    starts=process.starts,
                    metrics=node.metrics,
                )
            )
        write_cluster_file(
            plan.data_dir,
            ClusterFile(
                cluster_id=plan.cluster_id,
                bootstrap=plan.bootstrap,
                launcher_pid=os.getpid() if is_running else None,
                nodes=tuple(entries),
                voters=plan.voters,
                is_secure=plan.is_secure,
            ),
        )


def _exit_text(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _size_of(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _why_it_died(node: NodePlan, log_position: int, status: int) -> str:
    """The node's own last message since its start, or how it ended and where to look."""
    try:
        with open(node.log_file, "rb") as file:
            file.seek(log_position)
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    for line in reversed(lines):
        if line.startswith(_LAST_WORDS):
            return line.removeprefix(_LAST_WORDS)
        if _CRITICAL in line:
            return f"{line.partition(_CRITICAL)[2]}; see {node.log_file}"
    return f"{_exit_text(status)}; see {node.log_file}"
