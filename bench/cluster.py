"""The interface of a cluster under benchmark, for either software."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from bench.observe import BrokerView
from bench.processes import BROKER, CONTROLLER, ClusterProcess
from kvorum.runtime.errors import KvorumError, WireError

T = TypeVar("T")

CONTROLLERS = 3
BROKERS = 3
HOST = "127.0.0.1"

#: A cold Kafka on two busy cores can take 40 s.
START_TIMEOUT_S = 120.0
_PORT_POLL_S = 0.005
_OBSERVE_TIMEOUT_S = 30.0
_OBSERVE_POLL_S = 0.05


class BenchFailed(KvorumError):
    """A figure could not be taken; the message says why."""


class BenchCluster(Protocol):
    """Three controllers and three brokers on this machine.

    launch and restart return once the processes are started; a caller that needs more waits for an
    effect that is visible from outside. stop leaves no process behind and may be called at any
    time.
    """

    @property
    def side(self) -> str:
        """ "kafka" or "kvorum"."""

    @property
    def brokers(self) -> tuple[str, ...]:
        """host:port of each broker, in the order of their ids."""

    def prepare(self) -> None:
        """Prepare what does not count as start-up: jars, formatted directories."""

    def launch(self) -> None:
        """Start every process on an empty, formatted cluster."""

    def processes(self) -> list[ClusterProcess]:
        """The running processes."""

    def restart(self, process: ClusterProcess) -> None:
        """Start a dead node again on its data."""

    def stop(self) -> None:
        """End every process."""

    def last_words(self) -> str:
        """The end of its logs, for the message of a failure."""


def bootstrap_of(cluster: BenchCluster) -> str:
    """The bootstrap addresses for clients: every broker."""
    return ",".join(cluster.brokers)


def pids(cluster: BenchCluster, role: str) -> list[int]:
    """Process ids of a role."""
    return [process.pid for process in cluster.processes() if process.role == role]


def broker_process(cluster: BenchCluster, node_id: int) -> ClusterProcess:
    """The process of a broker id."""
    return _process(cluster, BROKER, node_id)


def active_controller(cluster: BenchCluster) -> ClusterProcess:
    """The process of the controller that leads the quorum now. Raises BenchFailed."""

    def known() -> int | None:
        node_id = _ask_any(cluster.brokers)
        return node_id if node_id >= 0 else None

    node_id = wait_for(known, timeout_s=_OBSERVE_TIMEOUT_S, what="an active controller is known")
    return _process(cluster, CONTROLLER, node_id)


def strike(process: ClusterProcess, number: signal.Signals) -> float:
    """Send a signal; returns the monotonic time just before it."""
    moment = time.monotonic()
    os.kill(process.pid, number)
    return moment


def wait_for_port(addresses: Sequence[str], timeout_s: float) -> None:
    """Return when one of the addresses accepts a connection. Raises BenchFailed."""

    def is_open() -> bool | None:
        for address in addresses:
            host, _, port = address.rpartition(":")
            with (
                contextlib.suppress(OSError),
                socket.create_connection((host, int(port)), timeout=1),
            ):
                return True
        return None

    wait_for(is_open, timeout_s=timeout_s, poll_s=_PORT_POLL_S, what="a broker listens")


def wait_for(
    look: Callable[[], T | None], *, timeout_s: float, what: str, poll_s: float = _OBSERVE_POLL_S
) -> T:
    """Poll until `look` returns a value. Raises BenchFailed, which names `what`."""
    deadline = time.monotonic() + timeout_s
    while (seen := look()) is None:
        if time.monotonic() > deadline:
            raise BenchFailed(f"not so within {timeout_s:g} s: {what}")
        time.sleep(poll_s)
    return seen


def _ask_any(brokers: Sequence[str]) -> int:
    for address in brokers:
        with contextlib.suppress(OSError, WireError), BrokerView(address) as view:
            return view.active_controller()
    return -1


def _process(cluster: BenchCluster, role: str, node_id: int) -> ClusterProcess:
    for process in cluster.processes():
        if process.role == role and process.node_id == node_id:
            return process
    raise BenchFailed(f"{role} {node_id} is not running")
