"""Experiments: files in Chaos Toolkit's format, read into plain data.

Top-level keys are Chaos Toolkit's (version, title, description, tags, configuration, controls,
steady-state-hypothesis, method, rollbacks). Actions and probes have `type: python` and `module:
kvorum.chaos.toolkit` as their provider, so that Chaos Toolkit itself runs the file. An action's
`func` is a live fault of `chaos.faults` (or `storm`, which draws many faults from the seed), a
probe's `func` is one of `PROBES`. `shorthand` has a short form of steps. The form
`type: kvorum` of older runs is read as well. Pauses are in seconds, as in Chaos Toolkit; every
other time is in milliseconds, and its name says so. Unknown keys, values out of range and targets
that cannot exist are refused, and all of them are reported at once.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Protocol

from kvorum.chaos.experiment_file.document import Document, Path, Section, parse_document
from kvorum.chaos.experiment_file.keys import (
    CONFIGURATION_KEYS,
    LOAD_KEYS,
    STEPS_MAX,
    TOPIC_KEYS,
)
from kvorum.chaos.experiment_file.possible_targets import NodeNames, PossibleTargets, node_names
from kvorum.chaos.experiment_file.shorthand import (
    CONTROL_MODULE,
)
from kvorum.chaos.experiment_file.stated_promises import Promises, read_promises
from kvorum.chaos.experiment_file.steps import (
    Action,
    Probe,
    Step,
    StepReader,
    method_rng,
)
from kvorum.chaos.experiment_file.workloads import WORKLOADS, WorkloadKind, build_workload
from kvorum.chaos.faults import LiveFault
from kvorum.runtime.errors import ConfigError

#: Of the format of experiments; a file of another major version is refused.
VERSION = "1.0.0"

TOP_KEYS = (
    "version",
    "title",
    "description",
    "tags",
    "contributions",
    "extensions",
    "controls",
    "configuration",
    "steady-state-hypothesis",
    "method",
    "rollbacks",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """The topic that the load writes to."""

    name: str
    partitions: int
    replication_factor: int
    min_insync_replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPlan:
    """The load. `topic_creations_per_second` is a second load, on the controller; 0 is none."""

    records_per_second: int
    record_bytes: int
    delivery_timeout_ms: int
    linger_ms: int
    topic_creations_per_second: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Size of the cluster, its settings, the load, and the time limits.

    voters: 0 for a static voter set of all controllers.
    is_secure: with TLS, users and ACLs; its voters can change.
    """

    controllers: int
    voters: int
    brokers: int
    seed: int
    topic: TopicPlan
    workload: WorkloadPlan
    workloads: tuple[WorkloadKind, ...]
    promises: Promises
    settings: tuple[tuple[str, str], ...]
    warm_up_ms: int
    cool_down_ms: int
    start_timeout_ms: int
    convergence_timeout_ms: int
    is_secure: bool = False

    def secured(self) -> Configuration:
        """The same with a secure cluster."""
        return dataclasses.replace(self, is_secure=True, voters=self.voters or self.controllers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A whole experiment. The storms of `method` are already expanded with the seed."""

    title: str
    description: str
    tags: tuple[str, ...]
    configuration: Configuration
    steady_state_title: str
    steady_state: tuple[Probe, ...]
    method: tuple[Step, ...]
    rollbacks: tuple[Action, ...]


class Limits(Protocol):
    """The parts of an experiment that a system cannot carry out."""

    def of_fault(self, fault: LiveFault) -> list[str]:
        """The sentences that refuse a fault; empty if the system has all that it needs."""
        ...

    def of_configuration(self, configuration: Configuration) -> list[tuple[Path, str]]:
        """Places below `configuration`, each with the sentence that refuses it."""
        ...


def load_experiment(
    path: str,
    *,
    seed: int | None = None,
    nodes: NodeNames | None = None,
    limits: Limits | None = None,
) -> Experiment:
    """Read a file. Raises ConfigError listing every problem, and OSError when unreadable.

    seed: takes the place of the file's own.
    nodes: those of a cluster that runs already; without them the nodes follow from the file's
        configuration.
    limits: of the system that is to carry the experiment out.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8, see byte {error.start}") from error
    return parse_experiment(path, text, seed=seed, nodes=nodes, limits=limits)


def parse_experiment(
    path: str,
    text: str,
    *,
    seed: int | None = None,
    nodes: NodeNames | None = None,
    limits: Limits | None = None,
) -> Experiment:
    """As load_experiment, but from text; `path` is only used in messages."""
    document = parse_document(path, text)
    if not isinstance(document.value, dict):
        document.problem((), "an experiment is a mapping with the keys " + ", ".join(TOP_KEYS))
        document.raise_if_problems()
    top = Section(document, (), document.value, TOP_KEYS)
    _check_version(top)
    _check_controls(top)
    configuration = _configuration(top, seed)
    if limits is not None:
        for where, refusal in limits.of_configuration(configuration):
            document.problem(("configuration", *where), refusal)
    reader = StepReader(
        document=document,
        possible=possible_targets_of(configuration, nodes),
        rng=method_rng(configuration.seed),
        refusals=(lambda _: ()) if limits is None else limits.of_fault,
    )
    hypothesis = top.section("steady-state-hypothesis", ("title", "probes"))
    probes = [reader.probe(where, item) for where, item in hypothesis.items("probes")]
    method: list[Step] = []
    for where, item in top.items("method"):
        method.extend(reader.steps(where, item))
    rollbacks = [reader.step(where, item) for where, item in top.items("rollbacks")]
    if not method and not document.problems:
        document.problem(("method",), "needs at least one action")
    if len(method) > STEPS_MAX:
        document.problem(("method",), f"has {len(method)} steps, the most is {STEPS_MAX}")
    experiment = Experiment(
        title=top.text("title", None),
        description=top.text("description", "-"),
        tags=tuple(_texts(document, top.items("tags"))),
        configuration=configuration,
        steady_state_title=hypothesis.text("title", "steady state"),
        steady_state=tuple(probe for probe in probes if isinstance(probe, Probe)),
        method=tuple(method),
        rollbacks=tuple(action for action in rollbacks if isinstance(action, Action)),
    )
    _check_places(document, probes, rollbacks)
    document.raise_if_problems()
    return experiment


def possible_targets_of(
    configuration: Configuration, nodes: NodeNames | None = None
) -> PossibleTargets:
    """The possible targets in a cluster of that configuration, or in one of those nodes."""
    topic = configuration.topic
    return PossibleTargets(
        nodes=nodes or node_names(configuration.controllers, configuration.brokers),
        topic=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        voters=configuration.voters,
        other_topics=tuple(
            plan.topic for plan in configuration.workloads if hasattr(plan, "topic")
        ),
    )


def _check_version(top: Section) -> None:
    version = top.values.get("version", VERSION)
    if str(version).partition(".")[0] != VERSION.partition(".")[0]:
        top.problem("version", f"this Kvorum reads version {VERSION}, got {version!r}")


def _check_controls(top: Section) -> None:
    for where, item in top.items("controls"):
        provider = item.get("provider") if isinstance(item, dict) else None
        module = provider.get("module") if isinstance(provider, dict) else None
        if module != CONTROL_MODULE:
            top.document.problem(
                where,
                f"the only control is the module {CONTROL_MODULE}, got {module!r}; run other "
                "controls with Chaos Toolkit itself",
            )


def _configuration(top: Section, seed: int | None) -> Configuration:
    numbers = [key.name for key in CONFIGURATION_KEYS]
    section = top.section(
        "configuration",
        [*numbers, "secure", "topic", "workload", "workloads", "promises", "settings"],
    )
    values = section.integers(CONFIGURATION_KEYS)
    if seed is not None:
        bounds = next(key for key in CONFIGURATION_KEYS if key.name == "seed")
        if not bounds.low <= seed <= bounds.high:
            raise ConfigError(
                f"the seed {seed} must lie between {bounds.low} and {bounds.high}; give another"
            )
        values["seed"] = seed
    if values["voters"] > values["controllers"]:
        section.problem(
            "voters",
            f"{values['voters']} needs as many controllers; the cluster has "
            f"{values['controllers']}",
        )
    topic = _topic(section, values["brokers"])
    load = section.section("workload", [key.name for key in LOAD_KEYS])
    configuration = Configuration(
        **values,
        is_secure=False,
        topic=topic,
        workload=WorkloadPlan(**load.integers(LOAD_KEYS)),
        workloads=_workloads(section, topic.name),
        promises=read_promises(section),
        settings=_settings(section),
    )
    is_secure = section.values.get("secure", False)
    if not isinstance(is_secure, bool):
        section.problem("secure", f"must be true or false, got {is_secure!r}")
    return configuration.secured() if is_secure is True else configuration


def _settings(configuration: Section) -> tuple[tuple[str, str], ...]:
    section = Section(
        configuration.document,
        (*configuration.where, "settings"),
        given := configuration.mapping("settings"),
        given,
    )
    settings = []
    for key, value in given.items():
        if isinstance(value, bool):
            settings.append((key, str(value).lower()))
        elif isinstance(value, str | int | float):
            settings.append((key, str(value)))
        else:
            section.problem(key, f"must be a text, a number, true or false, got {value!r}")
    return tuple(settings)


def _topic(configuration: Section, brokers: int) -> TopicPlan:
    section = configuration.section("topic", ["name", *(key.name for key in TOPIC_KEYS)])
    partitions, copies, in_sync = TOPIC_KEYS
    factor = section.integer(copies.name, min(copies.default or 1, brokers), 1, copies.high)
    if factor > brokers:
        section.problem(copies.name, f"{factor} needs as many brokers; the cluster has {brokers}")
    return TopicPlan(
        name=section.text("name", "orders"),
        **section.integers([partitions]),
        replication_factor=factor,
        min_insync_replicas=section.integer(
            in_sync.name, min(in_sync.default or 1, factor), in_sync.low, factor
        ),
    )


def _workloads(section: Section, load_topic: str) -> tuple[WorkloadKind, ...]:
    plans: list[WorkloadKind] = []
    topics = {load_topic}
    for where, item in section.items("workloads"):
        if not isinstance(item, dict) or len(item) != 1:
            known = ", ".join(WORKLOADS)
            section.document.problem(where, f"must be one kind with its arguments, of: {known}")
            continue
        ((kind, arguments),) = item.items()
        if arguments is not None and not isinstance(arguments, dict):
            section.document.problem((*where, kind), "must be a mapping of arguments")
            continue
        try:
            plan = build_workload(str(kind), arguments or {})
        except ValueError as error:
            section.document.problem((*where, kind), str(error))
            continue
        topic = getattr(plan, "topic", None)
        if topic in topics:
            section.document.problem((*where, kind), f"the topic {topic!r} has a load already")
            continue
        if topic is not None:
            topics.add(topic)
        plans.append(plan)
    return tuple(plans)


def _check_places(
    document: Document, probes: list[Step | None], rollbacks: list[Step | None]
) -> None:
    for position, probe in enumerate(probes):
        where: Path = ("steady-state-hypothesis", "probes", position)
        if isinstance(probe, Action):
            document.problem(where, "a steady state holds probes only")
        elif probe is not None and probe.tolerance is None:
            document.problem(where, f"the probe {probe.name!r} needs a tolerance")
    for position, rollback in enumerate(rollbacks):
        if isinstance(rollback, Probe):
            document.problem(("rollbacks", position), "rollbacks hold actions only")


def _texts(document: Document, items: list[tuple[Path, Any]]) -> list[str]:
    for where, item in items:
        if not isinstance(item, str):
            document.problem(where, f"must be a text, got {item!r}")
    return [item for _, item in items if isinstance(item, str)]
