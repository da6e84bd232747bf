"""The faults of a run and their times, drawn from the seed before the run.

A schedule is data: it can be written as JSON, shrunk (`chaos.sim.shrink`) and run again.
"""

from __future__ import annotations

import dataclasses
import random
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvorum.chaos.fault_words import EVERY_CONNECTION
from kvorum.chaos.faults import FAULTS, Fault, toxicity_of
from kvorum.chaos.sim.kernel.fault_draws import DRAWS
from kvorum.chaos.targets import Target, TargetKind, parse_target
from kvorum.runtime.errors import ConfigError

_NAME = re.compile(r"(node|broker)-[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledFault:
    """A fault and the virtual time at which it begins. kind: the name of its draw, under which
    summaries count it; empty to use the fault's own name."""

    at_ms: int
    fault: Fault
    kind: str = ""


def draw_schedule(
    rng: random.Random,
    *,
    node_ids: Sequence[int],
    kinds: Sequence[str],
    duration_ms: int,
    interval_ms: int,
) -> tuple[ScheduledFault, ...]:
    """Faults of these kinds, one every interval_ms on average; none if there are no kinds."""
    schedule: list[ScheduledFault] = []
    at_ms = rng.randint(1, 2 * interval_ms)
    while kinds and at_ms < duration_ms:
        kind = rng.choice(kinds)
        schedule.append(ScheduledFault(at_ms=at_ms, fault=DRAWS[kind](rng, node_ids), kind=kind))
        at_ms += rng.randint(1, 2 * interval_ms)
    return tuple(schedule)


def to_json(scheduled: ScheduledFault) -> dict[str, Any]:
    """A flat object: at_ms, kind, the fault's name and its own fields."""
    fault = scheduled.fault
    fields = {field.name: getattr(fault, field.name) for field in dataclasses.fields(fault)}
    written = {
        name: value.text() if isinstance(value, Target) else value for name, value in fields.items()
    }
    name = fault.func
    return {"at_ms": scheduled.at_ms, "kind": scheduled.kind or name, "fault": name, **written}


def from_json(data: Mapping[str, Any]) -> ScheduledFault:
    """The inverse of `to_json`. Raises ConfigError, which names the problem."""
    fields = dict(data)
    try:
        at_ms, kind = int(fields.pop("at_ms")), str(fields.pop("kind"))
        fault_type = FAULTS[fields.pop("fault", kind)]
        hints = typing.get_type_hints(fault_type)
        for name, value in fields.items():
            if hints.get(name) is Target:
                fields[name] = _target(value)
            elif isinstance(value, list):
                fields[name] = tuple(value)
        make: Any = fault_type
        fault: Fault = make(**fields)
        if getattr(fault, "duration_ms", 0) is None:
            raise ValueError("a simulated fault ends by itself: it needs duration_ms")
        if (toxicity := toxicity_of(fault)) != EVERY_CONNECTION:
            raise ValueError(
                f"toxicity must be {EVERY_CONNECTION}, got {toxicity}: the simulator cuts every "
                "connection; a live run (kvorum chaos run) hits a share of them"
            )
        return ScheduledFault(at_ms=at_ms, fault=fault, kind=kind)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"not a fault of the simulator: {dict(data)} ({error!r})") from error


def _target(text: str) -> Target:
    """A target as `Target.text` writes it. Simulated nodes are `node-3`, by id, or `broker-0`, by
    the broker's number; several are separated by commas."""
    names = tuple(text.split(","))
    if all(map(_NAME.fullmatch, names)):
        return Target(kind=TargetKind.NODE, nodes=names)
    return parse_target(text)
