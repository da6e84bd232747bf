"""From the word after `--system` to a running system behind its proxies."""

from __future__ import annotations

import dataclasses
import random
import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kvorum.chaos.experiment_file.experiment import Configuration
from kvorum.chaos.live.host.links import link_count, plan_links
from kvorum.chaos.live.host.packet_filter import PacketFilter, why_no_packet_loss
from kvorum.chaos.live.host.processes import free_ports
from kvorum.chaos.live.host.toxiproxy import Toxiproxy
from kvorum.chaos.live.host.toxiproxy_server import ToxiproxyServer
from kvorum.chaos.live.systems.attached import AttachedSystem, SharedToxiproxy, attached_plan
from kvorum.chaos.live.systems.attached_file import AttachedFile, parse_attached_file
from kvorum.chaos.live.systems.capabilities import (
    KAFKA_CAPABILITIES,
    KVORUM_CAPABILITIES,
    OF_FAULT_BOARDS,
)
from kvorum.chaos.live.systems.kafka import KafkaSystem
from kvorum.chaos.live.systems.kafka_jars import (
    find_java,
    find_library,
    library_version,
)
from kvorum.chaos.live.systems.kafka_plan import port_count
from kvorum.chaos.live.systems.kvorum import KvorumSystem, kvorum_version
from kvorum.chaos.live.systems.protocol import Capability, ClusterShape, System
from kvorum.chaos.live.systems.shim import NoShim, shim_library
from kvorum.client.security import NONE, ClientSecurity, read_properties, security_of
from kvorum.launch.cluster.secure_plan import NODES_PORT_SHIFT
from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.errors import ConfigError

CLUSTER = "cluster"
LOGS = "logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The security options of a command.

    is_secure: start the cluster with TLS, users and ACLs.
    command_config: a file of Kafka's client properties, for a cluster that runs already.
    """

    is_secure: bool = False
    command_config: str | None = None


NO_ACCESS = Access()


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemChoice:
    """The system that a run will test, before anything is started.

    option: the command's options that name it, for the line that runs the same again.
    library: the folder of Apache Kafka's jars, for Kafka alone.
    attached: the cluster's file, for an attached cluster alone.
    security: of connections to it.
    lacks: the reason for each capability that this machine is known to deny the system; these are
        none of its capabilities.
    shim: the library for faults of a JVM's disk and clock, for Kafka alone.
    """

    name: str
    version: str
    capabilities: frozenset[Capability]
    option: str
    library: Path | None = None
    attached: AttachedFile | None = None
    security: ClientSecurity = NONE
    lacks: Mapping[Capability, str] = field(default_factory=dict)
    shim: Path | None = None

    def denial(self, capability: Capability) -> str | None:
        """The reason why this machine denies the system a capability; None if it does not.

        The capability to lose packets is tried out with nft, so it is tried only when a fault needs
        it.
        """
        if capability is Capability.PACKET_LOSS and capability in self.capabilities:
            return why_no_packet_loss()
        return self.lacks.get(capability)

    @property
    def has_own_toxiproxy(self) -> bool:
        """True if the run starts a toxiproxy server of its own."""
        return self.attached is None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedSystem:
    """A running system, and the toxiproxy in front of it (None without proxies).

    server: the process, if the run has started it.
    packets: loses packets on the links of the run's own proxies; None without them.
    """

    system: System
    toxiproxy: Toxiproxy | None
    toxiproxy_version: str
    server: ToxiproxyServer | None = None
    packets: PacketFilter | None = None


class WarmCluster(Protocol):
    """A running cluster that several runs use one after the other, each with topics of its own. The
    tests of the shipped experiments have one."""

    @property
    def choice(self) -> SystemChoice: ...

    def open(self, configuration: Configuration, *, prefix: str) -> OpenedSystem:
        """The cluster for one run, whose topics begin with the prefix. Raises KvorumError if an
        earlier run left a fault there."""
        ...

    def note_compacted(self, topics: tuple[str, ...]) -> None:
        """Note a run's compacted topics, which are left out when the replicas are compared at the
        cluster's end: two replicas may lack different records."""
        ...


def choose_system(
    text: str,
    *,
    kafka_libs: str | None = None,
    is_owned: bool = False,
    access: Access = NO_ACCESS,
) -> SystemChoice:
    """The system of that name, or of that TOML file. Raises ConfigError, also if its software is
        not there.

    kafka_libs: the folder of Apache Kafka's jars; without it they are looked for.
    is_owned: the user says that an attached cluster may be broken.
    """
    if kafka_libs is not None and text != "kafka":
        raise ConfigError(f"--kafka-libs goes with --system kafka, not with {text!r}")
    if access.is_secure and text != "kvorum":
        raise ConfigError(
            f"--secure goes with --system kvorum, not with {text!r}; for a cluster that runs "
            "already and is secure, give --command-config FILE"
        )
    if text.endswith(".toml"):
        return _choose_attached(text, access.command_config, is_owned=is_owned)
    if access.command_config is not None:
        raise ConfigError(
            f"--command-config goes with --system FILE.toml; {text!r} is started by the run, and "
            "is secure with --secure"
        )
    if is_owned:
        raise ConfigError(
            f"--i-own-this-cluster goes with --system FILE.toml; {text!r} is started by the run"
        )
    if text == "kvorum":
        return SystemChoice(
            name="kvorum",
            version=kvorum_version(),
            capabilities=KVORUM_CAPABILITIES,
            option=" --secure" if access.is_secure else "",
        )
    if text == "kafka":
        return _choose_kafka(kafka_libs)
    raise ConfigError(f"unknown system {text!r}; known: kvorum, kafka, FILE.toml")


def _choose_attached(path: str, command_config: str | None, *, is_owned: bool) -> SystemChoice:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    file = parse_attached_file(path, text)
    if not is_owned:
        raise ConfigError(
            f"{path} describes a cluster that runs already, and an experiment takes its nodes "
            "down; add --i-own-this-cluster if it is yours to break"
        )
    option = f" --system {shlex.quote(path)} --i-own-this-cluster"
    security = NONE
    if command_config is not None:
        security = security_of(read_properties(command_config), command_config)
        option += f" --command-config {shlex.quote(command_config)}"
    return SystemChoice(
        name="attached",
        version=file.version,
        capabilities=file.capabilities,
        option=option,
        attached=file,
        security=security,
    )


def _choose_kafka(kafka_libs: str | None) -> SystemChoice:
    if not sys.platform.startswith("linux"):
        raise ConfigError("the system kafka needs Linux: its proxies listen within 127.0.0.0/8")
    find_java()
    library = find_library(kafka_libs)
    shim = None
    lacks: dict[Capability, str] = {}
    try:
        shim = shim_library()
    except NoShim as error:
        lacks = dict.fromkeys(OF_FAULT_BOARDS, str(error))
    named = f" --kafka-libs {shlex.quote(kafka_libs)}" if kafka_libs is not None else ""
    return SystemChoice(
        name="kafka",
        version=library_version(library),
        capabilities=KAFKA_CAPABILITIES - lacks.keys(),
        option=f" --system kafka{named}",
        library=library,
        lacks=lacks,
        shim=shim,
    )


def configuration_for(
    choice: SystemChoice, configuration: Configuration, access: Access = NO_ACCESS
) -> Configuration:
    """An experiment's configuration, with the security that the command asks for, and with the size
    that an attached cluster has."""
    file = choice.attached
    if file is None:
        return configuration.secured() if access.is_secure else configuration
    return dataclasses.replace(
        configuration, controllers=len(file.controllers), brokers=len(file.brokers)
    )


def open_system(
    stack: ExitStack,
    choice: SystemChoice,
    *,
    shape: ClusterShape,
    run_dir: Path,
    progress: Callable[[str], None],
    with_proxies: bool = True,
    with_metrics: bool = False,
) -> OpenedSystem:
    """Start toxiproxy, the proxies and the cluster, or attach to a cluster; the stack stops all of
        it in reverse order.

    with_proxies: false for Kvorum without toxiproxy, which then has no faults of links.
    with_metrics: every node of Kvorum has a Prometheus page (`KvorumSystem.metrics_addresses`).

    Raises KvorumError if one of them does not start, ConfigError if an attached cluster does not
    fit its file.
    """
    if choice.attached is not None:
        return _attach(stack, choice, choice.attached, run_dir=run_dir, progress=progress)
    if not with_proxies:
        if choice.library is not None:
            raise ConfigError("the system kafka needs its proxies: its nodes find each other there")
        direct = _kvorum(shape, run_dir, with_proxies=False, with_metrics=with_metrics)
        stack.callback(direct.stop)
        direct.start()
        return OpenedSystem(system=direct, toxiproxy=None, toxiproxy_version="")
    # Bound before the plan looks for free ports, so that none of them is chosen twice.
    server = ToxiproxyServer(
        port=free_ports(1, random.Random()), log_file=str(run_dir / LOGS / "toxiproxy.log")
    )
    stack.enter_context(server)
    system = _built(choice, shape, run_dir, with_metrics=with_metrics)
    server.api.populate(system.plan.links)
    progress(f"toxiproxy {server.version}: {len(system.plan.links)} proxies")
    stack.callback(system.stop)
    began_ms = monotonic_ms()
    system.start()
    took_s = (monotonic_ms() - began_ms) / 1000
    progress(
        f"{choice.name} {choice.version}: {shape.controllers} controllers and {shape.brokers} "
        f"brokers ready in {took_s:.2f} s"
    )
    packets = PacketFilter()
    stack.callback(packets.close)
    return OpenedSystem(
        system=system,
        toxiproxy=server.api,
        toxiproxy_version=server.version,
        server=server,
        packets=packets,
    )


def _attach(
    stack: ExitStack,
    choice: SystemChoice,
    file: AttachedFile,
    *,
    run_dir: Path,
    progress: Callable[[str], None],
) -> OpenedSystem:
    toxiproxy: SharedToxiproxy | None = None
    version = ""
    proxies: dict[str, tuple[str, str]] = {}
    if file.toxiproxy:
        host, _, port = file.toxiproxy.rpartition(":")
        toxiproxy = SharedToxiproxy(host, int(port))
        version = toxiproxy.version()
        proxies = toxiproxy.proxies()
    plan = attached_plan(file, proxies)
    if toxiproxy is not None:
        toxiproxy.claim(tuple(link.name for link in plan.links))
    system = AttachedSystem(
        file=file,
        plan=plan,
        toxiproxy=toxiproxy,
        folder=run_dir / "attached",
        security=choice.security,
    )
    stack.callback(system.stop)
    system.start()
    progress(
        f"attached to {file.bootstrap}: {len(file.controllers)} controllers, {len(file.brokers)} "
        f"brokers, at most {file.max_nodes_down} down at once; the dead-man timer heals after "
        f"{file.heal_after_ms / 1000:g} s"
    )
    return OpenedSystem(system=system, toxiproxy=toxiproxy, toxiproxy_version=version)


def _built(
    choice: SystemChoice, shape: ClusterShape, run_dir: Path, *, with_metrics: bool
) -> System:
    if choice.library is None:
        return _kvorum(shape, run_dir, with_proxies=True, with_metrics=with_metrics)
    rng = random.Random()
    return KafkaSystem(
        shape=shape,
        library=choice.library,
        directory=run_dir / CLUSTER,
        log_dir=run_dir / LOGS,
        first_port=free_ports(port_count(shape.controllers, shape.brokers), rng),
        rng=rng,
        shim=choice.shim,
        capabilities=choice.capabilities,
    )


def _kvorum(
    shape: ClusterShape, run_dir: Path, *, with_proxies: bool, with_metrics: bool
) -> KvorumSystem:
    nodes = shape.controllers + shape.brokers
    links = link_count(shape.controllers, shape.brokers)
    # The brokers of a secure cluster have their listeners for brokers there.
    proxies = NODES_PORT_SHIFT + shape.brokers if shape.is_secure else nodes
    count = proxies + links + (nodes if with_metrics else 0)
    # Free ports differ from machine to machine, so they are not drawn from the seed.
    first = free_ports(count, random.Random())
    plan = plan_links(
        shape.controllers,
        shape.brokers,
        client_port=first,
        controller_port=first + shape.brokers,
        proxy_port=first + proxies,
        nodes_port=first + NODES_PORT_SHIFT if shape.is_secure else None,
    )
    if not with_proxies:
        plan = dataclasses.replace(plan, links=())
    return KvorumSystem(
        shape=shape,
        plan=plan,
        metrics_port=first + proxies + links if with_metrics else None,
        data_dir=str(run_dir / CLUSTER),
        log_file=str(run_dir / LOGS / "cluster.log"),
        client_port=first,
        controller_port=first + shape.brokers,
    )
