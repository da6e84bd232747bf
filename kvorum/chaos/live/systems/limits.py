"""The parts of an experiment that a system cannot carry out, refused with file and line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvorum.chaos.experiment_file.document import Path
from kvorum.chaos.experiment_file.experiment import Configuration, Experiment, load_experiment
from kvorum.chaos.experiment_file.possible_targets import NodeNames
from kvorum.chaos.faults import Fault, LiveFault
from kvorum.chaos.live.systems.attached_file import AttachedFile
from kvorum.chaos.live.systems.capabilities import (
    KAFKA_CAPABILITIES,
    KVORUM_CAPABILITIES,
    needs_of,
)
from kvorum.chaos.live.systems.kafka_jars import broker_config_names
from kvorum.chaos.live.systems.kafka_plan import refused_settings
from kvorum.chaos.live.systems.opening import SystemChoice
from kvorum.chaos.live.systems.protocol import Capability, ClusterShape
from kvorum.launch.cluster.plan import NODES_MAX, check_settings
from kvorum.runtime.errors import ConfigError

_BY_SYSTEM: Mapping[str, frozenset[Capability]] = {
    "kvorum": KVORUM_CAPABILITIES,
    "kafka": KAFKA_CAPABILITIES,
}

#: How a cluster's file gives an attached system a capability.
_WAY_TO_ATTACH: Mapping[Capability, str] = {
    Capability.KILL: "the commands kill and start",
    Capability.PAUSE: "the commands pause and resume",
    Capability.STOP: "the commands stop and start",
    Capability.RESTART: "the command start",
    Capability.WIPE: "the commands wipe and start",
    Capability.LINKS: "links between nodes, behind a toxiproxy",
    Capability.CLIENT_LINKS: "links from clients, behind a toxiproxy",
}

#: The refused places of a configuration, each with the reason in a sentence.
Refused = list[tuple[Path, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsOfKvorum:
    """Kvorum's table of properties alone, for a check without a system."""

    def of_fault(self, fault: LiveFault) -> list[str]:
        return []

    def of_configuration(self, configuration: Configuration) -> Refused:
        """The settings that a node would refuse at its start."""
        return _refused_by_kvorum(configuration)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemLimits:
    """The faults and settings that the system of a run refuses."""

    choice: SystemChoice

    def of_fault(self, fault: LiveFault) -> list[str]:
        """One sentence for each capability that the fault needs and the system lacks."""
        return lacking(fault, self.choice)

    def of_configuration(self, configuration: Configuration) -> Refused:
        """The settings, voters and replicas that the system cannot have."""
        if self.choice.attached is not None:
            return _misfits(configuration, self.choice.attached)
        return _refused_settings(self.choice, configuration)


def lacking(fault: Fault, system: SystemChoice) -> list[str]:
    """One sentence for each capability that a fault needs and the system does not have."""
    refusals = []
    for capability in sorted(needs_of(fault), key=lambda needed: needed.name):
        denial = system.denial(capability)
        if denial is not None:
            why = f"which the system {system.name} does not have here: {denial}"
        elif capability not in system.capabilities:
            why = _who_can(capability, system.name)
        else:
            continue
        refusals.append(f"{fault.text()!r} needs {capability.value}, {why}")
    return refusals


def load_for(choice: SystemChoice, path: str, *, seed: int | None = None) -> Experiment:
    """The experiment of a file, for that system.

    Raises ConfigError that lists every problem of the file and every part that the system cannot
    carry out: half a method would be a verdict about another experiment.
    """
    return load_experiment(
        path, seed=seed, nodes=_nodes_of(choice), limits=SystemLimits(choice=choice)
    )


def check_shape(choice: SystemChoice, shape: ClusterShape) -> None:
    """Raise ConfigError for a cluster that the system cannot start: its size, voters, settings."""
    problems = [
        f"{name}={count} must lie between 1 and {NODES_MAX}"
        for name, count in (("controllers", shape.controllers), ("brokers", shape.brokers))
        if not 1 <= count <= NODES_MAX
    ]
    if not problems and not 0 <= shape.voters <= shape.controllers:
        problems.append(
            f"voters={shape.voters} must lie between 0 and the number of controllers, "
            f"{shape.controllers}"
        )
    if not problems:
        problems = [text for _, text in _refused_settings(choice, shape)]
    if problems:
        raise ConfigError("; ".join(problems))


def _who_can(capability: Capability, name: str) -> str:
    able = [system for system, has in _BY_SYSTEM.items() if capability in has]
    way = _WAY_TO_ATTACH.get(capability)
    if way is not None:
        able.append(f"an attached cluster whose file has {way}")
    systems = " or ".join(able) if able else "no system"
    return f"which the system {name} does not have; use {systems}"


def _refused_settings(choice: SystemChoice, shape: ClusterShape) -> Refused:
    if choice.library is None:
        return _refused_by_kvorum(shape)
    if shape.is_secure:
        return [(("secure",), "is for Kvorum alone; the lab starts Apache Kafka in clear text")]
    if not shape.settings:
        return []
    known = broker_config_names(choice.library)
    return [
        (("settings", key), text)
        for key, value in shape.settings
        for text in refused_settings([(key, value)], known)
    ]


def _refused_by_kvorum(shape: ClusterShape) -> Refused:
    settings = dict(shape.settings)
    whole = _refusal(settings, shape.brokers)
    if not whole:
        return []
    each = [
        (("settings", key), text)
        for key, value in settings.items()
        if (text := _refusal({key: value}, shape.brokers))
    ]
    # Two settings may each be good and yet not go together.
    return [*each] or [(("settings",), whole)]


def _nodes_of(choice: SystemChoice) -> NodeNames | None:
    """The nodes of an attached cluster; None where the experiment decides them."""
    file = choice.attached
    return None if file is None else NodeNames(controllers=file.controllers, brokers=file.brokers)


def _refusal(settings: dict[str, str], brokers: int) -> str:
    try:
        check_settings(settings, brokers=brokers)
    except ConfigError as error:
        return str(error)
    return ""


def _misfits(configuration: Configuration, file: AttachedFile) -> Refused:
    problems: Refused = [
        (
            ("settings", key),
            "cannot be given to a cluster that runs already; set it there and remove it from the "
            "experiment",
        )
        for key, _ in configuration.settings
    ]
    if configuration.is_secure:
        text = (
            "cannot be given to a cluster that runs already; remove it, and name the user with "
            "--command-config FILE"
        )
        problems.append((("secure",), text))
    elif configuration.voters:
        text = "cannot be given to a cluster that runs already; remove it from the experiment"
        problems.append((("voters",), text))
    copies = configuration.topic.replication_factor
    if copies > len(file.brokers):
        text = f"{copies} needs as many brokers; {file.path} names {len(file.brokers)}"
        problems.append((("topic", "replication_factor"), text))
    return problems
