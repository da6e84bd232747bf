"""From the word after `--system` to a running system behind its proxies."""

from __future__ import annotations

import random
import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from kvorum.chaos.experiment.scenario import Experiment
from kvorum.chaos.live.links import link_count, plan_links
from kvorum.chaos.live.processes import free_ports
from kvorum.chaos.live.systems.capabilities import (
    KAFKA_CAPABILITIES,
    KVORUM_CAPABILITIES,
    missing_capabilities,
)
from kvorum.chaos.live.systems.kafka import KafkaSystem
from kvorum.chaos.live.systems.kafka_jars import (
    broker_config_names,
    find_java,
    find_library,
    library_version,
)
from kvorum.chaos.live.systems.kafka_plan import port_count, refused_settings
from kvorum.chaos.live.systems.kvorum import KvorumSystem, kvorum_version
from kvorum.chaos.live.systems.protocol import Capability, ClusterShape, System
from kvorum.chaos.live.toxiproxy import Toxiproxy
from kvorum.chaos.live.toxiproxy_server import ToxiproxyServer
from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.errors import ConfigError

CLUSTER = "cluster"
LOGS = "logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemChoice:
    """The system that a run will test, before anything is started.

    option: the command's options that name it, for the line that runs the same again. library: the
    folder of Apache Kafka's jars, for Kafka alone.
    """

    name: str
    version: str
    capabilities: frozenset[Capability]
    option: str
    library: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A running system, and the toxiproxy in front of it (None without proxies)."""

    system: System
    toxiproxy: Toxiproxy | None
    toxiproxy_version: str


def choose_system(text: str, *, kafka_libs: str | None = None) -> SystemChoice:
    """The system of that name. Raises ConfigError, also if its software is not there.

    kafka_libs: the folder of Apache Kafka's jars; without it they are looked for.
    """
    if kafka_libs is not None and text != "kafka":
        raise ConfigError(f"--kafka-libs goes with --system kafka, not with {text!r}")
    if text == "kvorum":
        return SystemChoice(
            name="kvorum", version=kvorum_version(), capabilities=KVORUM_CAPABILITIES, option=""
        )
    if text == "kafka":
        return _choose_kafka(kafka_libs)
    raise ConfigError(f"unknown system {text!r}; known: kvorum, kafka")


def _choose_kafka(kafka_libs: str | None) -> SystemChoice:
    if not sys.platform.startswith("linux"):
        raise ConfigError("the system kafka needs Linux: its proxies listen within 127.0.0.0/8")
    find_java()
    library = find_library(kafka_libs)
    named = f" --kafka-libs {shlex.quote(kafka_libs)}" if kafka_libs is not None else ""
    return SystemChoice(
        name="kafka",
        version=library_version(library),
        capabilities=KAFKA_CAPABILITIES,
        option=f" --system kafka{named}",
        library=library,
    )


def refuse_what_cannot_be(experiment: Experiment, choice: SystemChoice) -> None:
    """Raise ConfigError, one line for each part of the experiment that the system cannot do."""
    steps = (*experiment.method, *experiment.rollbacks)
    problems = missing_capabilities(steps, choice)
    settings = experiment.configuration.settings
    if choice.library is not None and settings:
        problems += refused_settings(settings, broker_config_names(choice.library))
    if problems:
        raise ConfigError("\n".join(problems))


def open_system(
    stack: ExitStack,
    choice: SystemChoice,
    *,
    shape: ClusterShape,
    run_dir: Path,
    progress: Callable[[str], None],
) -> Opened:
    """Start toxiproxy, the proxies and the cluster; the stack stops them in reverse order.

    Raises KvorumError if one of them does not start.
    """
    # Bound before the plan looks for free ports, so that none of them is chosen twice.
    server = ToxiproxyServer(
        port=free_ports(1, random.Random()), log_file=str(run_dir / LOGS / "toxiproxy.log")
    )
    stack.enter_context(server)
    system = _built(choice, shape, run_dir)
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
    return Opened(system=system, toxiproxy=server.api, toxiproxy_version=server.version)


def _built(choice: SystemChoice, shape: ClusterShape, run_dir: Path) -> System:
    if choice.library is None:
        return _kvorum(shape, run_dir)
    rng = random.Random()
    return KafkaSystem(
        shape=shape,
        library=choice.library,
        directory=run_dir / CLUSTER,
        log_dir=run_dir / LOGS,
        first_port=free_ports(port_count(shape.controllers, shape.brokers), rng),
        rng=rng,
    )


def _kvorum(shape: ClusterShape, run_dir: Path) -> KvorumSystem:
    nodes = shape.controllers + shape.brokers
    # Free ports differ from machine to machine, so they are not drawn from the seed.
    first = free_ports(nodes + link_count(shape.controllers, shape.brokers), random.Random())
    plan = plan_links(
        shape.controllers,
        shape.brokers,
        client_port=first,
        controller_port=first + shape.brokers,
        proxy_port=first + nodes,
    )
    return KvorumSystem(
        shape=shape,
        plan=plan,
        data_dir=str(run_dir / CLUSTER),
        log_file=str(run_dir / LOGS / "cluster.log"),
        client_port=first,
        controller_port=first + shape.brokers,
    )
