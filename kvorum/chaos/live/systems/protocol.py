"""The system under test, as the runner, the injector, the nemesis and the probes see it.

A back end (`kvorum.py`, `kafka.py`, `attached.py`) starts and stops a cluster, or attaches to one,
signals its nodes, and says what each node knows of the quorum. A back end lists its capabilities;
`capabilities.py` refuses every fault outside them before a run begins.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from kvorum.chaos.live.host.links import LinkPlan
from kvorum.runtime.errors import KvorumError
from kvorum.runtime.fault_board import FaultBoard

RUNNING = "running"
DEAD = "dead"


class Capability(enum.Enum):
    """An ability of a back end. A back end claims only what it carries out."""

    KILL = "SIGKILL of a node"
    PAUSE = "SIGSTOP and SIGCONT of a node"
    STOP = "SIGTERM of a node: a controlled shutdown"
    RESTART = "the start of a dead node on its old disk"
    WIPE = "the start of a dead node on an empty disk"
    LINKS = "toxics on links between nodes"
    CLIENT_LINKS = "toxics on links between clients and brokers"
    FILL_DISK = "a full disk"
    SLOW_DISK = "a slow disk"
    FAIL_DISK = "a disk whose calls fail"
    CLOCK = "steps of a node's clock"
    PACKET_LOSS = "lost packets"
    CHANGE_VOTERS = "added and removed voters"
    REASSIGN = "reassignment of partitions"
    ROLL = "a rolling restart by one command"
    ELECT_LEADERS = "preferred leader election"
    METADATA_EXPORT = "a copy of the metadata log"


class NotObservable(KvorumError):
    """The cluster did not answer; the message names the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node.

    pid: None while it is not running, or if it runs on another machine.
    state: RUNNING, DEAD, or another word of the back end.
    listener: host:port without a proxy.
    log_file: empty if the back end does not have it.
    """

    name: str
    node_id: int
    is_controller: bool
    pid: int | None
    state: str
    listener: str
    log_file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumStatus:
    """One node's answer about the quorum.

    leader_id: -1 if the node knows no leader.
    high_watermark: -1 if the node does not know it.
    log_end_offsets: (voter id, offset) for each voter, ascending; empty if the node does not know
        them.
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    log_end_offsets: tuple[tuple[int, int], ...] = ()


class ClusterShape(Protocol):
    """The part that a back end needs of an experiment's configuration to start a cluster."""

    @property
    def controllers(self) -> int: ...

    @property
    def voters(self) -> int:
        """The controllers of the first voter set, which can change; 0: all, in a static set."""
        ...

    @property
    def brokers(self) -> int: ...

    @property
    def is_secure(self) -> bool:
        """TLS, users and ACLs, as `kvorum dev --secure` has them."""
        ...

    @property
    def settings(self) -> Sequence[tuple[str, str]]: ...

    @property
    def start_timeout_ms(self) -> int: ...


class System(Protocol):
    """A cluster under test. `start` and `stop` are called by the runner only.

    Every method that names a node raises KvorumError if there is no such node, or if the node is
    not in a state in which the method makes sense.
    """

    @property
    def name(self) -> str:
        """kvorum, kafka or attached."""

    @property
    def version(self) -> str:
        """The version of the software under test; "unknown" if nothing says it."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities of this back end for this cluster."""

    @property
    def plan(self) -> LinkPlan:
        """The nodes by name, and the proxied links."""

    @property
    def killed(self) -> frozenset[str]:
        """Nodes that a fault killed or stopped, or that died of one (`may_die`), and that were not
        started again."""

    @property
    def paused(self) -> frozenset[str]:
        """Nodes that a fault paused."""

    @property
    def topic_prefix(self) -> str:
        """The prefix of every topic that a run makes; empty on a cluster of the run's own."""

    @property
    def max_nodes_down(self) -> int | None:
        """The number of nodes that may be killed or paused at once; None for no limit."""

    def start(self) -> None:
        """Start the cluster, and return when an acks=all write would succeed. An attached cluster
        runs already: check that it fits its file. Raises KvorumError."""

    def stop(self) -> None:
        """Leave no process of the run behind. May be called at any time."""

    def is_running(self) -> bool:
        """False if the cluster as a whole has ended; single nodes may be dead."""

    def nodes(self) -> list[Node]:
        """Every node."""

    def bootstrap(self) -> str:
        """host:port,... for clients: the proxies, where there are any. That of a secure cluster
        is a `SecuredAddress` of the lab's own user, and so is each node's listener."""

    def kill(self, name: str) -> None:
        """SIGKILL."""

    def pause(self, name: str) -> None:
        """SIGSTOP."""

    def resume(self, name: str) -> None:
        """SIGCONT."""

    def stop_node(self, name: str) -> None:
        """SIGTERM; returns when the node has ended."""

    def restart(self, name: str) -> None:
        """Start a dead node on its old disk; returns when its process runs."""

    def wipe(self, name: str) -> None:
        """Empty the disk of a dead node, so that `restart` begins with an empty one."""

    def died_unasked(self) -> list[str]:
        """Nodes that died although no fault killed them."""

    @property
    def fault_boards(self) -> Mapping[str, FaultBoard]:
        """Node -> the board by which its disk and clock get faults; empty without that."""

    def may_die(self, name: str) -> None:
        """From now on, a death of the node is the work of a fault of its disk."""

    def must_live(self, name: str) -> None:
        """The end of `may_die`."""

    def log_tail(self, name: str = "") -> str:
        """The end of a node's log; without a name the end of the cluster's."""

    def quorum_witnesses(self) -> list[str]:
        """Names of the nodes that can be asked about the quorum now: neither dead nor paused."""

    def quorum_status(self, name: str) -> QuorumStatus:
        """A node's own view of the quorum, asked without proxies. Raises NotObservable when it
        gives no answer."""

    def controller_listener(self, name: str) -> tuple[str, int]:
        """Host and port of a controller as a voter set has them, by which nodes find it."""

    def export_metadata(self, directory: str, *, timeout_s: float) -> str:
        """Copy the metadata log into a folder; returns a sentence that says what was copied.

        Raises NotObservable, OSError, and KvorumError for metadata that cannot be read.
        """


def node_named(system: System, name: str) -> Node:
    """The node of that name. Raises KvorumError."""
    for node in system.nodes():
        if node.name == name:
            return node
    known = ", ".join(node.name for node in system.nodes())
    raise KvorumError(f"no node is named {name!r} (nodes: {known})")


def running_brokers(system: System) -> list[Node]:
    """The brokers that are neither dead nor paused."""
    return [
        node
        for node in system.nodes()
        if node.name in system.plan.brokers
        and node.state == RUNNING
        and node.name not in system.paused
    ]


def name_of(system: System, node_id: int) -> str | None:
    """The name of the node with that id."""
    for node in system.nodes():
        if node.node_id == node_id:
            return node.name
    return None


def newest_status(system: System) -> QuorumStatus:
    """The answer with the highest epoch among the nodes that know a leader. Raises NotObservable.

    A controller that is cut off may still name itself as leader, but with a lower epoch.
    """
    reasons: list[str] = []

    def ask(name: str) -> QuorumStatus | None:
        try:
            return system.quorum_status(name)
        except NotObservable as error:
            reasons.append(str(error))
            return None

    names = system.quorum_witnesses()
    # All nodes are asked at once: one that hangs must not delay the fault that waits for this.
    with ThreadPoolExecutor(max_workers=max(1, len(names))) as pool:
        answers = list(pool.map(ask, names))
    led = [answer for answer in answers if answer is not None and answer.leader_id >= 0]
    if not led:
        raise NotObservable("no controller knows a leader: " + "; ".join(reasons))
    return max(led, key=lambda answer: answer.leader_epoch)


def active_controller(system: System) -> str:
    """The name of the node that leads the quorum. Raises NotObservable."""
    status = newest_status(system)
    name = name_of(system, status.leader_id)
    if name is None:
        raise NotObservable(f"the quorum's leader {status.leader_id} is no node of this cluster")
    return name
