"""The steps of experiments: probes, actions, and storms of actions, read into plain data.

`chaos.experiment_file.shorthand` rewrites the short form first, so that only one form is read here.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from kvorum.chaos.experiment_file.document import Document, Path, Section
from kvorum.chaos.experiment_file.faults import ArgumentProblem, build_fault, why_not_live
from kvorum.chaos.experiment_file.keys import PAUSE_SECONDS_MAX, STORM_KEYS
from kvorum.chaos.experiment_file.operator_faults import impossible_requests
from kvorum.chaos.experiment_file.possible_targets import PossibleTargets, impossible_targets
from kvorum.chaos.experiment_file.shorthand import (
    TOOLKIT_MODULE,
    long_choice,
    long_step,
    short_func,
)
from kvorum.chaos.faults import LIVE_FAULTS, LiveFault

#: Probe name -> what it returns.
PROBES: Mapping[str, str] = {
    "active_controllers": "controllers that say they lead the newest epoch",
    "offline_partitions": "partitions of the topic without a leader",
    "under_replicated_partitions": "partitions of the topic whose ISR is not full",
    "live_brokers": "brokers listed in the cluster's metadata",
    "acknowledged_per_second": "records acknowledged in the second that follows",
}

_STEP_KEYS = ("type", "name", "provider", "tolerance", "pauses", "background", "ref")
_PROVIDER_KEYS = ("type", "module", "func", "arguments")


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
class Storm:
    """Faults to draw from, how many to draw, and the bounds of the pause before each."""

    count: int
    pause_ms_min: int
    pause_ms_max: int
    faults: tuple[LiveFault, ...]

    def draw(self, name: str, rng: random.Random) -> list[Action]:
        """The storm's actions, named NAME-1, NAME-2, ..."""
        return [
            Action(
                name=f"{name}-{number}",
                fault=rng.choice(self.faults),
                pause_before_ms=rng.randint(self.pause_ms_min, self.pause_ms_max),
            )
            for number in range(1, self.count + 1)
        ]


def method_rng(seed: int) -> random.Random:
    """The random source from which the storms of a method are drawn, in order."""
    return random.Random(f"{seed}/method")


def read_storm(
    name: str, arguments: Mapping[str, Any], possible: PossibleTargets, rng: random.Random
) -> list[Action]:
    """The actions of a storm whose arguments Chaos Toolkit passes on. Raises ConfigError."""
    document = Document(path=name, value=arguments)
    reader = StepReader(document=document, possible=possible, rng=rng)
    storm = reader.storm(Section(document, (), arguments, _storm_keys()))
    document.raise_if_problems()
    return [] if storm is None else storm.draw(name, rng)


def _storm_keys() -> list[str]:
    return [*(key.name for key in STORM_KEYS), "faults"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReader:
    """Reads the steps of one document. Problems are noted in the document.

    refusals: the sentences that refuse a fault; empty if the system that is to carry the steps out
        has all that the fault needs.
    """

    document: Document
    possible: PossibleTargets
    rng: random.Random
    refusals: Callable[[LiveFault], Sequence[str]] = lambda _: ()

    def steps(self, where: Path, item: Any) -> list[Step]:
        """The steps of one item of the method: a storm is many."""
        item = long_step(self.document, where, item, PROBES)
        provider = item.get("provider") if isinstance(item, dict) else None
        if isinstance(provider, dict) and provider.get("func") == "storm":
            return self._storm_steps(where, item)
        step = self._long_step(where, item) if item is not None else None
        return [] if step is None else [step]

    def probe(self, where: Path, item: Any) -> Step | None:
        """One probe of a steady state; None if it is too invalid to build."""
        func = short_func(item)
        if func is not None and func not in (*PROBES, *LIVE_FAULTS, "storm"):
            self.document.problem((*where, func), f"unknown probe {func!r}; {_hint(func, PROBES)}")
            return None
        return self.step(where, item)

    def step(self, where: Path, item: Any) -> Step | None:
        """One action or probe; None if it is too invalid to build."""
        item = long_step(self.document, where, item, PROBES)
        return None if item is None else self._long_step(where, item)

    def storm(self, section: Section) -> Storm | None:
        """A storm by its arguments; None if one of them is invalid."""
        before = len(self.document.problems)
        values = section.integers(STORM_KEYS)
        if values["pause_ms_max"] < values["pause_ms_min"]:
            text = f"is less than pause_ms_min ({values['pause_ms_min']})"
            section.problem("pause_ms_max", text)
        items = section.items("faults")
        if not items and len(self.document.problems) == before:
            section.problem("faults", "needs at least one fault to draw from")
        faults = [self._choice(where, item) for where, item in items]
        if len(self.document.problems) > before:
            return None
        return Storm(**values, faults=tuple(fault for fault in faults if fault is not None))

    def _choice(self, where: Path, item: Any) -> LiveFault | None:
        item = long_choice(self.document, where, item)
        section = Section(self.document, where, item, ("func", "arguments"))
        return self._fault(section, section.text("func", None)) if section.values else None

    def _long_step(self, where: Path, item: Any) -> Step | None:
        section = Section(self.document, where, item, _STEP_KEYS)
        if not section.values:
            if item is None or item == {}:
                self.document.problem(where, "must be an action or a probe")
            return None
        kind = section.text("type", None)
        if section.has("ref"):
            section.problem("ref", "references to other steps are not supported; write it out")
            return None
        if kind not in ("action", "probe"):
            section.problem("type", f"must be action or probe, got {kind!r}")
            return None
        name = section.text("name", None)
        provider = self._provider(section)
        if provider is None:
            return None
        func = provider.text("func", None)
        before_ms, after_ms = _pauses(section)
        if kind == "action":
            if section.has("tolerance"):
                section.problem("tolerance", "only a probe has one")
            fault = self._fault(provider, func)
            background = section.flag("background", default=False)
            if background and before_ms + after_ms:
                section.problem(
                    "pauses",
                    "a step in the background has none, as Chaos Toolkit would not wait for them; "
                    "write `before` at the next step",
                )
            if fault is None:
                return None
            return Action(
                name=name,
                fault=fault,
                pause_before_ms=before_ms,
                pause_after_ms=after_ms,
                background=background,
            )
        if func not in PROBES:
            self._unknown(provider, "probe", func, PROBES)
            return None
        if provider.mapping("arguments"):
            provider.problem("arguments", f"the probe {func} takes none")
        tolerance = _tolerance(section)
        if tolerance is None and section.has("tolerance"):
            return None
        return Probe(
            name=name,
            func=func,
            tolerance=tolerance,
            pause_before_ms=before_ms,
            pause_after_ms=after_ms,
        )

    def _storm_steps(self, where: Path, item: Any) -> list[Step]:
        section = Section(self.document, where, item, _STEP_KEYS)
        name = section.text("name", None)
        provider = self._provider(section)
        if provider is None:
            return []
        storm = self.storm(provider.section("arguments", _storm_keys()))
        before_ms, after_ms = _pauses(section)
        if section.flag("background", default=False):
            section.problem("background", "a storm does not run in the background")
        if storm is None:
            return []
        first, *others = storm.draw(name, self.rng)
        first = dataclasses.replace(first, pause_before_ms=first.pause_before_ms + before_ms)
        *others, last = first, *others
        return [*others, dataclasses.replace(last, pause_after_ms=after_ms)]

    def _provider(self, step: Section) -> Section | None:
        """The provider of a step; None for one of another kind or module, which is one problem."""
        given = step.values.get("provider")
        values = given if isinstance(given, dict) else {}
        where = (*step.where, "provider")
        kind, module = values.get("type"), values.get("module")
        if kind not in ("python", "kvorum", None):
            text = f"must be python, got {kind!r}; run other providers with Chaos Toolkit itself"
            self.document.problem((*where, "type"), text)
            return None
        if kind == "python" and module != TOOLKIT_MODULE:
            text = f"must be {TOOLKIT_MODULE}, got {module!r}; run others with Chaos Toolkit itself"
            self.document.problem((*where, "module"), text)
            return None
        provider = step.section("provider", _PROVIDER_KEYS)
        if step.has("provider") and provider.values:
            provider.text("type", None)
        return provider

    def _fault(self, section: Section, func: str) -> LiveFault | None:
        """The fault `func` with a section's arguments; None if there is a problem."""
        if func not in LIVE_FAULTS:
            if (refusal := why_not_live(func)) is not None:
                section.problem("func", refusal)
            elif func in PROBES:
                section.problem("func", f"{func!r} is a probe, not an action")
            else:
                self._unknown(section, "action", func, [*LIVE_FAULTS, "storm"], also=PROBES)
            return None
        built = build_fault(func, section.mapping("arguments"))
        problems = built if isinstance(built, list) else self._impossible(built)
        place = (*section.where, "arguments")
        for problem in problems:
            where = (*place, problem.key) if problem.key else place
            self.document.problem(where, problem.message)
        if isinstance(built, list) or problems:
            return None
        for refusal in self.refusals(built):
            section.problem("func", refusal)
        return built

    def _impossible(self, fault: LiveFault) -> list[ArgumentProblem]:
        return impossible_targets(fault, self.possible) or impossible_requests(fault, self.possible)

    def _unknown(
        self, section: Section, kind: str, func: str, known: Iterable[str], also: Iterable[str] = ()
    ) -> None:
        if func:
            section.problem("func", f"unknown {kind} {func!r}; {_hint(func, known, also)}")


def _hint(func: str, known: Iterable[str], also: Iterable[str] = ()) -> str:
    """A hint for a name that does not exist: the closest one of both lists, else all of `known`."""
    names = list(known)
    near = get_close_matches(func, [*names, *also], n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"


def _pauses(section: Section) -> tuple[int, int]:
    pauses = section.section("pauses", ("before", "after"))
    before = pauses.number("before", 0.0, 0.0, PAUSE_SECONDS_MAX)
    after = pauses.number("after", 0.0, 0.0, PAUSE_SECONDS_MAX)
    return round(before * 1000), round(after * 1000)


def _tolerance(section: Section) -> Tolerance | None:
    if not section.has("tolerance"):
        return None
    value = section.values["tolerance"]
    if _is_number(value):
        return Tolerance(values=(float(value),))
    if isinstance(value, list) and value and all(_is_number(item) for item in value):
        if len(value) == 2:
            # As in Chaos Toolkit: two numbers are bounds.
            return Tolerance(low=float(value[0]), high=float(value[1]))
        return Tolerance(values=tuple(float(item) for item in value))
    if isinstance(value, dict) and value.get("type") == "range" and len(value) == 2:
        bounds = value.get("range")
        if isinstance(bounds, list) and len(bounds) == 2 and all(map(_is_number, bounds)):
            return Tolerance(low=float(bounds[0]), high=float(bounds[1]))
    section.problem(
        "tolerance",
        "must be a number, the two bounds [low, high], a list of three or more numbers, or "
        "{type: range, range: [low, high]}",
    )
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
