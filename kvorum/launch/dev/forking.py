"""Forks node processes from a parent that has imported all code and opened nothing.

All nodes of a cluster then share the imported code, and none spends time on imports. The parent
must never create a gRPC object or an event loop, because neither survives a fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import traceback
from dataclasses import dataclass

from kvorum.launch.cluster.plan import NodePlan
from kvorum.runtime.memory import keep_heap

_PR_SET_PDEATHSIG = 1
READY = b"ready\n"


@dataclass(frozen=True, slots=True)
class Child:
    """A node's process. ready_fd: gives READY, or end of file if the node died first."""

    pid: int
    ready_fd: int


def preload_controllers() -> None:
    """Import the controllers' code before they are forked."""
    import kvorum.launch.nodes.controller_process
    import kvorum.launch.nodes.node  # noqa: F401

    keep_heap()


def preload_brokers() -> None:
    """Import the brokers' code before they are forked, with the schemas of a client's first
    requests. If three brokers import these one by one while their first clients wait, it takes
    three times as long."""
    import kvorum.launch.nodes.broker_process  # noqa: F401
    from kvorum.broker.api.registry import preload

    preload()
    keep_heap()


def spawn(node: NodePlan, *, close_fds: tuple[int, ...] = ()) -> Child:
    """Fork a process that runs `node`. close_fds: the parent's own, closed in the child."""
    os.makedirs(os.path.dirname(node.log_file), exist_ok=True)
    ready_read, ready_write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(ready_write)
        return Child(pid, ready_read)
    code = 1
    try:
        os.close(ready_read)
        for fd in close_fds:
            os.close(fd)
        code = _run_child(node, ready_write)
    except BaseException:
        # No caller will print it; by now stderr goes to the node's log file.
        traceback.print_exc()
        raise
    finally:
        # The child must never return into the parent's code.
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def _run_child(node: NodePlan, ready_fd: int) -> int:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    # With a session of its own, the node does not get Ctrl-C from the terminal; the launcher does,
    # and stops the nodes in order. If the launcher is killed, the node ends too.
    os.setsid()
    _die_with_parent()
    _redirect_output(node.log_file)
    from kvorum.launch.nodes.node import run_planned_node

    def ready() -> None:
        os.write(ready_fd, READY)
        os.close(ready_fd)

    return run_planned_node(node.role, node.properties, ready=ready, fault_board=node.fault_board)


def _redirect_output(log_file: str) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(null)
    os.close(log)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)


def _die_with_parent() -> None:
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == 1:  # the parent died before the call
        os.kill(os.getpid(), signal.SIGTERM)
