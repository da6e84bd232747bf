"""The layout of a cluster on one machine: ids, ports, folders and each node's properties.

Controllers have the ids 1, 2, ...; brokers 101, 102, ... Pure, except for `read_links`,
`reserve_ports`, the functions that check directories, ports and nodes, and `plan_cluster`, which
looks at its data directory.
"""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvorum.launch.cluster_file import FILE_NAME, ClusterFile, read_cluster_file
from kvorum.launch.identity import LOCK_NAME, check_owner, is_locked
from kvorum.launch.kafka_properties import reject_unknown, with_bound_names
from kvorum.launch.listeners import of_listeners
from kvorum.launch.properties import broker_config, controller_config
from kvorum.launch.property_classes import (
    BROKER_CLASSES,
    BROKER_NAMES,
    CONTROLLER_CLASSES,
    CONTROLLER_NAMES,
    settings_for,
)
from kvorum.launch.secure_plan import (
    CLIENTS,
    FOLDER,
    NODES,
    NODES_PORT_SHIFT,
    security_properties,
    with_security,
)
from kvorum.runtime.config import bind
from kvorum.runtime.disk import OsDisk
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.fault_board import FaultBoard
from kvorum.runtime.ids import new_uuid, uuid_text

HOST = "127.0.0.1"
BROKER_ID_BASE = 100
CONTROLLER_PORT_SHIFT = 100
COUNT = 3
"""Controllers, and brokers, of a new cluster."""
NODES_MAX = 99
PORT_MAX = 65_535
LOGS_FOLDER = "logs"

GIVEN_BY_THE_PLAN = (
    "node.id",
    "cluster.id",
    "listeners",
    "advertised.listeners",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "log.dirs",
    "peer.address.overrides",
)
"""Properties that the plan sets for each node; a caller may not set them for all nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Addresses to use instead of the nodes' own, as with proxies.

    advertised: node name to the host:port that clients get. peers: node name to (peer name to
        host:port), for its connections to peers. metrics: node name to the host:port of its
        Prometheus page; no entry, no page. fault_boards: node name to the file by which the chaos
        lab gives its disk and clock faults; no entry, no faults.
    """

    advertised: Mapping[str, str]
    peers: Mapping[str, Mapping[str, str]]
    metrics: Mapping[str, str]
    fault_boards: Mapping[str, str] = field(default_factory=dict)


NO_LINKS = Links(advertised={}, peers={}, metrics={})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """One node to start. role: controller or broker. fault_board: see `Links`; empty for none."""

    name: str
    node_id: int
    role: str
    port: int
    advertised: str
    directory: str
    log_file: str
    properties: dict[str, Any]
    fault_board: str = ""
    nodes_port: int = 0
    """Port of a broker's inter-broker listener; 0 if the broker has one listener for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """A whole cluster. is_new: its data directory is still empty. voters: the number of controllers
    in the first voter set, which can change; 0 for a static set of all of them. is_secure: see
    launch.secure_plan."""

    cluster_id: str
    data_dir: str
    nodes: tuple[NodePlan, ...]
    is_new: bool
    voters: int = 0
    is_secure: bool = False

    @property
    def brokers(self) -> tuple[NodePlan, ...]:
        return tuple(node for node in self.nodes if node.role == "broker")

    @property
    def bootstrap(self) -> str:
        return ",".join(node.advertised for node in self.brokers)

    @property
    def bootstrap_controller(self) -> str:
        return ",".join(n.advertised for n in self.nodes if n.role == "controller")


def plan_cluster(
    *,
    controllers: int,
    brokers: int,
    data_dir: str,
    port: int,
    controller_port: int | None = None,
    voters: int | None = None,
    racks: int = 0,
    is_secure: bool = False,
    settings: Mapping[str, str] | None = None,
    links: Links = NO_LINKS,
    free_ports: Sequence[int] = (),
    rng: random.Random | None = None,
) -> ClusterPlan:
    """Plan a new cluster in data_dir, or the one that exists there.

    port, controller_port: of the first broker and controller. If 0, the ports come from free_ports,
        which must be enough.
    voters: so many controllers, the first ones, vote at the start, in a set that can change
        (KIP-853); 0 for a static voter set of all controllers. None: as the cluster was made, and 0
        for a new one.
    racks: the number of racks, to which the brokers are assigned in turn; 0 for none.
    is_secure: with TLS, users and ACLs (launch.secure_plan). A cluster that exists stays as it was
        made. The voters of a secure one can change.
    settings: properties for every node that knows them. A property that no node knows, or that the
        plan sets itself, is an error.

    Raises ConfigError for invalid input.
    """
    settings = dict(settings or {})
    _check_counts(controllers, brokers)
    _check_voters(voters, controllers)
    _check_settings(settings, racks=racks)
    data_dir = os.path.abspath(data_dir)
    known = check_directory(data_dir)
    if known is not None:
        _check_shape(data_dir, known, (controllers, brokers), voters)
        _check_security(data_dir, known, is_secure=is_secure)
        cluster_id, voters, is_secure = known.cluster_id, known.voters, known.is_secure
    else:
        if is_secure:
            voters = voters or controllers
        cluster_id = uuid_text(new_uuid(rng or random.SystemRandom()))
    free = iter(free_ports)
    first_ports = (_first_controller_port(port, controller_port), port)
    ids, ports = _ids_and_ports((controllers, brokers), first_ports, free)
    of_brokers = [name for name in ids if is_secure and name.startswith("broker-")]
    nodes_ports = {n: ports[n] + NODES_PORT_SHIFT if port else next(free) for n in of_brokers}
    layout = _Layout(
        data_dir=data_dir,
        ports=ports,
        links=links,
        ids=ids,
        racks=racks,
        is_secure=is_secure,
        nodes_ports=nodes_ports,
    )
    static = {} if voters else {"controller.quorum.voters": layout.voters()}
    common = {"cluster.id": cluster_id, **static, **_defaults(brokers), **settings}
    return ClusterPlan(
        cluster_id=cluster_id,
        data_dir=data_dir,
        nodes=tuple(_plan_node(name, layout, common) for name in layout.ids),
        is_new=known is None,
        voters=voters or 0,
        is_secure=is_secure,
    )


def node_count(known: ClusterFile | None, role: str, asked: int | None) -> int:
    """How many controllers or brokers to plan. asked: None for as many as a known cluster has, and
    COUNT in a new one."""
    if asked is not None:
        return asked
    return COUNT if known is None else known.count(role)


def _ids_and_ports(
    counts: tuple[int, int], first_ports: tuple[int, int], free: Iterator[int]
) -> tuple[dict[str, int], dict[str, int]]:
    """Ids and ports by node name. counts, first_ports: of controllers and of brokers; a first port
    of 0 takes free ones."""
    ids, ports = {}, {}
    roles = (("controller", 0), ("broker", BROKER_ID_BASE))
    for (role, id_base), count, first in zip(roles, counts, first_ports, strict=True):
        for at in range(count):
            name = f"{role}-{id_base + at + 1}"
            ids[name] = id_base + at + 1
            ports[name] = first + at if first else next(free)
    return ids, ports


def reserve_ports(
    *,
    controllers: int,
    brokers: int,
    port: int,
    controller_port: int | None,
    is_secure: bool = False,
) -> list[socket.socket]:
    """A bound socket for each listener without a fixed port, for `plan_cluster`.

    No other process gets these ports until the sockets are closed. The sockets do not listen, so
    the nodes can. Raises ConfigError for invalid counts.
    """
    _check_counts(controllers, brokers)
    listeners = 2 if is_secure else 1
    count = listeners * brokers if port == 0 else 0
    count += controllers if _first_controller_port(port, controller_port) == 0 else 0
    reserved = []
    for _ in range(count):
        guard = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        guard.bind((HOST, 0))
        # Set this after bind: the kernel may give one port to two sockets that both had it before.
        guard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.append(guard)
    return reserved


def _first_controller_port(port: int, controller_port: int | None) -> int:
    """The first controller's port; 0 means any free ports."""
    if controller_port is not None:
        return controller_port
    return port + CONTROLLER_PORT_SHIFT if port else 0


def internal_topic_factors(brokers: int) -> dict[str, str]:
    """Replication settings of the internal topics, for this number of brokers.

    Kafka's defaults require three replicas, which fewer brokers can never hold.
    """
    factor = str(min(brokers, 3))
    return {
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        # With two replicas and a minimum of 2, the loss of a broker would stop all transactions.
        "transaction.state.log.min.isr": "2" if brokers >= 3 else "1",
        "metadata.events.topic.replication.factor": factor,
        "metadata.events.topic.min.isr": "2" if brokers >= 3 else "1",
    }


#: For a cluster to try things on, without a wait of three seconds for a group's second consumer;
#: Kafka's quickstart has the same setting.
DEV_SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


def read_links(path: str) -> Links:
    """The links file: {node name: {"advertised": address, "peers": {peer name: address},
    "metrics": address, "fault_board": path}}; each part may be missing."""
    try:
        with open(path, encoding="utf-8") as file:
            fields = json.load(file)
        return Links(
            advertised={n: f["advertised"] for n, f in fields.items() if "advertised" in f},
            peers={n: dict(f.get("peers", {})) for n, f in fields.items()},
            metrics={n: f["metrics"] for n, f in fields.items() if "metrics" in f},
            fault_boards={n: f["fault_board"] for n, f in fields.items() if "fault_board" in f},
        )
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f"{path} is not a links file: {error}") from error


def check_ports(plan: ClusterPlan) -> None:
    """Raise ConfigError for a port above PORT_MAX, for one that two nodes would get, or with every
    port that cannot be bound now."""
    taken = []
    users: dict[int, str] = {}
    listeners = [(node, node.port) for node in plan.nodes]
    listeners += [(node, node.nodes_port) for node in plan.nodes if node.nodes_port]
    for node, port in listeners:
        if port > PORT_MAX:
            raise ConfigError(
                f"{node.name} would get port {port}, above {PORT_MAX}; choose a lower --port or "
                "--controller-port"
            )
        other = users.setdefault(port, node.name)
        if other != node.name:
            raise ConfigError(
                f"{other} and {node.name} would both get port {port}; move --controller-port"
            )
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
                probe.listen(1)
            except OSError as error:
                taken.append(f"{HOST}:{port} for {node.name} ({error.strerror})")
    if taken:
        raise ConfigError("cannot listen on " + ", ".join(taken) + "; choose others with --port")


def check_directory(data_dir: str) -> ClusterFile | None:
    """The cluster in data_dir; None if the directory is empty.

    Raises ConfigError if the directory has other content, cannot be written, or is in use.
    """
    try:
        os.makedirs(data_dir, exist_ok=True)
        names = os.listdir(data_dir)
    except OSError as error:
        raise ConfigError(
            f"cannot use data directory {data_dir}: {error.strerror}; name another with --data-dir"
        ) from error
    if not os.access(data_dir, os.W_OK | os.X_OK):
        raise ConfigError(f"cannot write to data directory {data_dir}: permission denied")
    known = read_cluster_file(data_dir)
    # The lock decides, and not the pid in the file, which another process may have by now.
    if is_locked(data_dir):
        holder = f" (launcher pid {known.launcher_pid})" if known is not None else ""
        raise ConfigError(
            f"a cluster is already running in {data_dir}{holder}; "
            "stop it or choose another directory"
        )
    if known is None:
        names = [name for name in names if name != LOCK_NAME]
        if names:
            raise ConfigError(
                f"{data_dir} is not empty and holds no {FILE_NAME} (it holds "
                f"{sorted(names)[0]!r}): it is not a Kvorum data directory; choose an empty one"
            )
        return None
    return known


def check_nodes(plan: ClusterPlan) -> None:
    """Raise ConfigError for a node that would refuse to start, for its properties, its fault board
    or its directory."""
    disk = OsDisk()
    for node in plan.nodes:
        check = controller_config if node.role == "controller" else broker_config
        check(node.properties)
        if node.fault_board:
            FaultBoard(node.fault_board).close()
        check_owner(disk, node.directory, node_id=node.node_id, cluster_id=plan.cluster_id)


def check_settings(settings: Mapping[str, str], *, brokers: int) -> None:
    """Raise ConfigError for settings with which a node of a new cluster would refuse to start.

    No data directory is needed.
    """
    _check_settings(settings)
    ids = {"controller-1": 1, f"broker-{BROKER_ID_BASE + 1}": BROKER_ID_BASE + 1}
    layout = _Layout(data_dir=os.sep, ports=dict.fromkeys(ids, 1), links=NO_LINKS, ids=ids)
    common = {
        "cluster.id": uuid_text(new_uuid(random.Random(0))),
        "controller.quorum.voters": layout.voters(),
        **_defaults(brokers),
        **settings,
    }
    for name, check in zip(ids, (controller_config, broker_config), strict=True):
        check(_plan_node(name, layout, common).properties)


def _defaults(brokers: int) -> dict[str, str]:
    """The settings of a cluster on one machine, unless they are given."""
    return {
        **internal_topic_factors(brokers),
        # A topic that a client creates should survive the loss of a broker, as offsets do.
        "default.replication.factor": str(min(brokers, 3)),
        **DEV_SETTINGS,
    }


def _check_counts(controllers: int, brokers: int) -> None:
    for name, count in (("controllers", controllers), ("brokers", brokers)):
        if not 1 <= count <= NODES_MAX:
            raise ConfigError(f"--{name}={count} must lie between 1 and {NODES_MAX}")


def _check_voters(voters: int | None, controllers: int) -> None:
    if voters is not None and not 0 <= voters <= controllers:
        raise ConfigError(f"--voters={voters} must lie between 0 and --controllers={controllers}")


def _check_settings(settings: Mapping[str, str], *, racks: int = 0) -> None:
    if racks and "broker.rack" in settings:
        raise ConfigError("give racks or broker.rack, not both")
    for name in settings:
        if name in GIVEN_BY_THE_PLAN:
            raise ConfigError(f"{name!r} is decided by the launcher and cannot be set")
    reject_unknown(settings, CONTROLLER_NAMES | BROKER_NAMES | of_listeners(settings))
    needed = {"node.id": 0, "cluster.id": "", "listeners": "", "log.dirs": ""}
    needed["controller.quorum.voters"] = ""
    for cls in {*CONTROLLER_CLASSES, *BROKER_CLASSES}:
        bind(cls, {**needed, **with_bound_names(settings)})


def _check_shape(
    data_dir: str, known: ClusterFile, counts: tuple[int, int], voters: int | None
) -> None:
    """Raise ConfigError for numbers that do not fit the existing cluster. counts: of controllers
    and of brokers."""
    controllers, brokers = counts
    had = known.count("controller"), known.count("broker")
    if had[0] != controllers:
        raise ConfigError(
            f"the cluster in {data_dir} has {had[0]} controllers, not {controllers}; start it with "
            f"--controllers {had[0]}, or make another cluster in an empty directory"
        )
    if had[1] > brokers:
        raise ConfigError(
            f"the cluster in {data_dir} has {had[1]} brokers; starting only {brokers} would "
            f"leave replicas without a home; start it with --brokers {had[1]} or more"
        )
    if voters is not None and voters != known.voters:
        raise ConfigError(
            f"the cluster in {data_dir} was made with {_voters_text(known.voters)}, not with "
            f"{_voters_text(voters)}; start it without --voters, or make another cluster in an "
            "empty directory"
        )


def _check_security(data_dir: str, known: ClusterFile, *, is_secure: bool) -> None:
    if is_secure and not known.is_secure:
        raise ConfigError(
            f"the cluster in {data_dir} was made without --secure; start it without, or make "
            "another one in an empty directory"
        )


def _voters_text(voters: int) -> str:
    return f"--voters {voters}" if voters else "--voters 0 (a voter set that cannot change)"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Ports and ids of all nodes by node name; each node's plan refers to those of its peers."""

    data_dir: str
    ports: Mapping[str, int]
    links: Links
    ids: Mapping[str, int]
    racks: int = 0
    is_secure: bool = False
    nodes_ports: Mapping[str, int] = field(default_factory=dict)

    def voters(self) -> str:
        """The static voter set of all controllers."""
        return ",".join(
            f"{self.ids[name]}@{HOST}:{self.ports[name]}" for name in self.controllers()
        )

    def bootstrap_servers(self, name: str) -> str:
        """The other controllers, at the addresses that this node uses for them, so that no request
        bypasses a proxy; the only controller names itself."""
        others = [other for other in self.controllers() if other != name] or [name]
        peers = self.links.peers.get(name, {})
        return ",".join(peers.get(other, f"{HOST}:{self.ports[other]}") for other in others)

    def controllers(self) -> list[str]:
        return [name for name in self.ids if name.startswith("controller-")]


def _plan_node(name: str, layout: _Layout, properties: Mapping[str, str]) -> NodePlan:
    role = name.partition("-")[0]
    node_id, port = layout.ids[name], layout.ports[name]
    address = f"{HOST}:{port}"
    listener = "CONTROLLER" if role == "controller" else "PLAINTEXT"
    nodes_port, of_nodes = layout.nodes_ports.get(name, 0), ""
    if nodes_port:
        listener, of_nodes = CLIENTS, f",{NODES}://{HOST}:{nodes_port}"
    directory = os.path.join(layout.data_dir, name)
    own = settings_for(role, properties) | {
        "node.id": node_id,
        "listeners": f"{listener}://{address}{of_nodes}",
        "log.dirs": directory,
    }
    if layout.is_secure:
        folder = os.path.join(layout.data_dir, FOLDER)
        own = with_security(own, security_properties(folder, name, list(layout.ids)))
    if role == "broker" and layout.racks:
        own["broker.rack"] = f"rack-{(node_id - BROKER_ID_BASE - 1) % layout.racks + 1}"
    if "controller.quorum.voters" not in properties:
        own["controller.quorum.bootstrap.servers"] = layout.bootstrap_servers(name)
    advertised = layout.links.advertised.get(name, address)
    if advertised != address:
        own["advertised.listeners"] = f"{listener}://{advertised}{of_nodes}"
    peers = layout.links.peers.get(name, {})
    unknown = sorted(set(peers) - set(layout.ids))
    if unknown:
        raise ConfigError(f"links of {name} name unknown nodes: {', '.join(unknown)}")
    if peers:
        own["peer.address.overrides"] = ",".join(f"{layout.ids[p]}={a}" for p, a in peers.items())
    if name in layout.links.metrics:
        own["metrics.listener"] = f"HTTP://{layout.links.metrics[name]}"
    return NodePlan(
        name=name,
        node_id=node_id,
        role=role,
        port=port,
        advertised=advertised,
        directory=directory,
        log_file=os.path.join(layout.data_dir, LOGS_FOLDER, f"{name}.log"),
        properties=own,
        fault_board=layout.links.fault_boards.get(name, ""),
        nodes_port=nodes_port,
    )
