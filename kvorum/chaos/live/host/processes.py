"""Child processes that never outlive a run, and free ports for them."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.errors import KvorumError

#: Below every common ephemeral range, so that no outgoing connection occupies a chosen port.
PORT_LOW = 20_000
PORT_HIGH = 23_999

_SLOT_PORTS = 50
"""Ranges begin at a multiple of this above PORT_LOW."""
_held: deque[contextlib.ExitStack] = deque()
"""The locks of the newest ranges, see `free_ports`."""
_HELD_MAX = 4

_POLL_S = 0.02
_PR_SET_PDEATHSIG = 1


class ProcessFailed(KvorumError):
    """A process of the run ended, or would not start or stop."""


class NotReached(KvorumError):
    """A condition did not come true before its deadline."""


def free_ports(count: int, rng: random.Random, *, host: str = "127.0.0.1") -> int:
    """The first of `count` consecutive ports that can be bound now. Raises ProcessFailed.

    A run beside this one, by the same user, does not get these ports until this process has asked
    for several other ranges: by then something listens on them. Bad sequence without that: 1. Two
    runs find a range free. 2. Both start a node on the same port, and one run fails.
    """
    starts = list(range(PORT_LOW, PORT_HIGH - count + 2, _SLOT_PORTS))
    rng.shuffle(starts)
    for start in starts:
        with contextlib.ExitStack() as locks:
            slots = range(start, start + count, _SLOT_PORTS)
            if all(_lock(slot, locks) for slot in slots) and all(
                is_free(host, port) for port in range(start, start + count)
            ):
                _held.append(locks.pop_all())
                if len(_held) > _HELD_MAX:
                    _held.popleft().close()
                return start
    wanted = "port is free" if count == 1 else f"{count} ports in a row are free"
    raise ProcessFailed(
        f"no {wanted} between {PORT_LOW} and {PORT_HIGH} on {host}; end other clusters, or the "
        "programs that `ss -ltnp` shows on these ports"
    )


def _lock(slot: int, locks: contextlib.ExitStack) -> bool:
    """Lock the range of ports that begins at `slot`; False if another run has it."""
    folder = os.path.join(tempfile.gettempdir(), f"kvorum-ports-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    file = os.open(os.path.join(folder, str(slot)), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    locks.callback(os.close, file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_free(host: str, port: int) -> bool:
    """True if nothing listens on a port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def start_process(
    command: Sequence[str],
    *,
    log_file: str,
    environment: Mapping[str, str] | None = None,
    death_signal: signal.Signals = signal.SIGTERM,
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, with both outputs appended to a file.

    In its own session the process does not get a Ctrl-C at the terminal before the run has undone
    its faults. On Linux the process also gets death_signal if this process dies without a chance to
    clean up, or if the thread that called this function ends.
    """
    output: IO[bytes]
    with open(log_file, "ab") as output:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent(death_signal),
            env={**os.environ, **(environment or {})},
        )


def _die_with_parent(death_signal: signal.Signals) -> Callable[[], None] | None:
    if not sys.platform.startswith("linux"):
        return None
    # Loaded before the fork: after a fork in a threaded parent few calls are safe.
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def set_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)

    return set_signal


def stop_process(process: subprocess.Popen[bytes], *, timeout_ms: int) -> None:
    """SIGTERM, wait, then SIGKILL for the rest of its session. The process is reaped."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=timeout_ms / 1000)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    # Children that it left behind are still in its process group.
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def is_alive(pid: int) -> bool:
    """True if a process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The state follows the command name, which may contain any byte but ends at the last
            # `)`.
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except FileNotFoundError:
        if os.path.exists("/proc/self"):
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(condition: Callable[[], bool], *, timeout_ms: int, what: str) -> None:
    """Poll until the condition is true. Raises NotReached, which names `what`, after the
    deadline."""
    deadline_ms = monotonic_ms() + timeout_ms
    while not condition():
        if monotonic_ms() >= deadline_ms:
            raise NotReached(f"{what}: not so within {timeout_ms} ms")
        time.sleep(_POLL_S)
