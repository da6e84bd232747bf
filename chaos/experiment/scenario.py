"""Experiments: files in Chaos Toolkit's format, read into plain data.

Top-level keys are Chaos Toolkit's (version, title, description, tags, configuration,
steady-state-hypothesis, method, rollbacks). Actions and probes have `type: kvorum` as their
provider. An action's `func` is a live fault of `chaos.faults` (or `storm`, which draws many faults
from the seed), a probe's `func` is one of `PROBES`. Pauses are in seconds, as in Chaos Toolkit;
every other time is in milliseconds, and its name says so. Unknown keys and values out of range are
refused, and all of them are reported at once.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from kvorum.chaos.experiment.document import Document, Path, Section, parse_document
from kvorum.chaos.experiment.faults import build_fault, why_not_live
from kvorum.chaos.experiment.workloads import WORKLOADS, WorkloadKind, build_workload
from kvorum.chaos.faults import LIVE_FAULTS, LiveFault

#: Probe name -> what it returns.
PROBES: Mapping[str, str] = {
    "active_controllers": "controllers that say they lead the newest epoch",
    "offline_partitions": "partitions of the topic without a leader",
    "under_replicated_partitions": "partitions of the topic whose ISR is not full",
    "live_brokers": "brokers listed in the cluster's metadata",
    "acknowledged_per_second": "records acknowledged in the last second",
}

_TOP_KEYS = (
    "version",
    "title",
    "description",
    "tags",
    "contributions",
    "configuration",
    "steady-state-hypothesis",
    "method",
    "rollbacks",
)
_CONFIGURATION_KEYS = (
    "controllers",
    "brokers",
    "seed",
    "topic",
    "workload",
    "workloads",
    "settings",
    "warm_up_ms",
    "cool_down_ms",
    "start_timeout_ms",
    "convergence_timeout_ms",
)
_TOPIC_KEYS = ("name", "partitions", "replication_factor", "min_insync_replicas")
_WORKLOAD_KEYS = (
    "records_per_second",
    "record_bytes",
    "delivery_timeout_ms",
    "linger_ms",
    "topic_creations_per_second",
)
_STEP_KEYS = ("type", "name", "provider", "tolerance", "pauses", "background", "ref")
_PROVIDER_KEYS = ("type", "func", "arguments")
_STORM_KEYS = ("count", "pause_ms_min", "pause_ms_max", "faults")

#: The number of steps of one method, with its storms expanded.
STEPS_MAX = 2_000
_PAUSE_SECONDS_MAX = 3_600.0


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
    """Size of the cluster, its settings, the load, and the time limits."""

    controllers: int
    brokers: int
    seed: int
    topic: TopicPlan
    workload: WorkloadPlan
    workloads: tuple[WorkloadKind, ...]
    settings: tuple[tuple[str, str], ...]
    warm_up_ms: int
    cool_down_ms: int
    start_timeout_ms: int
    convergence_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """The probe results that count as steady: one of `values`, or within [low, high]."""

    values: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None

    def accepts(self, value: float) -> bool:
        if self.low is not None and self.high is not None:
            return self.low <= value <= self.high
        return value in self.values

    def text(self) -> str:
        if self.low is not None and self.high is not None:
            return f"{self.low:g} to {self.high:g}"
        return " or ".join(f"{value:g}" for value in self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A measurement. In the steady state `tolerance` is the expected result."""

    name: str
    func: str
    tolerance: Tolerance | None = None
    pause_before_ms: int = 0
    pause_after_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A fault. If it runs in the background, the method continues while the fault lasts."""

    name: str
    fault: LiveFault
    pause_before_ms: int = 0
    pause_after_ms: int = 0
    background: bool = False


Step = Action | Probe


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


def load_experiment(path: str, *, seed: int | None = None) -> Experiment:
    """Read a file. Raises ConfigError listing every problem, and OSError when unreadable.

    seed: takes the place of the file's own.
    """
    with open(path, encoding="utf-8") as file:
        return parse_experiment(path, file.read(), seed=seed)


def parse_experiment(path: str, text: str, *, seed: int | None = None) -> Experiment:
    """As load_experiment, but from text; `path` is only used in messages."""
    document = parse_document(path, text)
    if not isinstance(document.value, dict):
        document.problem((), "an experiment is a mapping with the keys " + ", ".join(_TOP_KEYS))
        document.raise_if_problems()
    top = Section(document, (), document.value, _TOP_KEYS)
    configuration = _configuration(top, seed)
    rng = random.Random(f"{configuration.seed}/method")
    hypothesis = top.section("steady-state-hypothesis", ("title", "probes"))
    probes = [_step(document, where, item) for where, item in hypothesis.items("probes")]
    method: list[Step] = []
    for where, item in top.items("method"):
        method.extend(_method_steps(document, where, item, rng))
    rollbacks = [_step(document, where, item) for where, item in top.items("rollbacks")]
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


def _configuration(top: Section, seed: int | None) -> Configuration:
    section = top.section("configuration", _CONFIGURATION_KEYS)
    controllers = section.integer("controllers", 3, 1, 9)
    brokers = section.integer("brokers", 3, 1, 99)
    topic = section.section("topic", _TOPIC_KEYS)
    replication_factor = topic.integer("replication_factor", min(3, brokers), 1, 99)
    if replication_factor > brokers:
        topic.problem("replication_factor", f"{replication_factor} needs as many brokers")
    load = section.section("workload", _WORKLOAD_KEYS)
    own_seed = section.integer("seed", 1, 0, 2**63 - 1)
    return Configuration(
        controllers=controllers,
        brokers=brokers,
        seed=own_seed if seed is None else seed,
        topic=TopicPlan(
            name=topic.text("name", "orders"),
            partitions=topic.integer("partitions", 6, 1, 1_000),
            replication_factor=replication_factor,
            min_insync_replicas=topic.integer(
                "min_insync_replicas", min(2, replication_factor), 1, max(1, replication_factor)
            ),
        ),
        workload=WorkloadPlan(
            records_per_second=load.integer("records_per_second", 1_000, 1, 20_000),
            record_bytes=load.integer("record_bytes", 100, 24, 100_000),
            delivery_timeout_ms=load.integer("delivery_timeout_ms", 30_000, 1_000, 600_000),
            linger_ms=load.integer("linger_ms", 2, 0, 1_000),
            topic_creations_per_second=load.integer("topic_creations_per_second", 0, 0, 50),
        ),
        workloads=_workloads(section, topic.text("name", "orders")),
        settings=tuple(
            (key, str(value).lower() if isinstance(value, bool) else str(value))
            for key, value in section.mapping("settings").items()
        ),
        warm_up_ms=section.integer("warm_up_ms", 2_000, 0, 600_000),
        cool_down_ms=section.integer("cool_down_ms", 3_000, 0, 600_000),
        start_timeout_ms=section.integer("start_timeout_ms", 60_000, 1_000, 600_000),
        convergence_timeout_ms=section.integer("convergence_timeout_ms", 60_000, 1_000, 600_000),
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


def _method_steps(document: Document, where: Path, item: Any, rng: random.Random) -> list[Step]:
    provider = item.get("provider") if isinstance(item, dict) else None
    if isinstance(provider, dict) and provider.get("func") == "storm":
        return _storm(document, where, item, rng)
    step = _step(document, where, item)
    return [] if step is None else [step]


def _step(document: Document, where: Path, item: Any) -> Step | None:
    """One action or probe; None if it is too invalid to build (its problem is recorded)."""
    section = Section(document, where, item, _STEP_KEYS)
    if not section.values:
        if item is None or item == {}:
            document.problem(where, "must be an action or a probe")
        return None
    kind = section.text("type", None)
    if section.has("ref"):
        section.problem("ref", "references to other steps are not supported; write the step out")
    if kind not in ("action", "probe"):
        section.problem("type", f"must be action or probe, got {kind!r}")
        return None
    name = section.text("name", None)
    provider = section.section("provider", _PROVIDER_KEYS)
    if provider.text("type", None) not in ("kvorum", ""):
        provider.problem("type", "must be kvorum; run other providers with Chaos Toolkit itself")
    func = provider.text("func", None)
    known = LIVE_FAULTS if kind == "action" else PROBES
    if func not in known:
        refusal = why_not_live(func) if kind == "action" else None
        if refusal is not None:
            provider.problem("func", refusal)
        elif func:
            near = get_close_matches(func, list(known), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            provider.problem("func", f"unknown {kind} {func!r}; {hint}")
        return None
    before_ms, after_ms = _pauses(section)
    if kind == "probe":
        if provider.mapping("arguments"):
            provider.problem("arguments", f"the probe {func} takes none")
        return Probe(
            name=name,
            func=func,
            tolerance=_tolerance(section),
            pause_before_ms=before_ms,
            pause_after_ms=after_ms,
        )
    if section.has("tolerance"):
        section.problem("tolerance", "only a probe has one")
    fault = _fault(provider, func)
    if fault is None:
        return None
    return Action(
        name=name,
        fault=fault,
        pause_before_ms=before_ms,
        pause_after_ms=after_ms,
        background=section.flag("background", default=False),
    )


def _fault(provider: Section, func: str) -> LiveFault | None:
    built = build_fault(func, provider.mapping("arguments"))
    if isinstance(built, list):
        place = (*provider.where, "arguments")
        for problem in built:
            where = (*place, problem.key) if problem.key else place
            provider.document.problem(where, problem.message)
        return None
    return built


def _pauses(section: Section) -> tuple[int, int]:
    pauses = section.section("pauses", ("before", "after"))
    before = pauses.number("before", 0.0, 0.0, _PAUSE_SECONDS_MAX)
    after = pauses.number("after", 0.0, 0.0, _PAUSE_SECONDS_MAX)
    return round(before * 1000), round(after * 1000)


def _tolerance(section: Section) -> Tolerance | None:
    if not section.has("tolerance"):
        return None
    value = section.values["tolerance"]
    if _is_number(value):
        return Tolerance(values=(float(value),))
    if isinstance(value, list) and value and all(_is_number(item) for item in value):
        return Tolerance(values=tuple(float(item) for item in value))
    if isinstance(value, dict) and value.get("type") == "range" and len(value) == 2:
        bounds = value.get("range")
        if isinstance(bounds, list) and len(bounds) == 2 and all(map(_is_number, bounds)):
            return Tolerance(low=float(bounds[0]), high=float(bounds[1]))
    section.problem(
        "tolerance", "must be a number, a list of numbers, or {type: range, range: [low, high]}"
    )
    return None


def _storm(document: Document, where: Path, item: Any, rng: random.Random) -> list[Step]:
    """`count` actions drawn from `faults`, each after a random pause."""
    section = Section(document, where, item, _STEP_KEYS)
    name = section.text("name", None)
    provider = section.section("provider", _PROVIDER_KEYS)
    storm = provider.section("arguments", _STORM_KEYS)
    count = storm.integer("count", 10, 1, STEPS_MAX)
    pause_ms_min = storm.integer("pause_ms_min", 500, 0, 600_000)
    pause_ms_max = storm.integer("pause_ms_max", 3_000, 0, 600_000)
    if pause_ms_max < pause_ms_min:
        storm.problem("pause_ms_max", f"is less than pause_ms_min ({pause_ms_min})")
        return []
    faults: list[LiveFault] = []
    for place, entry in storm.items("faults"):
        choice = Section(document, place, entry, ("func", "arguments"))
        func = choice.text("func", None)
        if func in LIVE_FAULTS:
            fault = _fault(choice, func)
            if fault is not None:
                faults.append(fault)
        elif (refusal := why_not_live(func)) is not None:
            choice.problem("func", refusal)
        elif func:
            near = get_close_matches(func, list(LIVE_FAULTS), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            choice.problem("func", f"unknown action {func!r}{hint}")
    if not faults:
        storm.problem("faults", "needs at least one fault to draw from")
        return []
    before_ms, after_ms = _pauses(section)
    steps: list[Step] = [
        Action(
            name=f"{name}-{number + 1}",
            fault=rng.choice(faults),
            pause_before_ms=rng.randint(pause_ms_min, pause_ms_max)
            + (before_ms if number == 0 else 0),
            pause_after_ms=after_ms if number == count - 1 else 0,
        )
        for number in range(count)
    ]
    return steps


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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
