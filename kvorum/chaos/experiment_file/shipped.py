"""The experiments that Kvorum ships, by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from kvorum.chaos.experiment_file.experiment import Experiment, load_experiment
from kvorum.chaos.experiment_file.steps import Action
from kvorum.chaos.faults import duration_of
from kvorum.runtime.errors import ConfigError

FOLDER = Path(__file__).parent.parent / "experiments"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """One experiment of the package. seconds: without the start and the end of the cluster."""

    name: str
    path: str
    title: str
    tags: tuple[str, ...]
    seconds: int
    proves: str


def shipped() -> Iterator[Shipped]:
    """Every shipped experiment, by name."""
    for path in sorted(FOLDER.glob("*.yaml")):
        experiment = load_experiment(str(path))
        yield Shipped(
            name=path.stem,
            path=str(path),
            title=experiment.title,
            tags=experiment.tags,
            seconds=round(planned_ms(experiment) / 1000),
            proves=experiment.description,
        )


def planned_ms(experiment: Experiment) -> int:
    """The time that warm-up, steps, pauses and cool-down take."""
    configuration = experiment.configuration
    now_ms = last_end_ms = 0
    for step in (*experiment.method, *experiment.rollbacks):
        now_ms += step.pause_before_ms
        duration_ms = (duration_of(step.fault) or 0) if isinstance(step, Action) else 0
        last_end_ms = max(last_end_ms, now_ms + duration_ms)
        if isinstance(step, Action) and not step.background:
            now_ms += duration_ms
        now_ms += step.pause_after_ms
    return configuration.warm_up_ms + max(now_ms, last_end_ms) + configuration.cool_down_ms


def find_experiment(text: str) -> str:
    """The path of a file, or of the shipped experiment of that name.

    Raises ConfigError if there is neither.
    """
    if os.path.isfile(text):
        return text
    names = [path.stem for path in sorted(FOLDER.glob("*.yaml"))]
    if text in names:
        return str(FOLDER / f"{text}.yaml")
    near = get_close_matches(text, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "see kvorum chaos list"
    raise ConfigError(f"{text!r} is neither a file nor a shipped experiment; {hint}")
