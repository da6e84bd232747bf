"""Runs many seeds on several processors, and sums up their results."""

from __future__ import annotations

import gc
import logging
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from kvorum.chaos.sim.kernel.checks import SeedFailed
from kvorum.chaos.sim.quorum.world import QuorumOutcome
from kvorum.chaos.sim.worlds import QUORUM, run_seed

SEEDS_TOGETHER = 4
"""Seeds that a process gets at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedResult:
    """Outcome or failure of one seed; the other is None."""

    seed: int
    outcome: QuorumOutcome | None = None
    failure: SeedFailed | None = None


@dataclass(slots=True, kw_only=True)
class Summary:
    """Sums over seeds.

    failures: by seed.
    healed_ms_max: the longest convergence after healing.
    """

    seeds: int = 0
    events: int = 0
    epochs: int = 0
    committed: int = 0
    virtual_ms: int = 0
    healed_ms_max: int = 0
    stale_reads: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    tally: Counter[str] = field(default_factory=Counter)
    failures: dict[int, SeedFailed] = field(default_factory=dict)

    def add(self, result: SeedResult) -> None:
        """Add the result of one more seed."""
        self.seeds += 1
        if result.failure is not None:
            self.failures[result.seed] = result.failure
        outcome = result.outcome
        if outcome is None:
            return
        self.events += outcome.events
        self.epochs += outcome.epochs
        self.committed += outcome.committed
        self.virtual_ms += outcome.virtual_ms
        self.healed_ms_max = max(self.healed_ms_max, outcome.healed_ms)
        self.stale_reads += outcome.stale_reads
        self.operations.update(outcome.operations)
        self.faults.update(outcome.faults)
        self.tally.update(outcome.tally)

    def lines(self, wall_s: float) -> list[str]:
        """The summary as text. wall_s: seconds that the run took."""
        rate = self.seeds / wall_s if wall_s > 0 else 0.0
        lines = [
            f"seeds      {self.seeds} in {wall_s:.1f} s, {rate:.1f} a second",
            f"events     {self.events}, {self.epochs} epochs, {self.committed} records committed, "
            f"{self.virtual_ms / 1000:.0f} s of virtual time",
            f"operations {_counts(self.operations)}, stale leader reads {self.stale_reads}",
            f"faults     {_counts(self.faults)}",
            f"besides    {_counts(self.tally)}",
            f"healing    {self.healed_ms_max} ms at most",
        ]
        if self.failures:
            lines.append(f"failed     {', '.join(map(str, sorted(self.failures)))}")
        return lines


def run_many(
    seeds: Sequence[int],
    *,
    jobs: int,
    on_result: Callable[[SeedResult], None],
    world: str = QUORUM,
    stops_at_failure: bool = False,
) -> Summary:
    """Run these seeds in `jobs` processes (1: in this one); results come in any order."""
    summary = Summary()
    for result in _results(seeds, jobs, world):
        summary.add(result)
        on_result(result)
        if stops_at_failure and result.failure is not None:
            break
    return summary


def _results(seeds: Sequence[int], jobs: int, world: str) -> Iterator[SeedResult]:
    run = partial(_result, world)
    if jobs == 1 or len(seeds) == 1:
        yield from map(run, seeds)
        return
    # spawn: a forked child would inherit the caller's threads and their locks.
    context = multiprocessing.get_context("spawn")
    # The logs of simulated nodes about injected faults help only a person who examines one seed.
    with context.Pool(min(jobs, len(seeds)), logging.disable, (logging.CRITICAL,)) as pool:
        yield from pool.imap_unordered(run, seeds, chunksize=SEEDS_TOGETHER)


def _result(world: str, seed: int) -> SeedResult:
    try:
        return SeedResult(seed=seed, outcome=run_seed(seed, world))
    except SeedFailed as failure:
        return SeedResult(seed=seed, failure=failure)
    finally:
        # A world is few objects, in reference cycles, that hold all its disks. The collector counts
        # objects, so 1,500 worlds grow to 2 GB before it runs by itself.
        gc.collect()


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"
