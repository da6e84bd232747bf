"""The nodes of an Apache Kafka cluster, their links and their files. Pure.

A Kafka node cannot be told another address for each peer. Each JVM therefore gets its own hosts
file (`jdk.net.hosts.file`): node S finds the peer T at 127.1.S.T, where toxiproxy listens on T's
port. So each directed link has its own proxy, and neither root nor a change of Kafka is needed.
Brokers have two listeners: CLIENTS, which advertises the proxy in front of it, and INTERNAL for
brokers. Controllers have one, CONTROLLER. Addresses within 127.0.0.0/8 need Linux.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from kvorum.chaos.live.host.links import Link, LinkPlan
from kvorum.chaos.targets import CLIENTS, FIRST_BROKER_ID
from kvorum.launch.config.property_classes import CONTROLLER

HOST = "127.0.0.1"
_INTERNAL = "INTERNAL"
_CLIENTS = "CLIENTS"

#: Properties that the plan decides, or whose change would take a node out of its proxies.
OWN_PROPERTIES = frozenset(
    {
        "advertised.listeners",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "early.start.listeners",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
        "security.inter.broker.protocol",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaNode:
    """One node.

    port: of the listener CONTROLLER or INTERNAL.
    client_port: of the listener CLIENTS, None on a controller.
    """

    name: str
    node_id: int
    port: int
    client_port: int | None

    @property
    def is_controller(self) -> bool:
        return self.client_port is None

    @property
    def listener(self) -> str:
        """host:port at which a client reaches the node without a proxy."""
        return f"{HOST}:{self.client_port or self.port}"


def port_count(controllers: int, brokers: int) -> int:
    """Consecutive ports that a plan needs: listeners, and the clients' proxies."""
    return controllers + 3 * brokers


def plan_nodes(controllers: int, brokers: int, *, first_port: int) -> list[KafkaNode]:
    """The nodes by the names and ids that Kvorum's have too."""
    nodes = [
        KafkaNode(
            name=f"controller-{at + 1}", node_id=at + 1, port=first_port + at, client_port=None
        )
        for at in range(controllers)
    ]
    first_port += controllers
    nodes += [
        KafkaNode(
            name=f"broker-{FIRST_BROKER_ID + at}",
            node_id=FIRST_BROKER_ID + at,
            port=first_port + at,
            client_port=first_port + brokers + at,
        )
        for at in range(brokers)
    ]
    return nodes


def plan_kafka_links(nodes: Sequence[KafkaNode], *, first_proxy_port: int) -> LinkPlan:
    """One link from clients to each broker, and one for each direction in which nodes connect."""
    controllers = [node for node in nodes if node.is_controller]
    brokers = [node for node in nodes if not node.is_controller]
    links = [
        Link(
            source=CLIENTS,
            destination=broker.name,
            listen=f"{HOST}:{first_proxy_port + at}",
            upstream=broker.listener,
        )
        for at, broker in enumerate(brokers)
    ]
    pairs = [(source, target) for source in controllers for target in controllers]
    pairs += [(source, target) for source in brokers for target in nodes]
    links += [
        Link(
            source=source.name,
            destination=target.name,
            listen=f"{_proxy_host(source, target)}:{target.port}",
            upstream=f"{HOST}:{target.port}",
        )
        for source, target in pairs
        if source is not target
    ]
    return LinkPlan(
        controllers=tuple(node.name for node in controllers),
        brokers=tuple(node.name for node in brokers),
        links=tuple(links),
    )


def hosts_file(nodes: Sequence[KafkaNode], source: KafkaNode, *, machine: str) -> str:
    """The names that one JVM knows: its peers behind their proxies, and itself.

    machine: the host's own name, which a JVM looks up when it starts.
    """
    lines = [f"{HOST} localhost", f"{HOST} {source.name}"]
    if machine != "localhost":
        lines.append(f"{HOST} {machine}")
    lines += [f"{_proxy_host(source, node)} {node.name}" for node in nodes if node is not source]
    return "".join(f"{line}\n" for line in lines)


def properties_of(
    node: KafkaNode,
    nodes: Sequence[KafkaNode],
    plan: LinkPlan,
    *,
    data_dir: str,
    settings: Mapping[str, str],
    is_dynamic: bool = False,
) -> dict[str, str]:
    """server.properties of one node. Every other setting has Kafka's own default.

    is_dynamic: the voter set can change (KIP-853), and is on the controllers' disks.
    """
    brokers = sum(not other.is_controller for other in nodes)
    copies = str(min(3, brokers))
    in_sync = str(min(2, brokers))
    voters = [f"{n.node_id}@{n.name}:{n.port}" for n in nodes if n.is_controller]
    servers = [f"{n.name}:{n.port}" for n in nodes if n.is_controller]
    properties = {
        "process.roles": "controller" if node.is_controller else "broker",
        "node.id": str(node.node_id),
        **(
            {"controller.quorum.bootstrap.servers": ",".join(servers)}
            if is_dynamic
            else {"controller.quorum.voters": ",".join(voters)}
        ),
        "controller.listener.names": CONTROLLER,
        "listener.security.protocol.map": (
            f"{CONTROLLER}:PLAINTEXT,{_INTERNAL}:PLAINTEXT,{_CLIENTS}:PLAINTEXT"
        ),
        "log.dirs": data_dir,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
    }
    if node.is_controller:
        properties["listeners"] = f"{CONTROLLER}://{HOST}:{node.port}"
        # The default would be the address that it binds, which leads past every proxy.
        properties["advertised.listeners"] = f"{CONTROLLER}://{node.name}:{node.port}"
    else:
        client_link = plan.link(CLIENTS, node.name)
        advertised = client_link.listen if client_link is not None else node.listener
        properties |= {
            "listeners": f"{_INTERNAL}://{HOST}:{node.port},{_CLIENTS}://{node.listener}",
            "advertised.listeners": (
                f"{_INTERNAL}://{node.name}:{node.port},{_CLIENTS}://{advertised}"
            ),
            "inter.broker.listener.name": _INTERNAL,
        }
    return properties | dict(settings)


def refused_settings(settings: Sequence[tuple[str, str]], known: frozenset[str]) -> list[str]:
    """One sentence for each setting that Kafka's server.properties cannot have here.

    known: the names of Kafka's broker configs. Kafka itself only warns of a name that it does not
    know, and then runs another experiment than the one in the file.
    """
    problems = []
    for key, _ in settings:
        if key in OWN_PROPERTIES:
            problems.append(f"setting {key!r} is decided by the run itself; remove it")
        elif key not in known:
            near = get_close_matches(key, sorted(known), n=1)
            hint = f"did you mean {near[0]!r}?" if near else "remove it for this system"
            problems.append(f"setting {key!r} is no broker config of Apache Kafka; {hint}")
    return problems


def _proxy_host(source: KafkaNode, target: KafkaNode) -> str:
    return f"127.1.{source.node_id}.{target.node_id}"
