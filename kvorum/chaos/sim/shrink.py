"""Makes a failing scenario smaller, as long as it still fails under the same name.

First it shrinks the schedule of faults by delta debugging (Zeller's ddmin: drop halves, quarters,
... single faults). Then it tries a shorter run, fewer nodes, and less delay and loss. Every step is
a whole run, so the number of runs is limited.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kvorum.chaos.sim.kernel.checks import SeedFailed
from kvorum.chaos.sim.quorum.scenario import WHOLE_SNAPSHOT, Scenario
from kvorum.chaos.sim.worlds import run_scenario

RUNS_MAX = 400
"""Runs spent on one failure."""

DURATION_MS_MIN = 200

_GENTLER: tuple[tuple[str, Any], ...] = (
    ("snapshot_every", 0),
    ("is_dynamic", False),
    ("candidates", 0),
    ("observers", 0),
    ("voters", 1),
    ("voters", 3),
    ("loss", 0.0),
    ("chunk_damage", 0.0),
    ("duplication", 0.0),
    ("spike", 0.0),
    ("drift", 0),
    ("quiet_ms", 0),
    ("fsync_ms_max", 0),
    ("delay_ms_max", 1),
    ("delay_ms_max", 5),
    ("propose_interval_ms", 200),
    ("snapshot_chunk_bytes", WHOLE_SNAPSHOT),
    ("retention_bytes", 0),
)
"""Values to try, in this order, if they are less than the scenario's; see _GREATER."""

_GREATER = frozenset({"propose_interval_ms", "snapshot_chunk_bytes"})
"""Fields of which a greater value makes the scenario simpler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """The smallest scenario found, its failure, and the number of runs."""

    scenario: Scenario
    failure: SeedFailed
    runs: int


class _Search:
    def __init__(
        self, scenario: Scenario, failure: SeedFailed, note: Callable[[str], None]
    ) -> None:
        self.best = scenario
        self.failure = failure
        self.runs = 1
        self._note = note

    def take(self, **changes: Any) -> bool:
        """Run the best scenario with these changes; keep it if it still fails under the same
        name."""
        candidate = dataclasses.replace(self.best, **changes)
        if candidate == self.best or self.runs >= RUNS_MAX:
            return False
        self.runs += 1
        try:
            run_scenario(candidate)
        except SeedFailed as failure:
            if failure.name != self.failure.name:
                return False
            self.best, self.failure = candidate, failure
            self._note(
                f"run {self.runs}: {len(candidate.faults)} faults, {candidate.duration_ms} ms, "
                f"{candidate.voters} voters, {candidate.candidates} candidates, "
                f"{candidate.observers} observers"
            )
            return True
        return False


def shrink(scenario: Scenario, note: Callable[[str], None]) -> Shrunk | None:
    """The smallest scenario found that fails like this one; None if this one does not fail.

    note: is called with a line about every improvement.
    """
    try:
        run_scenario(scenario)
    except SeedFailed as failure:
        search = _Search(scenario, failure, note)
    else:
        return None
    is_smaller = True
    while is_smaller:
        # A simpler scenario may need fewer faults, and fewer faults may allow a simpler scenario.
        is_smaller = _fewer_faults(search)
        is_smaller |= _shorter(search)
        for field, value in _GENTLER:
            if getattr(search.best, field) > value or field in _GREATER:
                is_smaller |= search.take(**{field: value})
    return Shrunk(scenario=search.best, failure=search.failure, runs=search.runs)


def _fewer_faults(search: _Search) -> bool:
    before = len(search.best.faults)
    if before and search.take(faults=()):
        return True
    size = (before + 1) // 2
    while size and search.best.faults:
        if not any(search.take(faults=rest) for rest in _without_each_chunk(search, size)):
            size //= 2
    return len(search.best.faults) < before


def _without_each_chunk(search: _Search, size: int) -> Iterator[tuple[Any, ...]]:
    # From the end: late faults are most often irrelevant.
    faults = search.best.faults
    for end in range(len(faults), 0, -size):
        yield faults[: max(end - size, 0)] + faults[end:]


def _shorter(search: _Search) -> bool:
    before = search.best.duration_ms
    step_ms = before // 2
    while step_ms >= DURATION_MS_MIN // 2:
        shorter_ms = search.best.duration_ms - step_ms
        if shorter_ms < DURATION_MS_MIN or not search.take(duration_ms=shorter_ms):
            step_ms //= 2
    return search.best.duration_ms < before
