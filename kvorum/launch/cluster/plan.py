"""The layout of a cluster on one machine: ids, ports, folders and each node's properties.

Controllers have the ids 1, 2, ...; brokers 101, 102, ... Pure: `this_machine` looks at the
directory, the ports and the files.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kvorum.launch.cluster.cluster_file import ClusterFile
from kvorum.launch.cluster.secure_plan import (
    CLIENTS,
    FOLDER,
    NODES,
    NODES_PORT_SHIFT,
    security_properties,
    with_security,
)
from kvorum.launch.config.kafka_properties import reject_unknown, with_bound_names
from kvorum.launch.config.listeners import of_listeners
from kvorum.launch.config.properties import broker_config, controller_config
from kvorum.launch.config.property_classes import (
    BROKER_CLASSES,
    BROKER_NAMES,
    CONTROLLER_CLASSES,
    CONTROLLER_NAMES,
    settings_for,
)
from kvorum.runtime.config import bind
from kvorum.runtime.errors import ConfigError
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
class ProxyLinks:
    """Addresses to use instead of the nodes' own, as with proxies.

    advertised: node name to the host:port that clients get.
    peers: node name to (peer name to host:port), for its connections to peers.
    metrics: node name to the host:port of its Prometheus page; no entry, no page.
    fault_boards: node name to the file by which the chaos lab gives its disk and clock faults; no
        entry, no faults.
    """

    advertised: Mapping[str, str]
    peers: Mapping[str, Mapping[str, str]]
    metrics: Mapping[str, str]
    fault_boards: Mapping[str, str] = field(default_factory=dict)


NO_LINKS = ProxyLinks(advertised={}, peers={}, metrics={})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """One node to start.

    role: controller or broker.
    metrics: host:port of its page of metrics; empty for none.
    fault_board: see `ProxyLinks`; empty for none.
    """

    name: str
    node_id: int
    role: str
    port: int
    advertised: str
    directory: str
    log_file: str
    properties: dict[str, Any]
    metrics: str = ""
    fault_board: str = ""
    nodes_port: int = 0
    """Port of a broker's inter-broker listener; 0 if the broker has one listener for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """A whole cluster.

    is_new: its data directory is still empty.
    voters: the number of controllers in the first voter set, which can change; 0 for a static set
        of all of them.
    is_secure: see launch.cluster.secure_plan.
    """

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


def lay_out(
    *,
    controllers: int,
    brokers: int,
    data_dir: str,
    port: int,
    known: ClusterFile | None,
    new_id: str,
    controller_port: int | None = None,
    metrics_port: int | None = None,
    voters: int | None = None,
    racks: int = 0,
    is_secure: bool = False,
    settings: Mapping[str, str] | None = None,
    links: ProxyLinks = NO_LINKS,
    free_ports: Sequence[int] = (),
) -> ClusterPlan:
    """Plan a new cluster in data_dir, which is an absolute path, or the known one there.

    port, controller_port: of the first broker and controller. If 0, the ports come from free_ports,
        which must be enough.
    metrics_port: of the first controller's page of metrics, the other nodes follow; 0 as above.
        None: no pages, but for those of links.
    known: the cluster in data_dir; None if there is none.
    new_id: the cluster id if there is none.
    voters: so many controllers, the first ones, vote at the start, in a set that can change
        (KIP-853); 0 for a static voter set of all controllers. None: as the cluster was made, and 0
        for a new one.
    racks: the number of racks, to which the brokers are assigned in turn; 0 for none.
    is_secure: with TLS, users and ACLs (`secure_plan`). A cluster that exists stays as it was made.
        The voters of a secure one can change.
    settings: properties for every node that knows them.

    What is asked for has passed `check_request`. Raises ConfigError for what does not fit the known
    cluster, and for unknown nodes in links.
    """
    cluster_id = new_id
    if known is not None:
        _check_shape(data_dir, known, (controllers, brokers), voters)
        _check_security(data_dir, known, is_secure=is_secure)
        cluster_id, voters, is_secure = known.cluster_id, known.voters, known.is_secure
    elif is_secure:
        voters = voters or controllers
    free = iter(free_ports)
    first_ports = (first_controller_port(port, controller_port), port)
    ids, ports = _ids_and_ports((controllers, brokers), first_ports, free)
    of_brokers = [name for name in ids if is_secure and name.startswith("broker-")]
    nodes_ports = {n: ports[n] + NODES_PORT_SHIFT if port else next(free) for n in of_brokers}
    layout = _Layout(
        data_dir=data_dir,
        ports=ports,
        links=links if metrics_port is None else _with_pages(links, list(ids), metrics_port, free),
        ids=ids,
        racks=racks,
        is_secure=is_secure,
        nodes_ports=nodes_ports,
    )
    static = {} if voters else {"controller.quorum.voters": layout.voters()}
    common = {"cluster.id": cluster_id, **static, **_defaults(brokers), **(settings or {})}
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


def _with_pages(
    links: ProxyLinks, names: Sequence[str], first_port: int, free: Iterator[int]
) -> ProxyLinks:
    """The links with a page of metrics for each of these nodes, unless they have it."""
    ports = (first_port + at if first_port else next(free) for at in range(len(names)))
    pages = {name: f"{HOST}:{port}" for name, port in zip(names, ports, strict=True)}
    return replace(links, metrics={**pages, **links.metrics})


def first_controller_port(port: int, controller_port: int | None) -> int:
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
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": "2" if brokers >= 3 else "1",
        "metadata.events.topic.replication.factor": factor,
        "metadata.events.topic.min.isr": "2" if brokers >= 3 else "1",
    }


#: For a cluster to try things on, without a wait of three seconds for a group's second consumer;
#: Kafka's quickstart has the same setting.
DEV_SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


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


def check_request(
    controllers: int,
    brokers: int,
    *,
    voters: int | None,
    settings: Mapping[str, str],
    racks: int,
    metrics_port: int | None = None,
) -> None:
    """Raise ConfigError for numbers out of range, and for a property that no node knows or that the
    plan sets itself."""
    check_counts(controllers, brokers)
    if voters is not None and not 0 <= voters <= controllers:
        raise ConfigError(f"--voters={voters} must lie between 0 and --controllers={controllers}")
    if metrics_port is not None and "metrics.listener" in settings:
        raise ConfigError("give --metrics-port or --set metrics.listener, not both")
    _check_settings(settings, racks=racks)


def check_counts(controllers: int, brokers: int) -> None:
    """Raise ConfigError for counts out of range."""
    for name, count in (("controllers", controllers), ("brokers", brokers)):
        if not 1 <= count <= NODES_MAX:
            raise ConfigError(f"--{name}={count} must lie between 1 and {NODES_MAX}")


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
    links: ProxyLinks
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
    metrics = layout.links.metrics.get(name, "")
    if metrics:
        own["metrics.listener"] = f"HTTP://{metrics}"
    return NodePlan(
        name=name,
        node_id=node_id,
        role=role,
        port=port,
        advertised=advertised,
        directory=directory,
        log_file=os.path.join(layout.data_dir, LOGS_FOLDER, f"{name}.log"),
        properties=own,
        metrics=metrics,
        fault_board=layout.links.fault_boards.get(name, ""),
        nodes_port=nodes_port,
    )
